/*
 * The handling of code that all backends share. Images come from the guest in pieces and are kept for the
 * next session of the same peer. They share one memory limit with the programs and graphs that are made from
 * them.
 */
#ifndef VGPU_HOST_CODE_H
#define VGPU_HOST_CODE_H

#include <stdbool.h>
#include <stdint.h>

#include "image/sha256.h"

struct vgpu_worker;

/*
 * Returns the session's limit of memory for code in bytes: --session-code, but at most its limit of device
 * memory.
 */
uint64_t vgpu_code_limit(const struct vgpu_worker *worker);

/* Takes bytes of the session's limit for code, which vgpu_code_give returns. False: the limit is reached. */
bool vgpu_code_take(struct vgpu_worker *worker, uint64_t bytes);
void vgpu_code_give(struct vgpu_worker *worker, uint64_t bytes);

/*
 * Returns the image, for free(), from an upload or from the cache; NULL: it is missing. The upload ends here,
 * because images are large and should not be copied.
 */
unsigned char *vgpu_code_take_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size);
/* Returns a copy of the image, for free(), and keeps the upload. NULL: it is missing. */
unsigned char *vgpu_code_copy_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size);
/* Ends a finished upload that is no longer needed. */
void vgpu_code_forget_upload(struct vgpu_worker *worker, const struct vgpu_hash *hash);

/* Frees the executable graphs of a context. Call this before the context's handles are removed. */
void vgpu_graph_drop_context(struct vgpu_worker *worker, uint64_t context);

#endif
