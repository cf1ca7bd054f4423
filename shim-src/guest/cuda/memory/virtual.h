#ifndef VGPU_GUEST_CUDA_VIRTUAL_H
#define VGPU_GUEST_CUDA_VIRTUAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct vgpu_reservation;
struct vgpu_physical;
struct vgpu_mapping;

struct vgpu_virtual {
  pthread_mutex_t lock;
  struct vgpu_reservation *reservations;
  struct vgpu_physical *physicals; /* those with a handle that the program holds, or with a mapping */
  struct vgpu_mapping *mappings;   /* sorted by address */
};

struct vgpu_driver;

/* Returns the visible device of a live handle whose memory can be exported; -1: it is not such a handle. */
int32_t vgpu_physical_exportable(struct vgpu_driver *driver, uint64_t handle);
/* Adds memory of another process under the number that the host gave it. False: no memory. */
bool vgpu_physical_adopt(struct vgpu_driver *driver, uint64_t number, uint64_t size, int32_t ordinal);

#endif
