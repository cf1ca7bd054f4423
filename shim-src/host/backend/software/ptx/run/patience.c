/* How many blocks of a grid a thread keeps resident. */
#include "host/backend/software/ptx/run/patience.h"

#define TURNS 4u
/* Shared and local memory of the blocks of a launch. The session does not pay for it, so it is limited. */
#define RESIDENT_BYTES (256ull << 20)

void ptx_be_patient(const struct worker *worker, struct patience *patience, bool waits, bool ended) {
  const struct launch_state *l = worker->launch;
  if (ended) patience->wanted = patience->resident > 0 ? patience->resident : 1;
  if (ended) patience->waited = 0;
  else if (waits) patience->waited++;
  if (patience->waited < TURNS) return;
  patience->waited = 0;
  const uint32_t *size = l->launch->block;
  uint64_t threads = (uint64_t)size[0] * size[1] * size[2], more = patience->resident * 2ull;
  uint64_t bytes = (l->shared_bytes + threads * l->local_bytes) * l->cluster_blocks;
  if (more * bytes > RESIDENT_BYTES / l->threads) return;
  /* They may make twice as many frames, and have calls to come. */
  if (worker->frame_bytes * 4 > l->frame_limit) return;
  patience->wanted = (uint32_t)more;
}
