/* Virtual memory: what the program has reserved, made and mapped. Device addresses come from the host. */
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
  struct vgpu_physical *physicals; /* with a handle that the program holds, or mapped somewhere */
  struct vgpu_mapping *mappings;   /* by address */
};

struct vgpu_driver;

/* A live handle of memory that was made to be exported: its visible device; -1: it is none. */
int32_t vgpu_physical_exportable(struct vgpu_driver *driver, uint64_t handle);
/* Memory of another process, which the host knows under this number now. False: no memory. */
bool vgpu_physical_adopt(struct vgpu_driver *driver, uint64_t number, uint64_t size, int32_t ordinal);

#endif
