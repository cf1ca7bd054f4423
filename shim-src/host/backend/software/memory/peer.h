/*
 * Access of one simulated device to the memory of another. All devices of a session are in one process, so
 * only permission is missing: a kernel without it fails, as on a GPU. Copies between devices need no
 * permission.
 */
#ifndef VGPU_HOST_SOFTWARE_PEER_H
#define VGPU_HOST_SOFTWARE_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_worker;
struct vgpu_allocation;

struct vgpu_peer_access {
  uint64_t context; /* its kernels may access the memory of `peer` */
  uint64_t peer;
};

struct vgpu_peers {
  struct vgpu_peer_access *array;
  size_t count, capacity;
  uint64_t context; /* of the kernel that runs */
  uint32_t device;
};

/* True if the kernel that runs may access the allocation. virtual.h checks reserved addresses. */
bool vgpu_peer_reaches(struct vgpu_worker *worker, const struct vgpu_allocation *allocation);

/* Ends all access by a context that ends, and to its memory. */
void vgpu_peers_forget(struct vgpu_worker *worker, uint64_t context);

#endif
