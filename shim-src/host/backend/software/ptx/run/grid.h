#ifndef VGPU_HOST_PTX_GRID_H
#define VGPU_HOST_PTX_GRID_H

#include "host/backend/software/ptx/run/warp.h"

/* Takes blocks of the grid until none is left or the launch stops; a helper does so in its turn only. */
void ptx_grid_work(struct launch_state *l, bool helps);

/* The pool's threads help with it, from here to the end. */
void ptx_pool_begin(struct ptx_pool *pool, struct launch_state *l);
/* Those that have begun are done. */
void ptx_pool_end(struct ptx_pool *pool);

uint32_t ptx_pool_count(const struct ptx_pool *pool);

#endif
