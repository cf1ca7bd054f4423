#include "host/daemon/vm_memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_file(const char *path) {
  return open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
}

struct vgpu_vm_memory vgpu_vm_memory_open(const char *path, char *error, size_t size) {
  const struct vgpu_vm_memory none = {.holder = -1, .lock_probe = -1};
  struct vgpu_vm_memory memory = none;
  struct stat first, second;
  *error = '\0';
  if (*path == '\0') return none;
  memory.holder = open_file(path);
  memory.lock_probe = open_file(path);
  if (memory.holder < 0 || memory.lock_probe < 0) {
    snprintf(error, size, "%s", strerror(errno));
  } else if (fstat(memory.holder, &first) != 0 || fstat(memory.lock_probe, &second) != 0 ||
             !S_ISREG(first.st_mode) || first.st_ino != second.st_ino || first.st_dev != second.st_dev) {
    snprintf(error, size, "not a file");
  } else if (first.st_size < (off_t)VGPU_VM_MEMORY_LEAST) {
    snprintf(error, size,
             "%lld bytes, less than %u MiB; the VM's monitor extends the file when the VM starts",
             (long long)first.st_size, VGPU_VM_MEMORY_LEAST >> 20);
  } else {
    memory.bytes = (uint64_t)first.st_size;
    return memory;
  }
  vgpu_vm_memory_close(&memory);
  return none;
}

void vgpu_vm_memory_close(const struct vgpu_vm_memory *memory) {
  if (memory->holder >= 0) close(memory->holder);
  if (memory->lock_probe >= 0) close(memory->lock_probe);
}
