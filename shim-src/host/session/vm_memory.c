#include "host/session/vm_memory.h"

#include <errno.h>
#include <fcntl.h>

static uint64_t whole_steps(uint64_t bytes) {
  return (bytes + VGPU_VM_MEMORY_STEP - 1) / VGPU_VM_MEMORY_STEP * VGPU_VM_MEMORY_STEP;
}

static struct flock range_lock(short type, uint64_t offset, uint64_t bytes) {
  return (struct flock){
      .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)bytes};
}

/* The first range from *offset on that nobody holds becomes ours. */
static bool hold(const struct vgpu_vm_memory *memory, uint64_t bytes, uint64_t *offset) {
  while (bytes <= memory->bytes && *offset <= memory->bytes - bytes) {
    struct flock held = range_lock(F_WRLCK, *offset, bytes);
    if (fcntl(memory->looker, F_OFD_GETLK, &held) != 0) return false;
    if (held.l_type != F_UNLCK) {
      /* No range that begins before the end of that one fits: it would reach into it. */
      if (held.l_len <= 0) return false; /* up to the end of the file */
      *offset = whole_steps((uint64_t)held.l_start + (uint64_t)held.l_len);
      continue;
    }
    struct flock mine = range_lock(F_WRLCK, *offset, bytes);
    if (fcntl(memory->holder, F_OFD_SETLK, &mine) == 0) return true;
    if (errno != EAGAIN && errno != EACCES) return false;
  }
  return false;
}

bool vgpu_vm_memory_take(const struct vgpu_vm_memory *memory, uint64_t bytes, uint64_t *offset) {
  if (bytes == 0 || bytes > memory->bytes) return false;
  bytes = whole_steps(bytes);
  *offset = 0;
  if (!hold(memory, bytes, offset)) return false;
  /* Emptied, then with all its pages: a full file system is noticed here, and not by a signal later on. */
  if (fallocate(memory->holder, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)*offset, (off_t)bytes) ==
          0 &&
      fallocate(memory->holder, FALLOC_FL_KEEP_SIZE, (off_t)*offset, (off_t)bytes) == 0) {
    return true;
  }
  vgpu_vm_memory_give(memory, *offset, bytes);
  return false;
}

void vgpu_vm_memory_give(const struct vgpu_vm_memory *memory, uint64_t offset, uint64_t bytes) {
  bytes = whole_steps(bytes);
  /* It is emptied again where it is taken: if this fails, only its pages stay. */
  (void)fallocate(memory->holder, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
  struct flock none = range_lock(F_UNLCK, offset, bytes);
  (void)fcntl(memory->holder, F_OFD_SETLK, &none);
}
