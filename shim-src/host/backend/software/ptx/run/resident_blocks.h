#ifndef VGPU_HOST_PTX_RESIDENT_BLOCKS_H
#define VGPU_HOST_PTX_RESIDENT_BLOCKS_H

#include "host/backend/software/ptx/run/warp.h"

/*
 * How many blocks a thread keeps resident. Usually each block ends before its thread begins another. But a
 * GPU holds a small grid as a whole, and programs rely on that: if a thread's blocks have waited for long and
 * none has ended, twice as many become resident.
 *
 * Blocks that read the clock again and again wait until a time: twice as many are resident after each turn,
 * as many as on the GPU at most, and those that end are replaced.
 */
struct patience {
  uint32_t resident, wanted; /* blocks, or clusters */
  uint32_t waited;           /* turns of all in which one waited, since the last one began or ended */
};

struct turn {
  bool waits; /* a loop has waited for long */
  bool timed; /* a block waits until a time, or has done so */
  bool ended; /* a block has ended */
};

/* Call this after the block's part of a turn. */
static inline void ptx_note_turn(struct turn *turn, struct block *block) {
  turn->waits |= block->waits;
  turn->timed |= block->timed;
  block->waits = false;
}

/* Call this after a turn of all resident blocks. */
void ptx_be_patient(const struct worker *worker, struct patience *patience, const struct turn *turn);

#endif
