/*
 * Replaces the memory of a range of this process while its threads use the range. A thread that writes to the
 * range waits until the replacement is complete (userfaultfd); reads do not wait. The range consists of whole
 * pages, without the calling thread's stack.
 */
#ifndef VGPU_GUEST_IN_PLACE_H
#define VGPU_GUEST_IN_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Replaces private memory by the shared memory that `mirror` maps. `before`: NULL, or the content when both
 * were equal; only bytes that differ from it are copied. Returns NULL, or the reason why nothing has changed.
 */
const char *vgpu_in_place_share(void *range, size_t bytes, void *mirror, const void *before);

/* Replaces shared memory by private memory. `copy`: NULL, or memory for another copy. Same result. */
const char *vgpu_in_place_unshare(void *range, size_t bytes, void *copy);

#endif
