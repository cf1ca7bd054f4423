/* Images made for the guest, until it has read them. */
#ifndef VGPU_HOST_MADE_IMAGES_H
#define VGPU_HOST_MADE_IMAGES_H

#include <stdint.h>

struct vgpu_worker;

/*
 * Keeps an image from malloc() for image_read, and frees it when it is read, or at once if there is no room.
 * The image counts to the session's memory for code. Returns a CUresult; on success *number names the image.
 */
int32_t vgpu_made_images_keep(struct vgpu_worker *worker, unsigned char *bytes, uint64_t size,
                              uint64_t *number);

#endif
