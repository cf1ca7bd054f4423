#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/texture/reference.h"

#define GET(pointer, value)                                                                                  \
  do {                                                                                                       \
    struct reference state;                                                                                  \
    int result = vgpu_reference_read(hTexRef, false, &state);                                                \
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
  int result = vgpu_reference_read(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (pminMipmapLevelClamp == NULL || pmaxMipmapLevelClamp == NULL) return CUDA_ERROR_INVALID_VALUE;
  *pminMipmapLevelClamp = state.request.min_level;
  *pmaxMipmapLevelClamp = state.request.max_level;
  return CUDA_SUCCESS;
}

int cuTexRefGetBorderColor(float *pBorderColor, void *hTexRef) {
  struct reference state;
  int result = vgpu_reference_read(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (pBorderColor == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(pBorderColor, state.request.border, sizeof state.request.border);
  return CUDA_SUCCESS;
}

int cuTexRefGetFormat(int32_t *pFormat, int32_t *pNumChannels, void *hTexRef) {
  struct reference state;
  int result = vgpu_reference_read(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  if (pFormat != NULL) *pFormat = state.request.format;
  if (pNumChannels != NULL) *pNumChannels = (int32_t)state.request.channels;
  return CUDA_SUCCESS;
}

int cuTexRefGetAddress_v2(uint64_t *pdptr, void *hTexRef) {
  struct reference state;
  int result = vgpu_reference_read(hTexRef, false, &state);
  if (result != CUDA_SUCCESS) return result;
  bool memory = state.request.resource == VGPU_TEXTURE_LINEAR || state.request.resource == VGPU_TEXTURE_PITCH;
  if (pdptr == NULL || !memory) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = state.request.address + state.offset;
  return CUDA_SUCCESS;
}

static int get_array(void **to, void *handle, bool surface, uint32_t resource) {
  struct reference state;
  int result = vgpu_reference_read(handle, surface, &state);
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
