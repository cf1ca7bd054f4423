/*
 * Textures and surfaces of the host's GPU. Objects are the driver's own, because kernels use their numbers.
 */
#include "host/backend/cuda/texture/texture.h"

#include <stdlib.h>
#include <string.h>

#include "api/structures.h"

/* An object that this session has made. */
struct vgpu_cuda_texture {
  struct vgpu_cuda_texture *next;
  uint64_t object, context;
  bool surface;
};

static int32_t remember(struct vgpu_cuda *cuda, uint64_t object, uint64_t context, bool surface) {
  struct vgpu_cuda_texture *made = malloc(sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct vgpu_cuda_texture){
      .next = cuda->textures, .object = object, .context = context, .surface = surface};
  cuda->textures = made;
  cuda->texture_count++;
  return CUDA_SUCCESS;
}

static bool forget(struct vgpu_cuda *cuda, uint64_t object, bool surface) {
  for (struct vgpu_cuda_texture **link = &cuda->textures; *link != NULL; link = &(*link)->next) {
    struct vgpu_cuda_texture *texture = *link;
    if (texture->object != object || texture->surface != surface) continue;
    *link = texture->next;
    cuda->texture_count--;
    free(texture);
    return true;
  }
  return false;
}

void vgpu_cuda_textures_drop(struct vgpu_worker *worker, uint64_t context) {
  for (struct vgpu_cuda_texture **link = &cuda_of(worker)->textures; *link != NULL;) {
    struct vgpu_cuda_texture *texture = *link;
    if (texture->context != context) {
      link = &texture->next;
      continue;
    }
    *link = texture->next;
    cuda_of(worker)->texture_count--;
    free(texture);
  }
}

static bool has_room(const struct vgpu_worker *worker, const struct vgpu_cuda *cuda) {
  return cuda->ranges.count + worker->handles.count + cuda->texture_count < worker->limits->session_handles;
}

