#ifndef VGPU_HOST_PTX_GRID_H
#define VGPU_HOST_PTX_GRID_H

#include "host/backend/software/ptx/run/warp.h"

/* Until no block is left or the launch stops. A helper runs only in its turn. */
void ptx_grid_work(struct launch_state *l, bool helps);

/* Until ptx_pool_end. */
void ptx_pool_begin(struct ptx_pool *pool, struct launch_state *l);
/* For the helpers that have begun. */
void ptx_pool_end(struct ptx_pool *pool);

uint32_t ptx_pool_count(const struct ptx_pool *pool);

#endif
