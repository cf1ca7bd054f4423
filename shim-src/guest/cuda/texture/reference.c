/*
 * Texture and surface references, which programs of CUDA 11 and older bind before they launch. The state is
 * kept here; each change of one that is bound is told to the host, which makes an object of it.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/module/code.h"
#include "guest/cuda/texture/array.h"

enum { OVERRIDE_FORMAT = 1 /* CU_TRSA_OVERRIDE_FORMAT */, TEXTURE_ALIGNMENT = 14 };

struct reference {
  char *name;
  uint64_t module; /* 0: made by cuTexRefCreate, of none */
  uint64_t context_number;
  bool surface;
  struct vgpu_texture_request request; /* resource VGPU_TEXTURE_NONE: nothing is bound */
  void *handle;                        /* of the array */
  uint64_t offset;                     /* bytes between what was bound and what was asked for */
};

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

/* A live reference and the lock; NULL: there is none, and no lock. */
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

/* ---- changes ------------------------------------------------------------- */

static int read_state(void *handle, bool surface, struct reference *copy) {
  struct vgpu_driver *driver;
  int result = CUDA_SUCCESS;
  *copy = (struct reference){0};
  const struct reference *reference = enter(handle, surface, &driver, &result);
  if (reference == NULL) return result;
  *copy = *reference;
  pthread_mutex_unlock(&driver->lock);
  return CUDA_SUCCESS;
}

/* Keeps a changed state, and tells the host of it where something is bound. */
static int change(void *handle, const struct reference *changed) {
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

static int set_array(void *handle, bool surface, void *array_handle, bool mipmap) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  struct reference state;
  struct vgpu_array array;
  if (driver == NULL) return result;
  result = read_state(handle, surface, &state);
  if (result != CUDA_SUCCESS) return result;
  if (!vgpu_array_take(driver, array_handle, mipmap ? VGPU_OBJECT_MIPMAP : VGPU_OBJECT_ARRAY, &array))
    return CUDA_ERROR_INVALID_HANDLE;
  state.request.resource = mipmap ? VGPU_TEXTURE_MIPMAPPED : VGPU_TEXTURE_ARRAY;
  state.request.array = array.number;
  state.request.level = array.level;
  state.request.format = array.as.format;
  state.request.channels = array.as.channels;
  state.handle = array_handle;
  return change(handle, &state);
}

int cuTexRefSetArray(void *hTexRef, void *hArray, uint32_t Flags) {
  return Flags != OVERRIDE_FORMAT ? CUDA_ERROR_INVALID_VALUE : set_array(hTexRef, false, hArray, false);
}

int cuTexRefSetMipmappedArray(void *hTexRef, void *hMipmappedArray, uint32_t Flags) {
  return Flags != OVERRIDE_FORMAT ? CUDA_ERROR_INVALID_VALUE
                                  : set_array(hTexRef, false, hMipmappedArray, true);
}

int cuSurfRefSetArray(void *hSurfRef, void *hArray, uint32_t Flags) {
  return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : set_array(hSurfRef, true, hArray, false);
}

/* Memory of any address: the part before it up to the alignment is bound, too, and the kernel told to skip
 * it. */
