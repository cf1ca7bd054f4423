#include "host/backend/software/ptx/run/resident_blocks.h"

#define TURNS 4u
/* The session does not pay for shared and local memory of blocks, so it is limited. */
#define RESIDENT_BYTES (256ull << 20)

/* Values of an H100. */
enum {
  MULTIPROCESSORS = 16,
  THREADS_OF_MULTIPROCESSOR = 39,
  SHARED_OF_MULTIPROCESSOR = 81,
  BLOCKS_OF_MULTIPROCESSOR = 106,
  RESERVED_SHARED_OF_BLOCK = 111,
};

static uint64_t fact(const struct ptx_launch *launch, uint32_t number, uint64_t otherwise) {
  const struct ptx_device *device = launch->device;
  if (device == NULL || number >= device->attribute_count) return otherwise;
  if ((device->known[number / 8] >> number % 8 & 1) == 0 || device->attributes[number] < 0) return otherwise;
  return (uint64_t)device->attributes[number];
}

/*
 * Returns how many blocks, or clusters, of the grid a GPU holds at once. Registers do not count, because it
 * is not known how many a kernel would have on a GPU.
 */
static uint64_t most_on_gpu(const struct launch_state *l, uint64_t threads) {
  const struct ptx_launch *launch = l->launch;
  uint64_t warps = (threads + PTX_LANES - 1) / PTX_LANES;
  uint64_t blocks = fact(launch, THREADS_OF_MULTIPROCESSOR, 2048) / PTX_LANES / warps;
  uint64_t places = fact(launch, BLOCKS_OF_MULTIPROCESSOR, 32);
  uint64_t shared = l->own_shared + fact(launch, RESERVED_SHARED_OF_BLOCK, 1024);
  uint64_t room = fact(launch, SHARED_OF_MULTIPROCESSOR, 228 << 10);
  if (blocks > places) blocks = places;
  if (shared > 0 && blocks > room / shared) blocks = room / shared;
  uint64_t most = blocks * fact(launch, MULTIPROCESSORS, 132) / l->cluster_blocks;
  return most > 0 ? most : 1;
}

/* No thread takes blocks that another one could run. */
static uint64_t most_of_thread(const struct launch_state *l, uint64_t threads) {
  uint64_t most = most_on_gpu(l, threads);
  if (most > l->blocks) most = l->blocks;
  return (most + l->threads - 1) / l->threads;
}

void ptx_be_patient(const struct worker *worker, struct patience *patience, const struct turn *turn) {
  const struct launch_state *l = worker->launch;
  const uint32_t *size = l->launch->block;
  uint64_t threads = (uint64_t)size[0] * size[1] * size[2];
  if (turn->ended) patience->waited = 0;
  if (turn->ended && turn->timed) return;
  if (turn->ended) patience->wanted = patience->resident > 0 ? patience->resident : 1;
  else if (turn->waits) patience->waited++;
  uint64_t more = patience->resident * 2ull;
  if (patience->waited >= TURNS) {
    patience->waited = 0;
  } else {
    uint64_t most = turn->timed ? most_of_thread(l, threads) : 0;
    if (more > most) more = most;
    if (more <= patience->wanted) return;
  }
  uint64_t bytes = (l->shared_bytes + threads * l->local_bytes) * l->cluster_blocks;
  if (more * bytes > RESIDENT_BYTES / l->threads) return;
  /* Twice as many may make twice as many frames, and have calls to come. */
  if (worker->frame_bytes * 4 > l->frame_limit) return;
  patience->wanted = (uint32_t)more;
}
