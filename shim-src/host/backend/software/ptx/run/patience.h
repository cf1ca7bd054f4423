#ifndef VGPU_HOST_PTX_PATIENCE_H
#define VGPU_HOST_PTX_PATIENCE_H

#include "host/backend/software/ptx/run/warp.h"

/*
 * Blocks begin in order, and usually each ends before its thread begins another. But a block can wait for one
 * behind it: a GPU holds a small grid as a whole, and programs rely on that without a cooperative launch. So
 * when the blocks of a thread have waited for long and none has ended, twice as many are resident.
 */
struct patience {
  uint32_t resident, wanted; /* blocks, or clusters */
  uint32_t waited;           /* turns of all in which one waited, since the last one began or ended */
};

/* True if a loop of the block has waited since the last call. */
static inline bool ptx_has_waited(struct block *block) {
  bool waits = block->waits;
  block->waits = false;
  return waits;
}

/* After a turn of all: whether one of them waits, and whether one has ended. */
void ptx_be_patient(const struct worker *worker, struct patience *patience, bool waits, bool ended);

#endif
