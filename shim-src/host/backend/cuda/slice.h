/*
 * Time slices of the host's GPUs, for peers side by side: share= and weight= of hostd.conf. A session that
 * launches takes a turn on its GPU (share.h). The turn ends when all its launches are done, as host functions
 * after them report, and no launch has followed for a moment; or after a slice, if another peer waits. The
 * times of earlier launches limit the number of launches in a slice. If only one peer has sessions, nothing
 * is measured.
 *
 * A session whose launch waits for a turn serves other calls; work of streams is queued until the launch.
 *
 * With MPS the driver runs peers at the same time, and a share is a part of the GPU's processors.
 */
#ifndef VGPU_HOST_CUDA_SLICE_H
#define VGPU_HOST_CUDA_SLICE_H

#include <stdbool.h>
#include <stdint.h>

#include "host/backend/dispatch.h"

struct vgpu_worker;
struct vgpu_stream;

/*
 * Call this before a launch: waits for a turn on the context's device. True: other calls were carried out
 * during the wait.
 */
bool vgpu_cuda_slice_begin(struct vgpu_worker *worker, uint64_t context);

/* Call this immediately before the driver gets the launch. */
void vgpu_cuda_slice_launch(uint64_t context, struct vgpu_stream *stream);

/* Adds host functions after the launches so far: no request has arrived, or a stream ends. */
void vgpu_cuda_slice_close(struct vgpu_worker *worker);

/* Ends the turn at once, because a context ends. */
void vgpu_cuda_slice_end(void);

/* Carries a call out with `carry_out`, or queues it after a launch that waits. */
typedef int32_t vgpu_cuda_carry_out(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row,
                                    const void *body, void *reply, struct vgpu_bulk *bulk);
int32_t vgpu_cuda_slice_run(struct vgpu_worker *worker, vgpu_cuda_carry_out *carry_out,
                            const struct vgpu_dispatch_row *row, const void *body, void *reply,
                            struct vgpu_bulk *bulk);

/* Returns the guest's thread that made the call which is carried out, also for a queued call. */
uint32_t vgpu_cuda_slice_lane(const struct vgpu_worker *worker);

/* Returns the sequence of that call's frame. */
uint64_t vgpu_cuda_slice_sequence(const struct vgpu_worker *worker);

/* True if calls of the guest's thread are queued. */
bool vgpu_cuda_slice_keeps(uint32_t lane);

/* Sets the session's share in MPS, before the driver is opened. */
void vgpu_cuda_slice_of_mps(const struct vgpu_worker *worker);

#endif
