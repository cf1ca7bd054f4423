/* Memory that is freed all at once. It has a limit, because a module's text decides how much it needs. */
#ifndef VGPU_PTX_ARENA_H
#define VGPU_PTX_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct ptx_chunk {
  struct ptx_chunk *next;
  size_t used, size;
  _Alignas(64) unsigned char bytes[];
};

struct ptx_arena {
  struct ptx_chunk *chunks;
  size_t total, limit;
};

/*
 * Returns zeroed memory, aligned to 16 bytes (to 64 from 64 bytes on). NULL: no memory, or the limit is
 * reached.
 */
void *ptx_arena_take(struct ptx_arena *arena, size_t bytes);
void ptx_arena_free(struct ptx_arena *arena);

#endif
