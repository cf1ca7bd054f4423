/* The heap for malloc in kernels, and for the parameters of kernels that kernels launch. */
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/run/warp.h"

/*
 * The records of the heap, sorted by offset. They are in host memory, because kernels can write to the memory
 * of the heap.
 */
struct ptx_heap {
  pthread_mutex_t lock;
  uint64_t address, size;
  struct piece {
    uint64_t offset, size;
  } * pieces;
  size_t count, room;
};

struct ptx_heap *ptx_heap_new(uint64_t address, uint64_t size) {
  struct ptx_heap *heap = calloc(1, sizeof *heap);
  if (heap == NULL) return NULL;
  pthread_mutex_init(&heap->lock, NULL);
  heap->address = address;
  heap->size = size;
  return heap;
}
void ptx_heap_free(struct ptx_heap *heap) {
  if (heap == NULL) return;
  pthread_mutex_destroy(&heap->lock);
  free(heap->pieces);
  free(heap);
}

uint64_t ptx_heap_take(struct ptx_heap *heap, uint64_t bytes) {
  if (heap == NULL || bytes == 0 || bytes > heap->size) return 0;
  bytes = (bytes + 15) / 16 * 16;
  uint64_t result = 0;
  pthread_mutex_lock(&heap->lock);
  uint64_t end = 0;
  size_t i = 0;
  while (i < heap->count && heap->pieces[i].offset - end < bytes) {
    end = heap->pieces[i].offset + heap->pieces[i].size;
    i++;
  }
  bool fits = i < heap->count || bytes <= heap->size - end;
  if (fits && heap->count == heap->room) {
    size_t room = heap->room == 0 ? 64 : heap->room * 2;
    struct piece *larger = realloc(heap->pieces, room * sizeof *larger);
    if (larger == NULL) fits = false;
    else {
      heap->pieces = larger;
      heap->room = room;
    }
  }
  if (fits) {
    memmove(&heap->pieces[i + 1], &heap->pieces[i], (heap->count - i) * sizeof *heap->pieces);
    heap->pieces[i] = (struct piece){end, bytes};
    heap->count++;
    result = heap->address + end;
  }
  pthread_mutex_unlock(&heap->lock);
  return result;
}

bool ptx_heap_give(struct ptx_heap *heap, uint64_t address) {
  if (heap == NULL) return false;
  bool found = false;
  pthread_mutex_lock(&heap->lock);
  for (size_t i = 0; i < heap->count && !found; i++) {
    if (heap->address + heap->pieces[i].offset != address) continue;
    memmove(&heap->pieces[i], &heap->pieces[i + 1], (heap->count - i - 1) * sizeof *heap->pieces);
    heap->count--;
    found = true;
  }
  pthread_mutex_unlock(&heap->lock);
  return found;
}
