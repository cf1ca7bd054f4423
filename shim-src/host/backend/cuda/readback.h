/*
 * Pinned memory of this process: for reads that a guest will fetch, and for writes to a stream that has work
 * to do first. The driver copies from and to it in the stream's order while this process goes on.
 */
#ifndef VGPU_HOST_CUDA_READBACK_H
#define VGPU_HOST_CUDA_READBACK_H

#include "host/backend/dispatch.h"

struct vgpu_cuda_read;
struct vgpu_stream;

struct vgpu_cuda_reads {
  struct vgpu_cuda_read *first;
  struct vgpu_cuda_read *writes; /* on their way to the device */
  struct vgpu_cuda_read *spare;  /* their memory and events are used again */
  uint64_t bytes;
};

/*
 * Bytes of a frame that go to a stream: where the driver is to copy them from, without that call waiting for
 * the stream. `bytes` itself where the stream has nothing to do, or where there is no room; the driver then
 * has read it when it returns. vgpu_cuda_staged() follows the copy.
 */
const void *vgpu_cuda_stage(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream,
                            const void *bytes, uint64_t size);
int32_t vgpu_cuda_staged(struct vgpu_worker *worker, struct vgpu_stream *stream, const void *bytes,
                         int32_t result);

/* Answers with what the tickets in the bulk name and is ready, as the description says. */
int32_t vgpu_cuda_hand_out(struct vgpu_worker *worker, struct vgpu_bulk *bulk);

/* Forgets the reads of a context, which still lives. */
void vgpu_cuda_drop_reads(struct vgpu_worker *worker, uint64_t context);

#endif
