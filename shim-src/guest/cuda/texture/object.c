/* Texture and surface objects. The host makes them, because kernels use their numbers. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/texture/array.h"

static int take_array(struct vgpu_driver *driver, void *handle, enum vgpu_object_kind kind,
                      struct vgpu_texture_request *request) {
  struct vgpu_array array;
  if (!vgpu_array_take(driver, handle, kind, &array)) return CUDA_ERROR_INVALID_HANDLE;
  request->array = array.number;
  request->level = array.level;
  return CUDA_SUCCESS;
}

int vgpu_texture_request_of(struct vgpu_driver *driver, const struct vgpu_resource_descriptor *resource,
                            const struct vgpu_texture_descriptor *texture,
                            const struct vgpu_view_descriptor *view, struct vgpu_texture_request *request) {
  *request = (struct vgpu_texture_request){.resource = (uint32_t)resource->type,
                                           .filter = texture->filter,
                                           .flags = texture->flags,
                                           .anisotropy = texture->anisotropy,
                                           .mip_filter = texture->mip_filter,
                                           .bias = texture->bias,
                                           .min_level = texture->min_level,
                                           .max_level = texture->max_level};
  memcpy(request->address_mode, texture->address_mode, sizeof request->address_mode);
  memcpy(request->border, texture->border, sizeof request->border);
  if (view != NULL) {
    request->viewed = 1;
    request->view_format = view->format;
    request->view_width = view->width;
    request->view_height = view->height;
    request->view_depth = view->depth;
    request->first_level = view->first_level;
    request->last_level = view->last_level;
    request->first_layer = view->first_layer;
    request->last_layer = view->last_layer;
  }
  switch (resource->type) {
    case VGPU_TEXTURE_ARRAY:
      return take_array(driver, resource->of.array, VGPU_OBJECT_ARRAY, request);
    case VGPU_TEXTURE_MIPMAPPED:
      return take_array(driver, resource->of.array, VGPU_OBJECT_MIPMAP, request);
    case VGPU_TEXTURE_LINEAR:
    case VGPU_TEXTURE_PITCH:
      request->address = resource->of.memory.address;
      request->format = resource->of.memory.format;
      request->channels = resource->of.memory.channels;
      request->width = resource->of.memory.width;
      if (resource->type == VGPU_TEXTURE_LINEAR) return CUDA_SUCCESS;
      request->height = resource->of.memory.height;
      request->pitch = resource->of.memory.pitch;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

static int keep(struct vgpu_driver *driver, const struct vgpu_texture *made) {
  struct vgpu_texture *texture = malloc(sizeof *texture);
  if (texture == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *texture = *made;
  pthread_mutex_lock(&driver->lock);
  texture->next = driver->textures;
  driver->textures = texture;
  pthread_mutex_unlock(&driver->lock);
  return CUDA_SUCCESS;
}

static bool find(struct vgpu_driver *driver, uint64_t object, bool surface, bool remove,
                 struct vgpu_texture *copy) {
  bool found = false;
  pthread_mutex_lock(&driver->lock);
  for (struct vgpu_texture **link = &driver->textures; *link != NULL; link = &(*link)->next) {
    struct vgpu_texture *texture = *link;
    if (texture->object != object || texture->surface != surface) continue;
    *copy = *texture;
    found = true;
    if (remove) {
      *link = texture->next;
      free(texture);
    }
    break;
  }
  pthread_mutex_unlock(&driver->lock);
  return found;
}

static int begin(struct vgpu_driver **driver, struct vgpu_context **context, uint64_t *number) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  return vgpu_cuda_owner(*driver, context, number);
}

static void put_back(uint64_t context, uint64_t object, bool surface) {
  const struct vgpu_send_cuTexObjectDestroy texture = {.context = context, .object = object};
  const struct vgpu_send_cuSurfObjectDestroy other = {.context = context, .object = object};
  if (surface) vgpu_cuda_post(VGPU_OP_cuSurfObjectDestroy, &other, sizeof other, NULL, 0);
  else vgpu_cuda_post(VGPU_OP_cuTexObjectDestroy, &texture, sizeof texture, NULL, 0);
}

int cuTexObjectCreate(uint64_t *pTexObject, const void *pResDesc, const void *pTexDesc,
                      const void *pResViewDesc) {
  struct vgpu_driver *driver;
  struct vgpu_texture made = {.viewed = pResViewDesc != NULL};
  uint64_t number;
  int result = begin(&driver, &made.context, &number);
  if (result != CUDA_SUCCESS) return result;
  if (pTexObject == NULL || pResDesc == NULL || pTexDesc == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&made.resource, pResDesc, sizeof made.resource);
  memcpy(&made.texture, pTexDesc, sizeof made.texture);
  if (made.viewed) memcpy(&made.view, pResViewDesc, sizeof made.view);
  struct vgpu_texture_request request;
  result = vgpu_texture_request_of(driver, &made.resource, &made.texture, made.viewed ? &made.view : NULL,
                                   &request);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_send_cuTexObjectCreate send = {.context = number};
  struct vgpu_reply_cuTexObjectCreate reply = {0};
  struct vgpu_cuda_exchange exchange = {.send = &send,
                                        .send_size = sizeof send,
                                        .send_bulk = &request,
                                        .send_bulk_size = sizeof request,
                                        .reply = &reply,
                                        .reply_size = sizeof reply};
  result = vgpu_cuda_exchange(VGPU_OP_cuTexObjectCreate, &exchange);
  if (result != CUDA_SUCCESS) return result;
  made.object = reply.object;
  result = keep(driver, &made);
  if (result == CUDA_SUCCESS) *pTexObject = reply.object;
  else put_back(number, reply.object, false);
  return result;
}

int cuSurfObjectCreate(uint64_t *pSurfObject, const void *pResDesc) {
  struct vgpu_driver *driver;
  struct vgpu_texture made = {.surface = true};
  struct vgpu_texture_request request = {0};
  uint64_t number;
  int result = begin(&driver, &made.context, &number);
  if (result != CUDA_SUCCESS) return result;
  if (pSurfObject == NULL || pResDesc == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&made.resource, pResDesc, sizeof made.resource);
  if (made.resource.type != VGPU_TEXTURE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  result = take_array(driver, made.resource.of.array, VGPU_OBJECT_ARRAY, &request);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_send_cuSurfObjectCreate send = {
      .context = number, .array = request.array, .level = request.level};
  struct vgpu_reply_cuSurfObjectCreate reply = {0};
  result = vgpu_cuda_call(VGPU_OP_cuSurfObjectCreate, &send, sizeof send, &reply, sizeof reply);
  if (result != CUDA_SUCCESS) return result;
  made.object = reply.object;
  result = keep(driver, &made);
  if (result == CUDA_SUCCESS) *pSurfObject = reply.object;
  else put_back(number, reply.object, true);
  return result;
}

static int destroy(uint64_t object, bool surface) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  struct vgpu_texture texture;
  if (driver == NULL) return result;
  if (object == 0) return CUDA_SUCCESS;
  if (!find(driver, object, surface, true, &texture)) return CUDA_ERROR_INVALID_VALUE;
  put_back(vgpu_cuda_context_own_number(driver, texture.context), object, surface);
  return CUDA_SUCCESS;
}

int cuTexObjectDestroy(uint64_t texObject) {
  return destroy(texObject, false);
}

int cuSurfObjectDestroy(uint64_t surfObject) {
  return destroy(surfObject, true);
}

static int look(uint64_t object, bool surface, const void *to, struct vgpu_texture *texture) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  return to != NULL && find(driver, object, surface, false, texture) ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

int cuTexObjectGetResourceDesc(void *pResDesc, uint64_t texObject) {
  struct vgpu_texture texture;
  int result = look(texObject, false, pResDesc, &texture);
  if (result == CUDA_SUCCESS) memcpy(pResDesc, &texture.resource, sizeof texture.resource);
  return result;
}

int cuTexObjectGetTextureDesc(void *pTexDesc, uint64_t texObject) {
  struct vgpu_texture texture;
  int result = look(texObject, false, pTexDesc, &texture);
  if (result == CUDA_SUCCESS) memcpy(pTexDesc, &texture.texture, sizeof texture.texture);
  return result;
}

int cuTexObjectGetResourceViewDesc(void *pResViewDesc, uint64_t texObject) {
  struct vgpu_texture texture;
  int result = look(texObject, false, pResViewDesc, &texture);
  if (result != CUDA_SUCCESS) return result;
  if (!texture.viewed) return CUDA_ERROR_INVALID_VALUE;
  memcpy(pResViewDesc, &texture.view, sizeof texture.view);
  return CUDA_SUCCESS;
}

int cuSurfObjectGetResourceDesc(void *pResDesc, uint64_t surfObject) {
  struct vgpu_texture surface;
  int result = look(surfObject, true, pResDesc, &surface);
  if (result == CUDA_SUCCESS) memcpy(pResDesc, &surface.resource, sizeof surface.resource);
  return result;
}

void vgpu_texture_objects_context_ended(struct vgpu_driver *driver, struct vgpu_context *context) {
  for (struct vgpu_texture **link = &driver->textures; *link != NULL;) {
    struct vgpu_texture *texture = *link;
    if (texture->context != context) {
      link = &texture->next;
      continue;
    }
    *link = texture->next;
    free(texture);
  }
}
