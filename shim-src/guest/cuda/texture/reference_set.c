#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/texture/reference.h"

enum { OVERRIDE_FORMAT = 1 /* CU_TRSA_OVERRIDE_FORMAT */, TEXTURE_ALIGNMENT = 14 };

static int set_array(void *handle, bool surface, void *array_handle, bool mipmap) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  struct reference state;
  struct vgpu_array array;
  if (driver == NULL) return result;
  result = vgpu_reference_read(handle, surface, &state);
  if (result != CUDA_SUCCESS) return result;
  if (!vgpu_array_take(driver, array_handle, mipmap ? VGPU_OBJECT_MIPMAP : VGPU_OBJECT_ARRAY, &array))
    return CUDA_ERROR_INVALID_HANDLE;
  state.request.resource = mipmap ? VGPU_TEXTURE_MIPMAPPED : VGPU_TEXTURE_ARRAY;
  state.request.array = array.number;
  state.request.level = array.level;
  state.request.format = array.as.format;
  state.request.channels = array.as.channels;
  state.handle = array_handle;
  return vgpu_reference_change(handle, &state);
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

/*
 * Binds memory at any address. The bytes before it, down to the alignment, are bound, too; *ByteOffset is
 * their count, which the program has to add.
 */
int cuTexRefSetAddress_v2(size_t *ByteOffset, void *hTexRef, uint64_t dptr, size_t bytes) {
  struct reference state;
  int result = vgpu_reference_read(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_device_facts *facts = vgpu_cuda_device_facts(0);
  uint64_t alignment = facts == NULL ? 0 : (uint64_t)facts->attributes[TEXTURE_ALIGNMENT];
  state.offset = alignment == 0 ? 0 : dptr % alignment;
  if (ByteOffset == NULL && state.offset != 0) return CUDA_ERROR_INVALID_VALUE;
  state.request.resource = bytes == 0 ? VGPU_TEXTURE_NONE : VGPU_TEXTURE_LINEAR;
  state.request.address = dptr - state.offset;
  state.request.width = bytes + state.offset;
  result = vgpu_reference_change(hTexRef, &state);
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
  int result = vgpu_reference_read(hTexRef, false, &state);
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
  return vgpu_reference_change(hTexRef, &state);
}

int cuTexRefSetAddress2D_v2(void *hTexRef, const void *desc, uint64_t dptr, size_t Pitch) {
  return cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch);
}

#define SET(field, value)                                                                                    \
  do {                                                                                                       \
    struct reference state;                                                                                  \
    int result = vgpu_reference_read(hTexRef, false, &state);                                                \
    if (result != CUDA_SUCCESS) return result;                                                               \
    state.request.field = (value);                                                                           \
    return vgpu_reference_change(hTexRef, &state);                                                           \
  } while (0)

int cuTexRefSetFormat(void *hTexRef, int32_t fmt, int32_t NumPackedComponents) {
  struct reference state;
  int result = vgpu_reference_read(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (NumPackedComponents != 1 && NumPackedComponents != 2 && NumPackedComponents != 4)
    return CUDA_ERROR_INVALID_VALUE;
  state.request.format = fmt;
  state.request.channels = (uint32_t)NumPackedComponents;
  return vgpu_reference_change(hTexRef, &state);
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
  int result = vgpu_reference_read(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  state.request.min_level = minMipmapLevelClamp;
  state.request.max_level = maxMipmapLevelClamp;
  return vgpu_reference_change(hTexRef, &state);
}

int cuTexRefSetBorderColor(void *hTexRef, float *pBorderColor) {
  struct reference state;
  int result = vgpu_reference_read(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (pBorderColor == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(state.request.border, pBorderColor, sizeof state.request.border);
  return vgpu_reference_change(hTexRef, &state);
}

/* Adds no parameter: the kernel names the reference itself. */
int cuParamSetTexRef(void *hfunc, int32_t texunit, void *hTexRef) {
  enum { TEXUNIT_DEFAULT = -1 };
  struct reference state;
  int result = vgpu_reference_read(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  return hfunc == NULL || texunit != TEXUNIT_DEFAULT ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
