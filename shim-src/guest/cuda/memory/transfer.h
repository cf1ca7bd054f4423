#ifndef VGPU_GUEST_CUDA_TRANSFER_H
#define VGPU_GUEST_CUDA_TRANSFER_H

#include "guest/cuda/internal.h"

struct vgpu_transfer {
  struct vgpu_driver *driver;
  uint64_t context;
  uint64_t stream;
  bool async; /* in the stream's order; false: the call returns when it is done */
};

/* The region of the program's end of a copy, looked up once for the whole copy. */
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

/*
 * Fills a transfer for the stream's context, or for the current context. `stream` is used only if `async`. A
 * transfer that is not asynchronous waits for the host functions that it must run after. Returns a CUresult.
 */
int vgpu_transfer_begin(struct vgpu_transfer *transfer, struct vgpu_stream *stream, bool async);

/*
 * Each of these functions checks that the device bytes belong to one allocation. `bytes` may be 0. Returns 0
 * or a CUresult.
 */
int vgpu_transfer_to_device(const struct vgpu_transfer *transfer, uint64_t destination, const void *source,
                            size_t bytes);
int vgpu_transfer_from_device(const struct vgpu_transfer *transfer, void *destination, uint64_t source,
                              size_t bytes);
int vgpu_transfer_on_device(const struct vgpu_transfer *transfer, uint64_t destination, uint64_t source,
                            size_t bytes);

/*
 * Call this before an asynchronous copy reads this process's memory. If the memory is pinned and a host
 * function that may write to it has not run, waits for the work before the copy. Of other memory the copy
 * reads the bytes at the time of the call.
 */
int vgpu_transfer_await_functions(const struct vgpu_transfer *transfer,
                                  const struct vgpu_host_memory *source);

/*
 * Call this after a copy to the device was sent. A copy that is not asynchronous is done when this returns,
 * also for streams that do not wait for the default stream. The simulated device copies at once unless it
 * holds a stream; a GPU may read later from the memory to which the host copied.
 */
int vgpu_transfer_done(const struct vgpu_transfer *transfer, const struct vgpu_host_memory *source);

/*
 * Call this after a copy or fill was sent. One that is not asynchronous, into memory that the program can
 * read (pinned, registered, managed), is done when this returns:
 * https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html
 */
int vgpu_transfer_arrive(const struct vgpu_transfer *transfer, uint64_t destination);

/*
 * Call this before each piece is sent to the device: waits for the stream if this thread is far ahead of it,
 * and for room at the host while a stream may wait for a value in memory.
 */
int vgpu_transfer_keep_pace(const struct vgpu_transfer *transfer, uint32_t bytes);

/*
 * Call this after a copy that has waited for its bytes. Earlier reads of its stream into pinned memory are
 * then done, and this delivers them to the program.
 */
int vgpu_transfer_settle(const struct vgpu_transfer *transfer);

/* Waits until all work before the transfer is done and its bytes have arrived in this process. */
int vgpu_transfer_catch_up(const struct vgpu_transfer *transfer);

static inline void *vgpu_host_pointer(uint64_t address) {
  return (void *)(uintptr_t)address;
}

#endif
