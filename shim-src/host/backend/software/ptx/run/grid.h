#ifndef VGPU_HOST_PTX_GRID_H
#define VGPU_HOST_PTX_GRID_H

#include "host/backend/software/ptx/run/warp.h"

/* Until no block is left or the launch stops. A helper runs only in its turn. */
void ptx_grid_work(struct launch_state *l, bool helps);

void ptx_pool_begin(struct ptx_pool *pool, struct launch_state *l);
void ptx_pool_end(struct ptx_pool *pool);

uint32_t ptx_pool_count(const struct ptx_pool *pool);

#endif
