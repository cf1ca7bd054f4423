#include "guest/vm_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/log.h"

#define PCI_DEVICES "/sys/bus/pci/devices"
/* ivshmem's own numbers: docs/specs/ivshmem-spec of QEMU */
#define IVSHMEM_VENDOR 0x1af4u
#define IVSHMEM_DEVICE 0x1110u

#define DEVICES_MAX 8u

static struct {
  bool looked;
  unsigned count;
  char paths[DEVICES_MAX][VGPU_VM_PATH_MAX];
} devices;

static unsigned long number_in(const char *device, const char *name) {
  char path[300], text[32];
  snprintf(path, sizeof path, PCI_DEVICES "/%s/%s", device, name);
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return 0;
  ssize_t got = read(descriptor, text, sizeof text - 1);
  close(descriptor);
  if (got <= 0) return 0;
  text[got] = '\0';
  return strtoul(text, NULL, 16);
}

/*
 * Searches once: a VM has dozens of PCI devices, and reading their files takes longer than the rest of
 * cuInit.
 */
static void look_for_devices(void) {
  if (devices.looked) return;
  devices.looked = true;
  DIR *directory = opendir(PCI_DEVICES);
  if (directory == NULL) return;
  const struct dirent *entry;
  while (devices.count < DEVICES_MAX && (entry = readdir(directory)) != NULL) {
    if (*entry->d_name == '.' || strlen(entry->d_name) > 64 ||
        number_in(entry->d_name, "vendor") != IVSHMEM_VENDOR ||
        number_in(entry->d_name, "device") != IVSHMEM_DEVICE)
      continue;
    /* The third region of the device is the memory. */
    snprintf(devices.paths[devices.count++], VGPU_VM_PATH_MAX, PCI_DEVICES "/%.64s/resource2", entry->d_name);
  }
  closedir(directory);
}

static int open_memory(const char *path) {
  return open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* Opens a file and sets *bytes to its size. Returns a descriptor, or -1. */
static int open_sized(const char *path, uint64_t *bytes) {
  int descriptor = open_memory(path);
  if (descriptor < 0) {
    vgpu_log("the VM's shared memory %s cannot be opened: %m", path);
    return -1;
  }
  /* Not fstat(): a function of glibc only since 2.33. */
  struct statx status;
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_SIZE, &status) == 0 && status.stx_size >= VGPU_VM_STEP) {
    *bytes = status.stx_size;
    return descriptor;
  }
  close(descriptor);
  return -1;
}

static bool has_mark(int descriptor, const struct vgpu_vm_mark *mark) {
  const unsigned char *memory = mmap(NULL, VGPU_VM_STEP, PROT_READ, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    vgpu_log("the VM's shared memory cannot be mapped: %m");
    return false;
  }
  bool marked = memcmp(memory + mark->offset, mark->mark, sizeof mark->mark) == 0;
  munmap((void *)memory, VGPU_VM_STEP);
  return marked;
}

static bool look(const struct vgpu_vm_mark *mark, struct vgpu_vm_memory *memory) {
  const char *named = secure_getenv("VGPU_VM_MEMORY");
  bool by_name = named != NULL && *named != '\0';
  if (by_name && (strcmp(named, "none") == 0 || strlen(named) >= VGPU_VM_PATH_MAX)) return false;
  if (!by_name) look_for_devices();
  for (unsigned i = 0; i < (by_name ? 1 : devices.count); i++) {
    const char *path = by_name ? named : devices.paths[i];
    int descriptor = open_sized(path, &memory->bytes);
    if (descriptor < 0) continue;
    bool right = mark == NULL || has_mark(descriptor, mark);
    close(descriptor);
    if (!right) continue;
    snprintf(memory->path, sizeof memory->path, "%s", path);
    memory->start = VGPU_VM_STEP;
    return true;
  }
  return false;
}

bool vgpu_vm_memory_there(void) {
  struct vgpu_vm_memory memory;
  return look(NULL, &memory);
}

bool vgpu_vm_memory_find(const struct vgpu_vm_mark *mark, struct vgpu_vm_memory *memory) {
  return mark->offset <= VGPU_VM_STEP - sizeof mark->mark && look(mark, memory);
}

/* Returns the lock of a place: a range of offsets behind the end of the memory. */
static struct flock place_lock(uint64_t offset, uint64_t bytes) {
  return (struct flock){.l_type = F_WRLCK,
                        .l_whence = SEEK_SET,
                        .l_start = (off_t)(VGPU_VM_GUEST_LOCKS + offset),
                        .l_len = (off_t)bytes};
}

int vgpu_vm_memory_lock(const struct vgpu_vm_memory *memory, uint64_t bytes, uint64_t from, uint64_t to,
                        uint64_t *offset) {
  if (bytes == 0 || bytes > memory->bytes) return -1;
  bytes = vgpu_vm_steps(bytes);
  int descriptor = open_memory(memory->path);
  if (descriptor < 0) return -1;
  *offset = vgpu_vm_steps(from < VGPU_VM_STEP ? VGPU_VM_STEP : from);
  while (bytes <= memory->bytes && *offset <= memory->bytes - bytes && *offset < to) {
    struct flock held = place_lock(*offset, bytes);
    if (fcntl(descriptor, F_OFD_GETLK, &held) != 0) break;
    if (held.l_type == F_UNLCK) {
      struct flock mine = place_lock(*offset, bytes);
      if (fcntl(descriptor, F_OFD_SETLK, &mine) == 0) return descriptor;
      if (errno != EAGAIN && errno != EACCES) break;
      continue;
    }
    uint64_t end = (uint64_t)held.l_start + (uint64_t)held.l_len - VGPU_VM_GUEST_LOCKS;
    if (held.l_len <= 0 || end <= *offset) break; /* another program holds this lock */
    *offset = vgpu_vm_steps(end);
  }
  close(descriptor);
  return -1;
}
