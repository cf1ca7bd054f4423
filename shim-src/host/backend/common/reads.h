/* The answer for reads that the host kept (read_later): for each its size, and its bytes. */
#ifndef VGPU_HOST_READS_H
#define VGPU_HOST_READS_H

#include <stdbool.h>
#include <stdint.h>

#include "host/backend/dispatch.h"

#define NOT_READ UINT64_MAX /* the size of a read that is not done yet */

/* Appends a read of `size` bytes at *at. False: there is no room. */
bool vgpu_reads_pack(struct vgpu_bulk *bulk, uint32_t *at, uint64_t size, const void *bytes);

#endif
