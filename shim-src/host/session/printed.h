/*
 * The output that a session's kernels have printed and the guest has not fetched. As on a GPU it is a ring:
 * when it is full, new output replaces the oldest.
 */
#ifndef VGPU_HOST_PRINTED_H
#define VGPU_HOST_PRINTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VGPU_PRINTED_BYTES (1u << 20) /* CU_LIMIT_PRINTF_FIFO_SIZE of a fresh context */

struct vgpu_printed {
  bool agreed; /* agreed: the guest fetches the output; else it goes to the host's log */
  bool caught; /* the driver prints to this process's standard output */
  char *bytes; /* VGPU_PRINTED_BYTES; NULL before the first output */
  size_t start, used;
};

/* False: no memory. */
bool vgpu_printed_add(struct vgpu_printed *printed, const char *text, size_t length);
/* Moves up to `room` bytes to `to`. Returns their number. */
size_t vgpu_printed_take(struct vgpu_printed *printed, unsigned char *to, size_t room);

#endif
