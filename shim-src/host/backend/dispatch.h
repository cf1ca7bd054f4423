/*
 * The tables between the worker's loop and the handlers. They are generated from the description of the
 * calls.
 */
#ifndef VGPU_HOST_DISPATCH_H
#define VGPU_HOST_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_worker;

/* Result of a call that must wait for the device. Not a CUresult. */
#define VGPU_WAITS (INT32_MIN + 1)

/* A row has a handler for each: vgpu_software_NAME and vgpu_cuda_NAME, or vgpu_common_NAME for both. */
enum vgpu_backend_number { VGPU_BACKEND_SOFTWARE = 0, VGPU_BACKEND_CUDA = 1, VGPU_BACKENDS = 2 };

/* Bulk data of one call. A handler fills `out` up to `out_capacity` and sets `out_size`. */
struct vgpu_bulk {
  const unsigned char *in;
  uint32_t in_size;
  uint32_t shared_region; /* the region that contains `in`; 0: none */
  unsigned char *out;
  uint32_t out_capacity;
  uint32_t out_size;
};

struct vgpu_dispatch_row {
  uint32_t opcode;
  uint32_t send_size;
  uint32_t reply_size;
  bool oneway;
  bool bulk_in;
  bool bulk_out;
  bool raw_in; /* the bulk is only copied, never read: it may be memory that the guest can change */
  bool raw_out;
  int16_t stream; /* offset of the call's stream in the body; -1: none */
  const char *name;
  int32_t (*run[VGPU_BACKENDS])(struct vgpu_worker *worker, const void *send, void *reply,
                                struct vgpu_bulk *bulk);
};

/* NULL: no such call. */
const struct vgpu_dispatch_row *vgpu_dispatch_cuda(uint32_t opcode);
const struct vgpu_dispatch_row *vgpu_dispatch_nvml(uint32_t opcode);

#endif
