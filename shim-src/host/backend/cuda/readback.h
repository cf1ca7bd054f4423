/* Reads that a guest will fetch: copied into pinned memory of this process in the stream's order. */
#ifndef VGPU_HOST_CUDA_READBACK_H
#define VGPU_HOST_CUDA_READBACK_H

#include "host/backend/dispatch.h"

struct vgpu_cuda_read;

struct vgpu_cuda_reads {
  struct vgpu_cuda_read *first;
  struct vgpu_cuda_read *spare; /* their memory and events are used again */
  uint64_t bytes;
};

/* Answers with what the tickets in the bulk name and is ready, as the description says. */
int32_t vgpu_cuda_hand_out(struct vgpu_worker *worker, struct vgpu_bulk *bulk);

/* Forgets the reads of a context, which still lives. */
void vgpu_cuda_drop_reads(struct vgpu_worker *worker, uint64_t context);

#endif
