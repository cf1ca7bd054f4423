/*
 * Texture and surface references, which programs of CUDA 11 and older bind before a launch. For each change
 * the host makes a new object.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/module/code.h"
#include "guest/cuda/texture/reference.h"

static struct vgpu_texture_request unbound(void) {
  return (struct vgpu_texture_request){.resource = VGPU_TEXTURE_NONE,
                                       .format = 0x20, /* float */
                                       .channels = 1,
                                       .address_mode = {1, 1, 1}};
}

static int tell(const struct reference *reference, const struct vgpu_texture_request *request) {
  size_t length = strlen(reference->name);
  unsigned char bulk[sizeof *request + VGPU_TEXTURE_NAME_MOST];
  const struct vgpu_send_texture_reference send = {.context = reference->context_number,
                                                   .module = reference->module};
  memcpy(bulk, request, sizeof *request);
  memcpy(bulk + sizeof *request, reference->name, length);
  struct vgpu_cuda_exchange exchange = {.send = &send,
                                        .send_size = sizeof send,
                                        .send_bulk = bulk,
                                        .send_bulk_size = (uint32_t)(sizeof *request + length)};
  return vgpu_cuda_exchange(VGPU_OP_texture_reference, &exchange);
}

struct search {
  uint64_t module;
  const char *name;
  struct reference *found;
};

static bool same(void *handle, void *with) {
  struct search *search = with;
  struct reference *reference = handle;
  if (reference->module == search->module && strcmp(reference->name, search->name) == 0)
    search->found = reference;
  return false;
}

static int make(struct vgpu_driver *driver, struct reference *like, const char *name, void **made) {
  struct reference *reference = malloc(sizeof *reference);
  char *copy = strdup(name);
  bool added = false;
  if (reference != NULL && copy != NULL) {
    *reference = *like;
    reference->name = copy;
    pthread_mutex_lock(&driver->lock);
    added = vgpu_objects_add(&driver->objects, reference, VGPU_OBJECT_REFERENCE);
    pthread_mutex_unlock(&driver->lock);
  }
  if (!added) {
    free(reference);
    free(copy);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *made = reference;
  return CUDA_SUCCESS;
}

static int of_module(void **made, void *hmod, const char *name, bool surface) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (made == NULL || name == NULL || name[0] == '\0' || strlen(name) > VGPU_TEXTURE_NAME_MOST)
    return CUDA_ERROR_INVALID_VALUE;
  struct reference like = {.name = (char *)(uintptr_t)name, .surface = surface, .request = unbound()};
  struct search search = {.name = name};
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, hmod, VGPU_OBJECT_MODULE);
  if (live) {
    const struct vgpu_module *module = hmod;
    search.module = like.module = module->number;
    like.context_number = module->context_number;
    vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_REFERENCE, same, &search);
  }
  pthread_mutex_unlock(&driver->lock);
  if (!live) return CUDA_ERROR_INVALID_HANDLE;
  if (search.found != NULL) {
    *made = search.found;
    return search.found->surface == surface ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  }
  struct vgpu_texture_request look = like.request;
  if (surface) look.resource = VGPU_TEXTURE_NO_SURFACE;
  result = tell(&like, &look);
  return result == CUDA_SUCCESS ? make(driver, &like, name, made) : result;
}

int cuModuleGetTexRef(void **pTexRef, void *hmod, const char *name) {
  return of_module(pTexRef, hmod, name, false);
}

int cuModuleGetSurfRef(void **pSurfRef, void *hmod, const char *name) {
  return of_module(pSurfRef, hmod, name, true);
}

int cuTexRefCreate(void **pTexRef) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  struct reference like = {.request = unbound()};
  if (driver == NULL) return result;
  return pTexRef == NULL ? CUDA_ERROR_INVALID_VALUE : make(driver, &like, "", pTexRef);
}

/* Finds a live reference and takes the lock. NULL: there is none, and the lock is not held. */
static struct reference *enter(void *handle, bool surface, struct vgpu_driver **driver, int *result) {
  *driver = vgpu_cuda_driver(result);
  if (*driver == NULL) return NULL;
  pthread_mutex_lock(&(*driver)->lock);
  struct reference *reference = handle;
  if (vgpu_objects_has(&(*driver)->objects, handle, VGPU_OBJECT_REFERENCE) && reference->surface == surface)
    return reference;
  pthread_mutex_unlock(&(*driver)->lock);
  *result = CUDA_ERROR_INVALID_HANDLE;
  return NULL;
}

int cuTexRefDestroy(void *hTexRef) {
  struct vgpu_driver *driver;
  int result = CUDA_SUCCESS;
  struct reference *reference = enter(hTexRef, false, &driver, &result);
  if (reference == NULL) return result;
  bool own = reference->module == 0;
  if (own) vgpu_objects_remove(&driver->objects, reference, VGPU_OBJECT_REFERENCE);
  pthread_mutex_unlock(&driver->lock);
  if (!own) return CUDA_ERROR_INVALID_HANDLE;
  free(reference->name);
  free(reference);
  return CUDA_SUCCESS;
}

static bool of_gone(void *handle, void *with) {
  struct reference *reference = handle;
  if (reference->module != *(const uint64_t *)with) return false;
  free(reference->name);
  free(reference);
  return true;
}

void vgpu_references_module_ended(struct vgpu_driver *driver, uint64_t module) {
  if (module != 0) vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_REFERENCE, of_gone, &module);
}

int vgpu_reference_read(void *handle, bool surface, struct reference *copy) {
  struct vgpu_driver *driver;
  int result = CUDA_SUCCESS;
  *copy = (struct reference){0};
  const struct reference *reference = enter(handle, surface, &driver, &result);
  if (reference == NULL) return result;
  *copy = *reference;
  pthread_mutex_unlock(&driver->lock);
  return CUDA_SUCCESS;
}

int vgpu_reference_change(void *handle, const struct reference *changed) {
  struct vgpu_texture_request request = changed->request;
  if (changed->surface && request.resource == VGPU_TEXTURE_ARRAY) request.resource = VGPU_TEXTURE_SURFACE;
  int result = CUDA_SUCCESS;
  if (changed->module != 0 && request.resource != VGPU_TEXTURE_NONE) result = tell(changed, &request);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_driver *driver;
  struct reference *reference = enter(handle, changed->surface, &driver, &result);
  if (reference == NULL) return result;
  reference->request = changed->request;
  reference->handle = changed->handle;
  reference->offset = changed->offset;
  pthread_mutex_unlock(&driver->lock);
  return CUDA_SUCCESS;
}
