/*
 * Copies plain memory through a buffer of this process that the device reads and writes itself: while the
 * device uses one half, this thread copies the other. Not used if the device is the host's processor, because
 * that would only copy once more.
 */
#ifndef VGPU_GUEST_CUDA_STAGING_H
#define VGPU_GUEST_CUDA_STAGING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_driver;
struct vgpu_transfer;

struct vgpu_staging {
  pthread_mutex_t lock;  /* held during a copy: another thread copies without the buffer meanwhile */
  unsigned char *memory; /* NULL: not made yet */
  uint64_t context;      /* in which it was made */
  uint32_t shared_region;
  bool refused; /* the host makes none */
};

void vgpu_staging_init(struct vgpu_staging *staging);

/*
 * Copy `bytes` and return when they have arrived. False: the buffer cannot be used for this copy, and nothing
 * was done. *result: CUresult.
 */
bool vgpu_staging_read(const struct vgpu_transfer *transfer, void *destination, uint64_t source, size_t bytes,
                       int *result);
bool vgpu_staging_write(const struct vgpu_transfer *transfer, uint64_t destination, const void *source,
                        size_t bytes, int *result);

/* Frees the buffer if it was made in this context, which has ended. */
void vgpu_staging_context_ended(struct vgpu_driver *driver, uint64_t context);

#endif
