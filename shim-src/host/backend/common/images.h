/*
 * Images that sessions have sent, in memory that the daemon shares with its workers: the next session of the
 * same peer need not send them again. A peer gets none but its own: a peer that knows the hash of another
 * one's image does not get the image, nor learns that it is there. Of bounded size; the oldest go first. What
 * is found here is copied out and its hash made again, so that no session can slip another one code: a worker
 * that was taken over could write anything here.
 */
#ifndef VGPU_HOST_IMAGES_H
#define VGPU_HOST_IMAGES_H

#include "host/session/accounts.h"
#include "image/sha256.h"

struct vgpu_images;

/*
 * By the daemon: NULL with errno, else *descriptor is for workers. `capacity` bytes of address space; memory
 * is taken as images come.
 */
struct vgpu_images *vgpu_images_make(uint64_t capacity, int *descriptor);

/* By a worker; NULL: no room. */
struct vgpu_images *vgpu_images_map(int descriptor, uint64_t capacity);

/* By the daemon, when the worker of a slot has ended. */
void vgpu_images_end(struct vgpu_images *images, uint32_t slot);

/* A copy for free(), or NULL: not there (any more). NULL is allowed for `images`. */
unsigned char *vgpu_images_get(struct vgpu_images *images, uint32_t slot, const struct vgpu_peer *peer,
                               const struct vgpu_hash *hash, uint64_t size);
void vgpu_images_put(struct vgpu_images *images, uint32_t slot, const struct vgpu_peer *peer,
                     const struct vgpu_hash *hash, const void *bytes, uint64_t size);

#endif
