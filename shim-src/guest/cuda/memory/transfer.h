#ifndef VGPU_GUEST_CUDA_TRANSFER_H
#define VGPU_GUEST_CUDA_TRANSFER_H

#include "guest/cuda/internal.h"

struct vgpu_transfer {
  struct vgpu_driver *driver;
  uint64_t context;
  uint64_t stream;
  bool async; /* in the stream's order; false: the call returns when it is done */
};

/* The program's end of a copy, looked up once. */
struct vgpu_host_memory {
  bool known;
  bool host;             /* not device memory */
  bool pinned;           /* the same for all of its bytes */
  bool lent;             /* the device can access all of its bytes, at the same address */
  bool any_lent;         /* the device can access the region */
  struct vgpu_span span; /* without a length; shared_region 0: only this process has the memory */
};
struct vgpu_host_memory vgpu_transfer_classify(const struct vgpu_transfer *transfer, uint64_t start,
                                               uint64_t bytes);

/* Of the stream (if `async`) or the current context. If not `async`, waits for host functions. */
int vgpu_transfer_begin(struct vgpu_transfer *transfer, struct vgpu_stream *stream, bool async);

/* Checks that the device bytes belong to one allocation. `bytes` may be 0. Returns a CUresult. */
int vgpu_transfer_to_device(const struct vgpu_transfer *transfer, uint64_t destination, const void *source,
                            size_t bytes);
int vgpu_transfer_from_device(const struct vgpu_transfer *transfer, void *destination, uint64_t source,
                              size_t bytes);
int vgpu_transfer_on_device(const struct vgpu_transfer *transfer, uint64_t destination, uint64_t source,
                            size_t bytes);

/* Before an asynchronous copy reads pinned memory: waits if a host function may still write to it. */
int vgpu_transfer_await_functions(const struct vgpu_transfer *transfer,
                                  const struct vgpu_host_memory *source);

/*
 * After a copy to the device was sent: a synchronous copy is then done, also for streams that do not wait for
 * the default stream. A GPU may read later from the memory to which the host copied.
 */
int vgpu_transfer_done(const struct vgpu_transfer *transfer, const struct vgpu_host_memory *source);

/*
 * After a copy or fill was sent. A synchronous one into memory that the program can read is done when it
 * returns: https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html
 */
int vgpu_transfer_arrive(const struct vgpu_transfer *transfer, uint64_t destination);

/* Before each piece to the device: waits for the stream if this thread is far ahead. */
int vgpu_transfer_keep_pace(const struct vgpu_transfer *transfer, uint32_t bytes);

/* After a copy that has waited: earlier reads of its stream into pinned memory are done, too. */
int vgpu_transfer_settle(const struct vgpu_transfer *transfer);

/* Waits until all work before the transfer is done and its bytes are in this process. */
int vgpu_transfer_catch_up(const struct vgpu_transfer *transfer);

static inline void *vgpu_host_pointer(uint64_t address) {
  return (void *)(uintptr_t)address;
}

#endif
