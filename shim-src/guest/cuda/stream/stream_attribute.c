/*
 * CUstreamAttrID: access policy window 1, synchronization policy 3, priority 8, memory synchronization
 * domain map 9 and domain 10. Each is a union of 64 bytes.
 */
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"

enum { ACCESS_POLICY = 1, SYNCHRONIZATION = 3, PRIORITY = 8, SYNC_DOMAIN_MAP = 9, SYNC_DOMAIN = 10 };
#define VALUE_BYTES 64u

static const int32_t settable[] = {ACCESS_POLICY, SYNCHRONIZATION, SYNC_DOMAIN_MAP, SYNC_DOMAIN};

/*
 * Finds the attributes of a stream. A default stream has no handle to store attributes by, so its attributes
 * are the defaults.
 */
static int find(struct vgpu_stream *stream, struct vgpu_driver **driver, struct vgpu_stream **found,
                struct vgpu_stream *fallback, uint64_t *number, uint64_t *context) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  result = vgpu_cuda_stream_identity(*driver, stream, number, context);
  if (result != CUDA_SUCCESS) return result;
  bool own = *number >= VGPU_FIRST_NUMBER;
  if (!own) memset(fallback, 0, sizeof *fallback);
  *found = own ? stream : fallback;
  return CUDA_SUCCESS;
}

int cuStreamGetAttribute(struct vgpu_stream *hStream, int32_t attr, void *value) {
  struct vgpu_driver *driver;
  struct vgpu_stream *stream = NULL, fallback;
  uint64_t number, context;
  int result = find(hStream, &driver, &stream, &fallback, &number, &context);
  if (result != CUDA_SUCCESS) return result;
  if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
  unsigned char bytes[VALUE_BYTES] = {0};
  pthread_mutex_lock(&driver->lock);
  switch (attr) {
    case ACCESS_POLICY:
      memcpy(bytes, stream->values.access_policy, sizeof bytes);
      break;
    case SYNCHRONIZATION:
      memcpy(bytes, &stream->values.synchronization, sizeof stream->values.synchronization);
      if (stream->values.synchronization == 0) bytes[0] = 1; /* CU_SYNC_POLICY_AUTO */
      break;
    case PRIORITY:
      memcpy(bytes, &stream->priority, sizeof stream->priority);
      break;
    case SYNC_DOMAIN_MAP:
      memcpy(bytes, stream->values.sync_domain_map, sizeof bytes);
      if (bytes[0] == 0 && bytes[1] == 0) bytes[1] = 1; /* default domain 0, remote domain 1 */
      break;
    case SYNC_DOMAIN:
      memcpy(bytes, &stream->values.sync_domain, sizeof stream->values.sync_domain);
      break;
    default:
      result = CUDA_ERROR_INVALID_VALUE;
  }
  pthread_mutex_unlock(&driver->lock);
  if (result == CUDA_SUCCESS) memcpy(value, bytes, sizeof bytes);
  return result;
}

int cuStreamSetAttribute(struct vgpu_stream *hStream, int32_t attr, const void *param) {
  struct vgpu_driver *driver;
  struct vgpu_stream *stream = NULL, fallback;
  struct vgpu_send_cuStreamSetAttribute send = {.attribute = (uint32_t)attr};
  int result = find(hStream, &driver, &stream, &fallback, &send.stream, &send.context);
  if (result != CUDA_SUCCESS) return result;
  if (param == NULL) return CUDA_ERROR_INVALID_VALUE;
  unsigned char bytes[VALUE_BYTES];
  memcpy(bytes, param, sizeof bytes);
  int32_t word;
  memcpy(&word, bytes, sizeof word);
  pthread_mutex_lock(&driver->lock);
  switch (attr) {
    case ACCESS_POLICY:
      memcpy(stream->values.access_policy, bytes, sizeof bytes);
      break;
    case SYNCHRONIZATION:
      if (word < 1 || word > 4) result = CUDA_ERROR_INVALID_VALUE;
      else stream->values.synchronization = word;
      break;
    case SYNC_DOMAIN_MAP:
      memcpy(stream->values.sync_domain_map, bytes, 2);
      break;
    case SYNC_DOMAIN:
      if (word < 0 || word > 1) result = CUDA_ERROR_INVALID_VALUE;
      else stream->values.sync_domain = word;
      break;
    default: /* a stream's priority is set when it is made */
      result = CUDA_ERROR_INVALID_VALUE;
  }
  pthread_mutex_unlock(&driver->lock);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_cuda_post(VGPU_OP_cuStreamSetAttribute, &send, sizeof send, bytes, sizeof bytes);
}

int cuStreamCopyAttributes(struct vgpu_stream *dstStream, struct vgpu_stream *srcStream) {
  int result = CUDA_SUCCESS;
  for (size_t i = 0; i < sizeof settable / sizeof *settable && result == CUDA_SUCCESS; i++) {
    unsigned char value[VALUE_BYTES];
    result = cuStreamGetAttribute(srcStream, settable[i], value);
    if (result == CUDA_SUCCESS) result = cuStreamSetAttribute(dstStream, settable[i], value);
  }
  return result;
}
