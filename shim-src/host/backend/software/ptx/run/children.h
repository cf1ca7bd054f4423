/* The launches of kernels by kernels: recorded by their calls, carried out when the grid has ended. */
#ifndef VGPU_HOST_PTX_CHILDREN_H
#define VGPU_HOST_PTX_CHILDREN_H

#include "host/backend/software/ptx/run/warp.h"

#define KNOWN_ERRORS 6u

struct child {
  enum { BUFFER, GRID, COPY, FILL } kind; /* BUFFER: not launched yet */
  bool tail;
  uint32_t kernel, grid[3], block[3], shared;
  uint64_t buffer, bytes; /* of the parameters; of what is copied or filled */
  uint64_t to, from;
  int32_t value;
};

struct list {
  struct child *array;
  size_t count, room;
};

struct ptx_children {
  struct list fresh;   /* of the grid that runs, in the order of its launches */
  struct list waiting; /* the next one last */
  uint64_t numbers;    /* of streams and events */
  uint64_t texts[2][KNOWN_ERRORS];
};

/* False: no memory. */
bool ptx_children_add(struct list *list, const struct child *child);

#endif
