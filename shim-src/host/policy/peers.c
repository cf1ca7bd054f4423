#include "host/policy/peers.h"

struct vgpu_peer_record *vgpu_peers_find(struct vgpu_peers *peers, const struct vgpu_peer *peer) {
  struct vgpu_peer_record *oldest = NULL;
  for (uint32_t i = 0; i < VGPU_PEERS_MAX; i++) {
    struct vgpu_peer_record *record = &peers->records[i];
    if (record->seen != 0 && vgpu_peer_same(&record->peer, peer)) {
      record->seen = vgpu_now_ns();
      return record;
    }
    if (record->sessions == 0 && (oldest == NULL || record->seen < oldest->seen)) oldest = record;
  }
  *oldest = (struct vgpu_peer_record){.peer = *peer, .seen = vgpu_now_ns(), .is_new = true};
  return oldest;
}

void vgpu_peers_forget_memory(struct vgpu_peers *peers) {
  for (uint32_t i = 0; i < VGPU_PEERS_MAX; i++)
    peers->records[i].memory = (struct vgpu_refused_to_peer){.last = {.count = 0}};
}
