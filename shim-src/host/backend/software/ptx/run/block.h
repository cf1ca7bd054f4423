#ifndef VGPU_HOST_PTX_BLOCK_H
#define VGPU_HOST_PTX_BLOCK_H

#include "host/backend/software/ptx/run/warp.h"

/* Room for one block of this launch; used again for the next one. NULL: no memory. */
struct block *ptx_block_new(struct worker *worker);
void ptx_block_free(struct block *block);

/*
 * The block with this rank of a cluster, which is one block where a launch has no clusters. False: no memory.
 */
bool ptx_block_begin(struct block *block, uint64_t cluster, uint32_t rank);

/* Every warp a turn. RUN_YIELD: there is more to do. RUN_BLOCKED: other blocks of the cluster have to. */
enum run ptx_block_run(struct block *block);

bool ptx_block_has(const struct block *block, enum split_state state);

void ptx_block_raise(struct block *block, enum ptx_status status, const char *text);

/* The launch has had its time. */
bool ptx_is_late(const struct launch_state *l);

#endif
