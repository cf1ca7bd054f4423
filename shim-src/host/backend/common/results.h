/* Images made for the guest, until it has read them. */
#ifndef VGPU_HOST_RESULTS_H
#define VGPU_HOST_RESULTS_H

#include <stdint.h>

struct vgpu_worker;

/*
 * From malloc(), for image_read. Freed when read, or if there is no room. Counts as code. Returns a CUresult.
 */
int32_t vgpu_results_keep(struct vgpu_worker *worker, unsigned char *bytes, uint64_t size, uint64_t *number);

#endif
