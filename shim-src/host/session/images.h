/*
 * A cache of images that sessions have sent, in memory that the daemon shares with its workers, so that the
 * next session of the same peer need not send them again. A peer gets only its own images: a peer that knows
 * the hash of another peer's image does not get it, and does not learn that it exists. The size is limited,
 * and the oldest images are removed first. An image is copied out and its hash computed again before it is
 * used, because a compromised worker can write anything here.
 */
#ifndef VGPU_HOST_IMAGES_H
#define VGPU_HOST_IMAGES_H

#include "host/session/accounts.h"
#include "image/sha256.h"

struct vgpu_images;

/*
 * For the daemon: makes the cache. NULL with errno; else workers need *descriptor. `capacity` is address
 * space; memory is used as images arrive.
 */
struct vgpu_images *vgpu_images_make(uint64_t capacity, int *descriptor);

/* For a worker: maps the cache. NULL: no memory. */
struct vgpu_images *vgpu_images_map(int descriptor, uint64_t capacity);

/* For the daemon: called when the worker of a slot has ended. */
void vgpu_images_end(struct vgpu_images *images, uint32_t slot);

/* Returns a copy for free(). NULL: the image is not, or no longer, in the cache. `images` may be NULL. */
unsigned char *vgpu_images_get(struct vgpu_images *images, uint32_t slot, const struct vgpu_peer *peer,
                               const struct vgpu_hash *hash, uint64_t size);
void vgpu_images_put(struct vgpu_images *images, uint32_t slot, const struct vgpu_peer *peer,
                     const struct vgpu_hash *hash, const void *bytes, uint64_t size);

#endif
