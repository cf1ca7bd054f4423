/*
 * A lock between processes that do not trust each other: one number, and no pointer that another process
 * could have written, as those of a robust mutex are. Who holds it by force only keeps others waiting for a
 * second; they go on without it then, so what it guards must be safe to read at any time.
 */
#ifndef VGPU_HOST_SHARED_LOCK_H
#define VGPU_HOST_SHARED_LOCK_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_shared_lock {
  uint32_t word; /* 0: free; else the holder's slot + 1, and whether somebody waits */
};

/* False: it could not be had within a second. */
bool vgpu_shared_lock_take(struct vgpu_shared_lock *lock, uint32_t slot);
void vgpu_shared_lock_give(struct vgpu_shared_lock *lock);

/* By the daemon, when the worker of a slot has ended: true if it held the lock, which is free now. */
bool vgpu_shared_lock_abandon(struct vgpu_shared_lock *lock, uint32_t slot);

#endif
