/*
 * Pinned memory of this process: for reads that a guest will fetch, and for writes to a stream that still has
 * other work. The driver copies from it and to it in the stream's order while this process continues.
 */
#ifndef VGPU_HOST_CUDA_READBACK_H
#define VGPU_HOST_CUDA_READBACK_H

#include "host/backend/dispatch.h"

struct vgpu_box;
struct vgpu_cuda_read;
struct vgpu_stream;

/* Memory with an event, and its limit. Posted reads have their own: no call may take what they need. */
struct vgpu_cuda_buffers {
  struct vgpu_cuda_read *spare;
  uint64_t bytes; /* also of those in use */
};

struct vgpu_cuda_reads {
  struct vgpu_cuda_read *first;
  struct vgpu_cuda_read *writes;  /* copies in progress for which no call waits */
  struct vgpu_cuda_read *waiting; /* copies from the device for which a parked call waits */
  struct vgpu_cuda_read *room;    /* kept for uploads that will arrive; their ticket is the guest's thread */
  struct vgpu_cuda_buffers posted;
  struct vgpu_cuda_buffers others;
};

/*
 * Returns the place from which the driver is to copy a frame's bytes to a stream, so that the call need not
 * wait for the device. If the stream is idle and no gate is closed, or there is no room, it returns `bytes`
 * itself; the driver has then read them when it returns. The caller calls vgpu_cuda_staged() after the copy.
 */
const void *vgpu_cuda_stage(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream,
                            const void *bytes, uint64_t size);
int32_t vgpu_cuda_staged(struct vgpu_worker *worker, struct vgpu_stream *stream, const void *bytes,
                         int32_t result);

/*
 * Ends the reservations that the guest's thread made before this call, unless calls of the thread are queued.
 * Call when any other call is over: the upload is the first, and may have failed before it took its room.
 */
void vgpu_cuda_give_room(struct vgpu_worker *worker);

/*
 * Copies from the box's source to bulk->out after the stream's work, and waits for the copy. The destination
 * has rows of the box's width without gaps. Returns VGPU_WAITS or a CUresult.
 */
int32_t vgpu_cuda_copy_out(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream,
                           const struct vgpu_box *box, struct vgpu_bulk *bulk);

/* Call when the guest's call with this note is over. */
void vgpu_cuda_copy_over(struct vgpu_worker *worker, uint64_t note);

/* Answers with the bytes that the tickets in the bulk name and that are ready. */
int32_t vgpu_cuda_hand_out(struct vgpu_worker *worker, struct vgpu_bulk *bulk);

/* Drops the reads of a context, which still exists. */
void vgpu_cuda_drop_reads(struct vgpu_worker *worker, uint64_t context);

#endif
