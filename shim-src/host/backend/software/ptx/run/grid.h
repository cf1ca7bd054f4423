#ifndef VGPU_HOST_PTX_GRID_H
#define VGPU_HOST_PTX_GRID_H

#include "host/backend/software/ptx/run/warp.h"

/* Runs blocks of the grid until none is left or the launch stops. A helper runs only in its turn. */
void ptx_grid_work(struct launch_state *l, bool helps);

/*
 * The threads of the pool help with the launch until ptx_pool_end, which waits for the helpers that have
 * begun.
 */
void ptx_pool_begin(struct ptx_pool *pool, struct launch_state *l);
void ptx_pool_end(struct ptx_pool *pool);

uint32_t ptx_pool_count(const struct ptx_pool *pool);

#endif
