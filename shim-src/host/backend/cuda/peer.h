/* Copies between two GPUs of the host. */
#ifndef VGPU_HOST_CUDA_PEER_H
#define VGPU_HOST_CUDA_PEER_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_worker;
struct vgpu_stream;

struct vgpu_cuda_peer_copy {
  uint64_t destination, source, bytes; /* of the session: checked */
  struct vgpu_stream *stream;
};

/*
 * If the ends are memory of different devices, makes the copy with the contexts of both, so that it needs no
 * access of one to the other. False if the caller has to make an ordinary copy: the ends are not memory of
 * two devices with a context each, or the copy is being recorded for a graph.
 */
bool vgpu_cuda_between_devices(struct vgpu_worker *worker, const struct vgpu_cuda_peer_copy *copy,
                               int32_t *result);

#endif
