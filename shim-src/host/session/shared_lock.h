/*
 * A lock between processes that do not trust each other: one number. A robust mutex contains pointers, which
 * another process could overwrite. A process that never releases the lock delays others by a second; then
 * they continue without it. The data that it protects must therefore be safe to read at any time.
 */
#ifndef VGPU_HOST_SHARED_LOCK_H
#define VGPU_HOST_SHARED_LOCK_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_shared_lock {
  uint32_t word; /* 0: free; else the holder's slot + 1, and a bit if another process waits */
};

/* Takes the lock. False: it was not free within a second. */
bool vgpu_shared_lock_take(struct vgpu_shared_lock *lock, uint32_t slot);
void vgpu_shared_lock_give(struct vgpu_shared_lock *lock);

/*
 * For the daemon, after the end of a slot's worker: releases the lock if that worker held it. True: it did.
 */
bool vgpu_shared_lock_abandon(struct vgpu_shared_lock *lock, uint32_t slot);

#endif
