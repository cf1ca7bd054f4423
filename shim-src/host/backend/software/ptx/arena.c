#include "host/backend/software/ptx/arena.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)256 << 10)

void *ptx_arena_take(struct ptx_arena *arena, size_t bytes) {
  size_t alignment = bytes >= 64 ? 64 : 16;
  if (bytes > arena->limit) return NULL;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  struct ptx_chunk *chunk = arena->chunks;
  size_t at = chunk == NULL ? 0 : (chunk->used + alignment - 1) / alignment * alignment;
  if (chunk == NULL || at > chunk->size || bytes > chunk->size - at) {
    size_t size = bytes > CHUNK / 4 ? bytes : CHUNK;
    if (size > arena->limit - arena->total) return NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, 64, sizeof *chunk + size) != 0) return NULL;
    struct ptx_chunk *fresh = memory;
    fresh->size = size;
    fresh->used = 0;
    arena->total += size;
    if (size == bytes && chunk != NULL) {
      /* A large allocation has its own chunk, after the one that still has room. */
      fresh->next = chunk->next;
      chunk->next = fresh;
    } else {
      fresh->next = chunk;
      arena->chunks = fresh;
    }
    chunk = fresh;
    at = 0;
  }
  chunk->used = at + bytes;
  memset(chunk->bytes + at, 0, bytes);
  return chunk->bytes + at;
}

void ptx_arena_free(struct ptx_arena *arena) {
  while (arena->chunks != NULL) {
    struct ptx_chunk *next = arena->chunks->next;
    free(arena->chunks);
    arena->chunks = next;
  }
  arena->total = 0;
}
