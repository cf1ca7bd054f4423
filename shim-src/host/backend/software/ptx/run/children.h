#ifndef VGPU_HOST_PTX_CHILDREN_H
#define VGPU_HOST_PTX_CHILDREN_H

#include "host/backend/software/ptx/run/warp.h"

#define KNOWN_ERRORS 6u

struct child {
  enum { BUFFER, GRID, COPY, FILL } kind; /* BUFFER: not launched yet */
  bool tail;
  uint32_t kernel, grid[3], block[3], shared;
  uint64_t buffer, bytes; /* size of the parameters, or of the copy or fill */
  uint64_t to, from;
  int32_t value;
  /* A copy or fill has this many rows of `bytes` and slices of rows; 0 means one. The others are distances.
   */
  uint64_t rows, slices, to_row, from_row, to_slice, from_slice;
};

struct list {
  struct child *array;
  size_t count, room;
};

struct ptx_children {
  struct list fresh;   /* of the present grid, in the order of its launches */
  struct list waiting; /* the next one last */
  uint64_t numbers;    /* last number of a stream or event */
  uint64_t texts[2][KNOWN_ERRORS];
};

/* Records a launch, copy or fill. Returns a cudaError_t. The caller holds the launch's lock. */
uint8_t ptx_children_record(const struct place *at, const struct child *child);
/* False: no memory. */
bool ptx_children_add(struct list *list, const struct child *child);

#endif
