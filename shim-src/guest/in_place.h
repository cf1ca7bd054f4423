/*
 * Replaces the memory of an address range of this process, and copies its content, while threads go on using
 * the range. A thread that writes to the range meanwhile waits until the replacement is complete
 * (userfaultfd), so that no write is lost; reads do not wait. The range consists of whole pages. The calling
 * thread's stack must not be in it.
 */
#ifndef VGPU_GUEST_IN_PLACE_H
#define VGPU_GUEST_IN_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Replaces private memory by the shared memory that `mirror` maps. `before` is NULL, or the content of the
 * range at a time when both were equal; then only bytes that differ from `before` are written to the mirror.
 * Returns NULL, or the reason for the log; nothing has changed then.
 */
const char *vgpu_in_place_share(void *range, size_t bytes, void *mirror, const void *before);

/*
 * Replaces shared memory by private memory. `copy` is NULL, or memory for another copy of the content.
 * Returns NULL, or the reason for the log; nothing has changed then.
 */
const char *vgpu_in_place_unshare(void *range, size_t bytes, void *copy);

#endif
