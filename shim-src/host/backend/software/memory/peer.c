#include "host/backend/software/memory/peer.h"

#include <stdlib.h>

#include "cuda_handlers.h"
#include "host/backend/software/memory/pool.h"
#include "host/backend/software/software.h"

/* CUdevice_P2PAttribute */
enum {
  PERFORMANCE_RANK = 1,
  ACCESS_SUPPORTED,
  NATIVE_ATOMIC_SUPPORTED,
  ARRAY_ACCESS_SUPPORTED,
  PARTIAL_ATOMIC
};

int32_t vgpu_software_cuDeviceGetP2PAttribute(struct vgpu_worker *worker,
                                              const struct vgpu_send_cuDeviceGetP2PAttribute *send,
                                              struct vgpu_reply_cuDeviceGetP2PAttribute *reply) {
  if (send->source >= worker->inventory->count || send->destination >= worker->inventory->count ||
      send->source == send->destination)
    return CUDA_ERROR_INVALID_DEVICE;
  if (send->attribute < PERFORMANCE_RANK || send->attribute > PARTIAL_ATOMIC) return CUDA_ERROR_INVALID_VALUE;
  reply->value = send->attribute >= ACCESS_SUPPORTED && send->attribute <= ARRAY_ACCESS_SUPPORTED;
  return CUDA_SUCCESS;
}

static struct vgpu_peer_access *find(const struct vgpu_peers *peers, uint64_t context, uint64_t peer) {
  for (size_t i = 0; i < peers->count; i++) {
    if (peers->array[i].context == context && peers->array[i].peer == peer) return &peers->array[i];
  }
  return NULL;
}

int32_t vgpu_software_cuCtxEnablePeerAccess(struct vgpu_worker *worker,
                                            const struct vgpu_send_cuCtxEnablePeerAccess *send) {
  struct vgpu_peers *peers = &software_of(worker)->peers;
  const struct vgpu_handle *context = find_context(worker, send->context);
  const struct vgpu_handle *peer = find_context(worker, send->peer);
  if (context == NULL || peer == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->device == peer->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (find(peers, send->context, send->peer) != NULL) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  if (peers->count == peers->capacity) {
    if (peers->count >= worker->limits->session_handles) return CUDA_ERROR_TOO_MANY_PEERS;
    size_t bigger = peers->capacity == 0 ? 16 : peers->capacity * 2;
    void *moved = realloc(peers->array, bigger * sizeof *peers->array);
    if (moved == NULL) return CUDA_ERROR_TOO_MANY_PEERS;
    peers->array = moved;
    peers->capacity = bigger;
  }
  peers->array[peers->count++] = (struct vgpu_peer_access){.context = send->context, .peer = send->peer};
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuCtxDisablePeerAccess(struct vgpu_worker *worker,
                                             const struct vgpu_send_cuCtxDisablePeerAccess *send) {
  struct vgpu_peers *peers = &software_of(worker)->peers;
  if (find_context(worker, send->context) == NULL || find_context(worker, send->peer) == NULL)
    return CUDA_ERROR_INVALID_CONTEXT;
  struct vgpu_peer_access *found = find(peers, send->context, send->peer);
  if (found == NULL) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  *found = peers->array[--peers->count];
  return CUDA_SUCCESS;
}

void vgpu_peers_forget(struct vgpu_worker *worker, uint64_t context) {
  struct vgpu_peers *peers = &software_of(worker)->peers;
  for (size_t i = peers->count; i > 0; i--) {
    if (peers->array[i - 1].context == context || peers->array[i - 1].peer == context)
      peers->array[i - 1] = peers->array[--peers->count];
  }
}

bool vgpu_peer_reaches(struct vgpu_worker *worker, const struct vgpu_allocation *allocation) {
  const struct vgpu_peers *peers = &software_of(worker)->peers;
  if (allocation->reserved || allocation->lent || allocation->device == peers->device ||
      allocation->context == peers->context)
    return true;
  return allocation->pool != 0 ? vgpu_pool_allows(worker, allocation->pool, peers->device)
                               : find(peers, peers->context, allocation->context) != NULL;
}
