#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/run/children.h"

struct ptx_children *ptx_children_new(void) {
  return calloc(1, sizeof(struct ptx_children));
}

static void drop(struct list *list, struct ptx_heap *heap) {
  for (size_t i = 0; i < list->count; i++) {
    if (list->array[i].kind <= GRID && list->array[i].buffer != 0) ptx_heap_give(heap, list->array[i].buffer);
  }
  free(list->array);
  *list = (struct list){0};
}

void ptx_children_free(struct ptx_children *children, struct ptx_heap *heap) {
  if (children == NULL) return;
  drop(&children->fresh, heap);
  drop(&children->waiting, heap);
  for (size_t i = 0; i < 2 * KNOWN_ERRORS; i++) {
    uint64_t text = children->texts[i / KNOWN_ERRORS][i % KNOWN_ERRORS];
    if (text != 0) ptx_heap_give(heap, text);
  }
  free(children);
}

bool ptx_children_add(struct list *list, const struct child *child) {
  if (list->count == list->room) {
    size_t room = list->room == 0 ? 16 : list->room * 2;
    struct child *larger = realloc(list->array, room * sizeof *larger);
    if (larger == NULL) return false;
    list->array = larger;
    list->room = room;
  }
  list->array[list->count++] = *child;
  return true;
}

/* Puts the launches of the last grid before all that wait, in their order. */
static bool promote(struct ptx_children *children, struct ptx_heap *heap) {
  bool good = true;
  for (int tail = 1; tail >= 0; tail--) {
    for (size_t i = children->fresh.count; i > 0; i--) {
      const struct child *child = &children->fresh.array[i - 1];
      if (child->kind == BUFFER) {
        if (tail == 1 && child->buffer != 0) ptx_heap_give(heap, child->buffer);
      } else if (child->tail == (tail == 1)) {
        good = ptx_children_add(&children->waiting, child) && good;
      }
    }
  }
  children->fresh.count = 0;
  return good;
}

/* Returns [address, address + bytes) if one region contains it, else NULL. */
static unsigned char *memory_at(const struct ptx_launch *launch, uint64_t address, uint64_t bytes) {
  struct ptx_region region;
  if (!launch->find(launch->user, address, &region)) return NULL;
  uint64_t offset = address - region.address;
  if (offset > region.size || bytes > region.size - offset) return NULL;
  if (region.written != NULL) memset(region.written + offset, 1, bytes);
  return region.bytes + offset;
}

static bool move_row(const struct ptx_launch *launch, const struct child *child, struct ptx_fault *fault) {
  unsigned char *to = memory_at(launch, child->to, child->bytes);
  const unsigned char *from = child->kind == FILL ? to : memory_at(launch, child->from, child->bytes);
  if (to == NULL || from == NULL) {
    *fault = (struct ptx_fault){.status = PTX_ILLEGAL_ADDRESS,
                                .address = to == NULL ? child->to : child->from,
                                .text = "a copy or fill that a kernel asked for leaves its memory"};
    return false;
  }
  if (child->kind == FILL) memset(to, child->value, child->bytes);
  else memmove(to, from, child->bytes);
  return true;
}

static bool move(const struct ptx_launch *launch, const struct child *child, struct ptx_fault *fault) {
  uint64_t slice = 0, row = 0;
  do {
    row = 0;
    do {
      struct child part = *child;
      part.to += slice * child->to_slice + row * child->to_row;
      part.from += slice * child->from_slice + row * child->from_row;
      if (!move_row(launch, &part, fault)) return false;
    } while (++row < child->rows);
  } while (++slice < child->slices);
  return true;
}

bool ptx_children_next(struct ptx_children *children, const struct ptx_module *module,
                       const struct ptx_launch *launch, struct ptx_child *child, struct ptx_fault *fault) {
  *fault = (struct ptx_fault){.status = PTX_OK};
  if (!promote(children, launch->heap)) {
    *fault = (struct ptx_fault){.status = PTX_OUT_OF_MEMORY, .text = "no memory for launches from kernels"};
    return false;
  }
  while (children->waiting.count > 0) {
    struct child next = children->waiting.array[--children->waiting.count];
    if (next.kind != GRID) {
      if (!move(launch, &next, fault)) return false;
      continue;
    }
    uint32_t bytes = module->kernels[next.kernel].parameter_bytes;
    const unsigned char *from = memory_at(launch, next.buffer, bytes);
    if (from != NULL) memcpy(child->parameters, from, bytes);
    ptx_heap_give(launch->heap, next.buffer);
    child->kernel = next.kernel;
    child->parameter_bytes = bytes;
    child->dynamic_shared = next.shared;
    memcpy(child->grid, next.grid, sizeof child->grid);
    memcpy(child->block, next.block, sizeof child->block);
    return true;
  }
  return false;
}
