/*
 * Puts other memory under an address range of this process, while its threads go on using the range. The
 * content moves along. A thread that writes to the range meanwhile waits until it is done (userfaultfd), so
 * that no write is lost; reading goes on.
 *
 * The range is whole pages, none of them the calling thread's stack.
 */
#ifndef VGPU_GUEST_IN_PLACE_H
#define VGPU_GUEST_IN_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Private memory becomes the shared memory that `mirror` maps. `before`: NULL, or what the range held when
 * both were the same; then only bytes that differ from it are written to the mirror. NULL on success,
 * otherwise why not, for the log; nothing has changed then.
 */
const char *vgpu_in_place_share(void *range, size_t bytes, void *mirror, const void *before);

/* Shared memory becomes private memory. `copy`: NULL, or where another copy of the content goes. */
const char *vgpu_in_place_unshare(void *range, size_t bytes, void *copy);

#endif
