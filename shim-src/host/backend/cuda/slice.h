/*
 * Time slices of the host's GPUs, for peers beside each other: share= and weight= of hostd.conf. A session
 * that launches takes a turn on its GPU (share.h). It lasts until the session's launches are over, which host
 * functions behind them tell, and none has followed for a moment, or until a slice has passed while another
 * peer waits. The number of launches in a slice is limited by the time that earlier ones took. While one peer
 * alone has sessions nothing is measured.
 *
 * A session whose launch waits for a turn serves other calls. Work of streams is kept until then.
 *
 * With MPS the driver runs peers at the same time; a share is a part of the processors of the GPU then.
 */
#ifndef VGPU_HOST_CUDA_SLICE_H
#define VGPU_HOST_CUDA_SLICE_H

#include <stdbool.h>
#include <stdint.h>

#include "host/backend/dispatch.h"

struct vgpu_worker;
struct vgpu_stream;

/*
 * Before a launch: waits for a turn on the context's device. True: other calls of the guest may have been
 * carried out meanwhile.
 */
bool vgpu_cuda_slice_begin(struct vgpu_worker *worker, uint64_t context);

/* Immediately before the driver gets the launch. */
void vgpu_cuda_slice_launch(uint64_t context, struct vgpu_stream *stream);

/* Puts host functions behind the launches so far: no request has arrived, or a stream ends. */
void vgpu_cuda_slice_close(struct vgpu_worker *worker);

/* Ends the turn at once, because a context ends. */
void vgpu_cuda_slice_end(void);

/* Carries a call out with `carry_out`, or keeps it behind a launch that waits. */
typedef int32_t vgpu_cuda_carry_out(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row,
                                    const void *body, void *reply, struct vgpu_bulk *bulk);
int32_t vgpu_cuda_slice_run(struct vgpu_worker *worker, vgpu_cuda_carry_out *carry_out,
                            const struct vgpu_dispatch_row *row, const void *body, void *reply,
                            struct vgpu_bulk *bulk);

/* Before the driver is opened: tells MPS the session's share. */
void vgpu_cuda_slice_of_mps(const struct vgpu_worker *worker);

#endif