static int32_t take_resource(struct vgpu_worker *worker, const struct vgpu_texture_request *r,
                             struct vgpu_resource_descriptor *resource) {
  struct vgpu_cuda_array *array;
  uint64_t bytes, more;
  *resource = (struct vgpu_resource_descriptor){.type = (int32_t)r->resource};
  switch (r->resource) {
    case VGPU_TEXTURE_ARRAY:
      resource->of.array = vgpu_cuda_array_level(worker, r->array, r->level);
      return resource->of.array == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    case VGPU_TEXTURE_MIPMAPPED:
      array = vgpu_cuda_array_find(worker, r->array);
      if (array == NULL || array->level_count == 0) return CUDA_ERROR_INVALID_HANDLE;
      resource->of.array = array->array;
      return CUDA_SUCCESS;
    case VGPU_TEXTURE_LINEAR:
      /* Its description may be longer than its allocation; the driver decides. */
      bytes = 1;
      break;
    case VGPU_TEXTURE_PITCH:
      more = (uint64_t)vgpu_format_bytes(r->format) * r->channels;
      if (more == 0) return CUDA_ERROR_NOT_SUPPORTED;
      if (r->height == 0 || __builtin_mul_overflow(r->pitch, r->height - 1, &bytes) ||
          __builtin_mul_overflow(r->width, more, &more) || __builtin_add_overflow(bytes, more, &bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  resource->of.memory.address = r->address;
  resource->of.memory.format = r->format;
  resource->of.memory.channels = r->channels;
  resource->of.memory.width = r->width;
  resource->of.memory.height = r->height;
  resource->of.memory.pitch = r->pitch;
  return vgpu_ranges_hold(&cuda_of(worker)->ranges, r->address, bytes) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
}

static struct vgpu_texture_descriptor sampler_of(const struct vgpu_texture_request *r) {
  struct vgpu_texture_descriptor sampler = {.filter = r->filter,
                                            .flags = r->flags,
                                            .anisotropy = r->anisotropy,
                                            .mip_filter = r->mip_filter,
                                            .bias = r->bias,
                                            .min_level = r->min_level,
                                            .max_level = r->max_level};
  memcpy(sampler.address_mode, r->address_mode, sizeof sampler.address_mode);
  memcpy(sampler.border, r->border, sizeof sampler.border);
  return sampler;
}

int32_t vgpu_cuda_cuTexObjectCreate(struct vgpu_worker *worker,
                                    const struct vgpu_send_cuTexObjectCreate *send,
                                    struct vgpu_reply_cuTexObjectCreate *reply, struct vgpu_bulk *bulk) {
  struct vgpu_texture_request r;
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (bulk->in_size != sizeof r) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&r, bulk->in, sizeof r);
  struct vgpu_resource_descriptor resource;
  result = take_resource(worker, &r, &resource);
  if (result != CUDA_SUCCESS) return result;
  if (!has_room(worker, cuda)) return CUDA_ERROR_OUT_OF_MEMORY;
  const struct vgpu_texture_descriptor sampler = sampler_of(&r);
  const struct vgpu_view_descriptor view = {.format = r.view_format,
                                            .width = r.view_width,
                                            .height = r.view_height,
                                            .depth = r.view_depth,
                                            .first_level = r.first_level,
                                            .last_level = r.last_level,
                                            .first_layer = r.first_layer,
                                            .last_layer = r.last_layer};
  uint64_t object = 0;
  result =
      VGPU_DRIVER(&cuda->api, cuTexObjectCreate, &object, &resource, &sampler, r.viewed != 0 ? &view : NULL);
  if (result != CUDA_SUCCESS) return result;
  result = remember(cuda, object, send->context, false);
  if (result != CUDA_SUCCESS) VGPU_DRIVER(&cuda->api, cuTexObjectDestroy, object);
  reply->object = object;
  return result;
}

int32_t vgpu_cuda_cuSurfObjectCreate(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuSurfObjectCreate *send,
                                     struct vgpu_reply_cuSurfObjectCreate *reply) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_texture_request r = {
      .resource = VGPU_TEXTURE_ARRAY, .array = send->array, .level = send->level};
  struct vgpu_resource_descriptor resource;
  result = take_resource(worker, &r, &resource);
  if (result != CUDA_SUCCESS) return result;
  if (!has_room(worker, cuda)) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t object = 0;
  result = VGPU_DRIVER(&cuda->api, cuSurfObjectCreate, &object, &resource);
  if (result != CUDA_SUCCESS) return result;
  result = remember(cuda, object, send->context, true);
  if (result != CUDA_SUCCESS) VGPU_DRIVER(&cuda->api, cuSurfObjectDestroy, object);
  reply->object = object;
  return result;
}

int32_t vgpu_cuda_cuTexObjectDestroy(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuTexObjectDestroy *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  return forget(cuda, send->object, false) ? VGPU_DRIVER(&cuda->api, cuTexObjectDestroy, send->object)
                                           : CUDA_ERROR_INVALID_HANDLE;
}

int32_t vgpu_cuda_cuSurfObjectDestroy(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuSurfObjectDestroy *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  return forget(cuda, send->object, true) ? VGPU_DRIVER(&cuda->api, cuSurfObjectDestroy, send->object)
                                          : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- references ---------------------------------------------------------- */

/* Binds a reference to an array or to memory. */
static int32_t bind_to(const struct vgpu_driver_api *api, void *reference,
                       const struct vgpu_texture_request *r,
                       const struct vgpu_resource_descriptor *resource) {
  const uint32_t override_format = 1;
  size_t offset = 0;
  struct {
    size_t width, height;
    int32_t format;
    uint32_t channels;
  } rows = {r->width, r->height, r->format, r->channels};
  int32_t result;
  switch (r->resource) {
    case VGPU_TEXTURE_ARRAY:
      return VGPU_DRIVER(api, cuTexRefSetArray, reference, resource->of.array, override_format);
    case VGPU_TEXTURE_MIPMAPPED:
      return VGPU_DRIVER(api, cuTexRefSetMipmappedArray, reference, resource->of.array, override_format);
    case VGPU_TEXTURE_LINEAR:
      result = VGPU_DRIVER(api, cuTexRefSetFormat, reference, r->format, (int32_t)r->channels);
      return result == CUDA_SUCCESS
                 ? VGPU_DRIVER(api, cuTexRefSetAddress_v2, &offset, reference, r->address, r->width)
                 : result;
    default:
      return VGPU_DRIVER(api, cuTexRefSetAddress2D_v3, reference, &rows, r->address, r->pitch);
  }
}

static int32_t set_sampler(const struct vgpu_driver_api *api, void *reference,
                           const struct vgpu_texture_request *r) {
  int32_t result = CUDA_SUCCESS;
  float border[4];
  memcpy(border, r->border, sizeof border);
  for (int32_t i = 0; i < 3 && result == CUDA_SUCCESS; i++)
    result = VGPU_DRIVER(api, cuTexRefSetAddressMode, reference, i, r->address_mode[i]);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuTexRefSetFilterMode, reference, r->filter);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuTexRefSetFlags, reference, r->flags);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuTexRefSetMaxAnisotropy, reference, r->anisotropy);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuTexRefSetBorderColor, reference, border);
  if (result != CUDA_SUCCESS || r->resource != VGPU_TEXTURE_MIPMAPPED) return result;
  result = VGPU_DRIVER(api, cuTexRefSetMipmapFilterMode, reference, r->mip_filter);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuTexRefSetMipmapLevelBias, reference, r->bias);
  if (result != CUDA_SUCCESS) return result;
  return VGPU_DRIVER(api, cuTexRefSetMipmapLevelClamp, reference, r->min_level, r->max_level);
}

int32_t vgpu_cuda_texture_reference(struct vgpu_worker *worker,
                                    const struct vgpu_send_texture_reference *send, struct vgpu_bulk *bulk) {
  struct vgpu_texture_request r;
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  void *module = vgpu_cuda_object(worker, send->module, VGPU_HANDLE_MODULE);
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (bulk->in_size <= sizeof r || bulk->in_size - sizeof r > VGPU_TEXTURE_NAME_MOST)
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(&r, bulk->in, sizeof r);
  char name[VGPU_TEXTURE_NAME_MOST + 1] = {0};
  memcpy(name, bulk->in + sizeof r, bulk->in_size - sizeof r);
  void *reference = NULL;
  bool surface = r.resource == VGPU_TEXTURE_SURFACE || r.resource == VGPU_TEXTURE_NO_SURFACE;
  bool look = r.resource == VGPU_TEXTURE_NONE || r.resource == VGPU_TEXTURE_NO_SURFACE;
  result = surface ? VGPU_DRIVER(&cuda->api, cuModuleGetSurfRef, &reference, module, name)
                   : VGPU_DRIVER(&cuda->api, cuModuleGetTexRef, &reference, module, name);
  if (result != CUDA_SUCCESS || look) return result;
  if (surface) r.resource = VGPU_TEXTURE_ARRAY;
  struct vgpu_resource_descriptor resource;
  result = take_resource(worker, &r, &resource);
  if (result != CUDA_SUCCESS) return result;
  if (surface) return VGPU_DRIVER(&cuda->api, cuSurfRefSetArray, reference, resource.of.array, 0);
  result = set_sampler(&cuda->api, reference, &r);
  return result == CUDA_SUCCESS ? bind_to(&cuda->api, reference, &r, &resource) : result;
}