int cuTexRefSetAddress_v2(size_t *ByteOffset, void *hTexRef, uint64_t dptr, size_t bytes) {
  struct reference state;
  int result = read_state(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_device_facts *facts = vgpu_cuda_device_facts(0);
  uint64_t alignment = facts == NULL ? 0 : (uint64_t)facts->attributes[TEXTURE_ALIGNMENT];
  state.offset = alignment == 0 ? 0 : dptr % alignment;
  if (ByteOffset == NULL && state.offset != 0) return CUDA_ERROR_INVALID_VALUE;
  state.request.resource = bytes == 0 ? VGPU_TEXTURE_NONE : VGPU_TEXTURE_LINEAR;
  state.request.address = dptr - state.offset;
  state.request.width = bytes + state.offset;
  result = change(hTexRef, &state);
  if (result == CUDA_SUCCESS && ByteOffset != NULL) *ByteOffset = (size_t)state.offset;
  return result;
}

int cuTexRefSetAddress2D_v3(void *hTexRef, const void *desc, uint64_t dptr, size_t Pitch) {
  struct {
    size_t width, height;
    int32_t format;
    uint32_t channels;
  } rows;
  struct reference state;
  int result = read_state(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (desc == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&rows, desc, sizeof rows);
  state.request.resource = VGPU_TEXTURE_PITCH;
  state.request.address = dptr;
  state.request.width = rows.width;
  state.request.height = rows.height;
  state.request.pitch = Pitch;
  state.request.format = rows.format;
  state.request.channels = rows.channels;
  state.offset = 0;
  return change(hTexRef, &state);
}

int cuTexRefSetAddress2D_v2(void *hTexRef, const void *desc, uint64_t dptr, size_t Pitch) {
  return cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch);
}

/* One field of the state. */
#define SET(field, value)                                                                                    \
  do {                                                                                                       \
    struct reference state;                                                                                  \
    int result = read_state(hTexRef, false, &state);                                                         \
    if (result != CUDA_SUCCESS) return result;                                                               \
    state.request.field = (value);                                                                           \
    return change(hTexRef, &state);                                                                          \
  } while (0)

int cuTexRefSetFormat(void *hTexRef, int32_t fmt, int32_t NumPackedComponents) {
  struct reference state;
  int result = read_state(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (NumPackedComponents != 1 && NumPackedComponents != 2 && NumPackedComponents != 4)
    return CUDA_ERROR_INVALID_VALUE;
  state.request.format = fmt;
  state.request.channels = (uint32_t)NumPackedComponents;
  return change(hTexRef, &state);
}

int cuTexRefSetAddressMode(void *hTexRef, int32_t dim, int32_t am) {
  if (dim < 0 || dim > 2 || am < 0 || am > 3) return CUDA_ERROR_INVALID_VALUE;
  SET(address_mode[dim], am);
}

int cuTexRefSetFilterMode(void *hTexRef, int32_t fm) {
  if (fm != 0 && fm != 1) return CUDA_ERROR_INVALID_VALUE;
  SET(filter, fm);
}

int cuTexRefSetFlags(void *hTexRef, uint32_t Flags) {
  SET(flags, Flags);
}

int cuTexRefSetMaxAnisotropy(void *hTexRef, uint32_t maxAniso) {
  SET(anisotropy, maxAniso);
}

int cuTexRefSetMipmapFilterMode(void *hTexRef, int32_t fm) {
  if (fm != 0 && fm != 1) return CUDA_ERROR_INVALID_VALUE;
  SET(mip_filter, fm);
}

int cuTexRefSetMipmapLevelBias(void *hTexRef, float bias) {
  SET(bias, bias);
}

int cuTexRefSetMipmapLevelClamp(void *hTexRef, float minMipmapLevelClamp, float maxMipmapLevelClamp) {
  struct reference state;
  int result = read_state(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  state.request.min_level = minMipmapLevelClamp;
  state.request.max_level = maxMipmapLevelClamp;
  return change(hTexRef, &state);
}

int cuTexRefSetBorderColor(void *hTexRef, float *pBorderColor) {
  struct reference state;
  int result = read_state(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (pBorderColor == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(state.request.border, pBorderColor, sizeof state.request.border);
  return change(hTexRef, &state);
}

/* A module's references need no order among the parameters: the kernel names them itself. */
int cuParamSetTexRef(void *hfunc, int32_t texunit, void *hTexRef) {
  enum { TEXUNIT_DEFAULT = -1 };
  struct reference state;
  int result = read_state(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  return hfunc == NULL || texunit != TEXUNIT_DEFAULT ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- what is asked ------------------------------------------------------- */

#define GET(pointer, value)                                                                                  \
  do {                                                                                                       \
    struct reference state;                                                                                  \
    int result = read_state(hTexRef, false, &state);                                                         \
    if (result != CUDA_SUCCESS) return result;                                                               \
    if ((pointer) == NULL) return CUDA_ERROR_INVALID_VALUE;                                                  \
    *(pointer) = (value);                                                                                    \
    return CUDA_SUCCESS;                                                                                     \
  } while (0)

int cuTexRefGetAddressMode(int32_t *pam, void *hTexRef, int32_t dim) {
  if (dim < 0 || dim > 2) return CUDA_ERROR_INVALID_VALUE;
  GET(pam, state.request.address_mode[dim]);
}

int cuTexRefGetFilterMode(int32_t *pfm, void *hTexRef) {
  GET(pfm, state.request.filter);
}

int cuTexRefGetFlags(uint32_t *pFlags, void *hTexRef) {
  GET(pFlags, state.request.flags);
}

int cuTexRefGetMaxAnisotropy(int32_t *pmaxAniso, void *hTexRef) {
  GET(pmaxAniso, (int32_t)state.request.anisotropy);
}

int cuTexRefGetMipmapFilterMode(int32_t *pfm, void *hTexRef) {
  GET(pfm, state.request.mip_filter);
}

int cuTexRefGetMipmapLevelBias(float *pbias, void *hTexRef) {
  GET(pbias, state.request.bias);
}

int cuTexRefGetMipmapLevelClamp(float *pminMipmapLevelClamp, float *pmaxMipmapLevelClamp, void *hTexRef) {
  struct reference state;
  int result = read_state(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (pminMipmapLevelClamp == NULL || pmaxMipmapLevelClamp == NULL) return CUDA_ERROR_INVALID_VALUE;
  *pminMipmapLevelClamp = state.request.min_level;
  *pmaxMipmapLevelClamp = state.request.max_level;
  return CUDA_SUCCESS;
}

int cuTexRefGetBorderColor(float *pBorderColor, void *hTexRef) {
  struct reference state;
  int result = read_state(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (pBorderColor == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(pBorderColor, state.request.border, sizeof state.request.border);
  return CUDA_SUCCESS;
}

int cuTexRefGetFormat(int32_t *pFormat, int32_t *pNumChannels, void *hTexRef) {
  struct reference state;
  int result = read_state(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (pFormat != NULL) *pFormat = state.request.format;
  if (pNumChannels != NULL) *pNumChannels = (int32_t)state.request.channels;
  return CUDA_SUCCESS;
}

int cuTexRefGetAddress_v2(uint64_t *pdptr, void *hTexRef) {
  struct reference state;
  int result = read_state(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  bool memory = state.request.resource == VGPU_TEXTURE_LINEAR || state.request.resource == VGPU_TEXTURE_PITCH;
  if (pdptr == NULL || !memory) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = state.request.address + state.offset;
  return CUDA_SUCCESS;
}

static int get_array(void **to, void *handle, bool surface, uint32_t resource) {
  struct reference state;
  int result = read_state(handle, surface, &state);
  if (result != CUDA_SUCCESS) return result;
  if (to == NULL || state.request.resource != resource) return CUDA_ERROR_INVALID_VALUE;
  *to = state.handle;
  return CUDA_SUCCESS;
}

int cuTexRefGetArray(void **phArray, void *hTexRef) {
  return get_array(phArray, hTexRef, false, VGPU_TEXTURE_ARRAY);
}

int cuTexRefGetMipmappedArray(void **phMipmappedArray, void *hTexRef) {
  return get_array(phMipmappedArray, hTexRef, false, VGPU_TEXTURE_MIPMAPPED);
}

int cuSurfRefGetArray(void **phArray, void *hSurfRef) {
  return get_array(phArray, hSurfRef, true, VGPU_TEXTURE_ARRAY);
}
