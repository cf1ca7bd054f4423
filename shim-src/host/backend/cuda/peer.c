/* Access of one GPU of the host to the memory of another, and copies between them. The driver decides. */
#include "host/backend/cuda/peer.h"

#include "host/backend/cuda/session.h"

int32_t vgpu_cuda_cuDeviceGetP2PAttribute(struct vgpu_worker *worker,
                                          const struct vgpu_send_cuDeviceGetP2PAttribute *send,
                                          struct vgpu_reply_cuDeviceGetP2PAttribute *reply) {
  struct vgpu_cuda *cuda;
  int32_t from, to;
  if (send->source >= worker->inventory->count || send->destination >= worker->inventory->count)
    return CUDA_ERROR_INVALID_DEVICE;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(&cuda->api, cuDeviceGet, &from, (int32_t)send->source);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(&cuda->api, cuDeviceGet, &to, (int32_t)send->destination);
  if (result != CUDA_SUCCESS) return result;
  return VGPU_DRIVER(&cuda->api, cuDeviceGetP2PAttribute, &reply->value, send->attribute, from, to);
}

static int32_t enter_both(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                          struct vgpu_cuda **cuda, struct vgpu_context **peer) {
  int32_t result = vgpu_cuda_enter(worker, context, cuda);
  if (result != CUDA_SUCCESS) return result;
  *peer = vgpu_cuda_object(worker, number, VGPU_HANDLE_CONTEXT);
  return *peer == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

int32_t vgpu_cuda_cuCtxEnablePeerAccess(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuCtxEnablePeerAccess *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_context *peer;
  int32_t result = enter_both(worker, send->context, send->peer, &cuda, &peer);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuCtxEnablePeerAccess, peer, 0) : result;
}

int32_t vgpu_cuda_cuCtxDisablePeerAccess(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuCtxDisablePeerAccess *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_context *peer;
  int32_t result = enter_both(worker, send->context, send->peer, &cuda, &peer);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuCtxDisablePeerAccess, peer) : result;
}

/* Returns a context of the device that has the range: its own, or any. NULL: the session has none there. */
static struct vgpu_context *context_of(struct vgpu_worker *worker, const struct vgpu_range *range) {
  struct vgpu_context *own = vgpu_cuda_object(worker, range->context, VGPU_HANDLE_CONTEXT);
  for (size_t i = 0; own == NULL && i < worker->handles.capacity; i++) {
    const struct vgpu_handle *handle = &worker->handles.places[i];
    if (handle->number != 0 && handle->type == VGPU_HANDLE_CONTEXT && handle->device == range->device)
      own = handle->driver;
  }
  return own;
}

bool vgpu_cuda_between_devices(struct vgpu_worker *worker, const struct vgpu_cuda_peer_copy *copy,
                               int32_t *result) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  const struct vgpu_range *to = vgpu_ranges_find(&cuda->ranges, copy->destination);
  const struct vgpu_range *from = vgpu_ranges_find(&cuda->ranges, copy->source);
  if (cuda->recording != NULL || to == NULL || from == NULL || to->device == from->device ||
      to->kind == VGPU_RANGE_LENT || from->kind == VGPU_RANGE_LENT)
    return false;
  struct vgpu_context *receiver = context_of(worker, to), *sender = context_of(worker, from);
  if (receiver == NULL || sender == NULL) return false;
  *result = VGPU_DRIVER(&cuda->api, cuMemcpyPeerAsync, copy->destination, receiver, copy->source, sender,
                        copy->bytes, copy->stream);
  return true;
}
