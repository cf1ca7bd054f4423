#include "host/session/vm_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "host/session/accounts.h"

_Static_assert(VGPU_SESSIONS_MAX *VGPU_VM_MARK_BYTES <= VGPU_VM_STEP, "a mark for each session");

static struct flock range_lock(short type, uint64_t offset, uint64_t bytes) {
  return (struct flock){
      .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)bytes};
}

bool vgpu_vm_memory_mark(const struct vgpu_vm_memory *memory, uint32_t slot, struct vgpu_vm_mark *mark) {
  if (memory->bytes < VGPU_VM_STEP || slot >= VGPU_SESSIONS_MAX) return false;
  mark->offset = (uint64_t)slot * VGPU_VM_MARK_BYTES;
  if (getrandom(mark->mark, sizeof mark->mark, 0) != (ssize_t)sizeof mark->mark ||
      fallocate(memory->holder, FALLOC_FL_KEEP_SIZE, 0, VGPU_VM_STEP) != 0)
    return false;
  unsigned char *marks = mmap(NULL, VGPU_VM_STEP, PROT_READ | PROT_WRITE, MAP_SHARED, memory->holder, 0);
  if (marks == MAP_FAILED) return false;
  memcpy(marks + mark->offset, mark->mark, sizeof mark->mark);
  munmap(marks, VGPU_VM_STEP);
  return true;
}

static bool sound(const struct vgpu_vm_memory *memory, const struct vgpu_vm_place *place) {
  if (place->bytes == 0 || place->bytes > memory->bytes) return false;
  uint64_t bytes = vgpu_vm_steps(place->bytes);
  return place->offset >= VGPU_VM_STEP && place->offset % VGPU_VM_STEP == 0 && bytes <= memory->bytes &&
         place->offset <= memory->bytes - bytes;
}

/*
 * Locks a part of the memory. False: another session has it; *next is the end of that lock, or 0. Locks
 * through `lock_probe` conflict with the worker's own, so that a guest cannot have two regions in one place.
 */
static bool hold(const struct vgpu_vm_memory *memory, uint64_t offset, uint64_t bytes, uint64_t *next) {
  for (;;) {
    struct flock held = range_lock(F_WRLCK, offset, bytes);
    if (fcntl(memory->lock_probe, F_OFD_GETLK, &held) != 0) return false;
    if (held.l_type != F_UNLCK) {
      if (held.l_len > 0) *next = vgpu_vm_steps((uint64_t)held.l_start + (uint64_t)held.l_len);
      return false;
    }
    struct flock mine = range_lock(F_WRLCK, offset, bytes);
    if (fcntl(memory->holder, F_OFD_SETLK, &mine) == 0) return true;
    if (errno != EAGAIN && errno != EACCES) return false;
  }
}

bool vgpu_vm_memory_take(const struct vgpu_vm_memory *memory, const struct vgpu_vm_place *place,
                         uint64_t *next) {
  *next = 0;
  if (!sound(memory, place)) return false;
  const off_t offset = (off_t)place->offset, bytes = (off_t)vgpu_vm_steps(place->bytes);
  if (!hold(memory, place->offset, (uint64_t)bytes, next)) return false;
  /* Frees the pages, then allocates them all: a full file system is an error here and not a SIGBUS later. */
  if (fallocate(memory->holder, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) == 0 &&
      fallocate(memory->holder, FALLOC_FL_KEEP_SIZE, offset, bytes) == 0) {
    return true;
  }
  vgpu_vm_memory_give(memory, place);
  return false;
}

void vgpu_vm_memory_give(const struct vgpu_vm_memory *memory, const struct vgpu_vm_place *place) {
  const uint64_t bytes = vgpu_vm_steps(place->bytes);
  /* If this fails, only pages are wasted: vgpu_vm_memory_take() clears them. */
  (void)fallocate(memory->holder, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)place->offset,
                  (off_t)bytes);
  struct flock none = range_lock(F_UNLCK, place->offset, bytes);
  (void)fcntl(memory->holder, F_OFD_SETLK, &none);
}
