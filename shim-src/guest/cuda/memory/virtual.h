/* Virtual memory: what the program has reserved, made and mapped. Device addresses come from the host. */
#ifndef VGPU_GUEST_CUDA_VIRTUAL_H
#define VGPU_GUEST_CUDA_VIRTUAL_H

#include <pthread.h>

struct vgpu_reservation;
struct vgpu_physical;
struct vgpu_mapping;

struct vgpu_virtual {
  pthread_mutex_t lock;
  struct vgpu_reservation *reservations;
  struct vgpu_physical *physicals; /* with a handle that the program holds, or mapped somewhere */
  struct vgpu_mapping *mappings;   /* by address */
};

#endif
