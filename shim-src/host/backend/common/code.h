/* Kept for the peer's next session. One memory limit for images, programs and graphs. */
#ifndef VGPU_HOST_CODE_H
#define VGPU_HOST_CODE_H

#include <stdbool.h>
#include <stdint.h>

#include "image/sha256.h"

struct vgpu_worker;

/* --session-code, but at most the limit of device memory. */
uint64_t vgpu_code_limit(const struct vgpu_worker *worker);

bool vgpu_code_take(struct vgpu_worker *worker, uint64_t bytes);
void vgpu_code_give(struct vgpu_worker *worker, uint64_t bytes);

/* From an upload (which ends: images are large) or the cache, for free(); NULL: missing. */
unsigned char *vgpu_code_take_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size);
/* Keeps the upload. The result is for free(). */
unsigned char *vgpu_code_copy_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size);
void vgpu_code_forget_upload(struct vgpu_worker *worker, const struct vgpu_hash *hash);

/* Call before the context's handles are removed. */
void vgpu_graph_drop_context(struct vgpu_worker *worker, uint64_t context);

#endif
