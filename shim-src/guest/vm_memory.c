#include "guest/vm_memory.h"

#include <dirent.h>
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

/* The descriptor if it is what is looked for; it is closed otherwise. */
typedef bool (*wanted)(void *context, int descriptor, uint64_t bytes);

static bool try_file(const char *path, wanted fits, void *context) {
  int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    vgpu_log("the VM's shared memory %s cannot be opened: %m", path);
    return false;
  }
  /* Not fstat(): glibc has it as a function since 2.33 only. */
  struct statx status;
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_SIZE, &status) == 0 &&
      fits(context, descriptor, status.stx_size))
    return true;
  close(descriptor);
  return false;
}

/* A file of sysfs with one number, such as "0x1af4". */
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

/* The first that fits. */
static bool look(wanted fits, void *context) {
  const char *named = secure_getenv("VGPU_VM_MEMORY");
  if (named != NULL && *named != '\0') return strcmp(named, "none") != 0 && try_file(named, fits, context);
  DIR *devices = opendir(PCI_DEVICES);
  if (devices == NULL) return false;
  bool found = false;
  const struct dirent *entry;
  while (!found && (entry = readdir(devices)) != NULL) {
    if (*entry->d_name == '.' || strlen(entry->d_name) > 64 ||
        number_in(entry->d_name, "vendor") != IVSHMEM_VENDOR ||
        number_in(entry->d_name, "device") != IVSHMEM_DEVICE)
      continue;
    char path[160];
    /* Its third region is the memory. */
    snprintf(path, sizeof path, PCI_DEVICES "/%.64s/resource2", entry->d_name);
    found = try_file(path, fits, context);
  }
  closedir(devices);
  return found;
}

static bool any(void *context, int descriptor, uint64_t bytes) {
  (void)context;
  if (bytes > 0) close(descriptor);
  return bytes > 0;
}

bool vgpu_vm_memory_there(void) {
  return look(any, NULL);
}

struct search {
  const struct vgpu_vm_rings *rings;
  uint64_t rings_bytes;
  int descriptor;
  uint64_t bytes;
};

static bool has_mark(void *context, int descriptor, uint64_t bytes) {
  struct search *search = context;
  const struct vgpu_vm_rings *rings = search->rings;
  if (search->rings_bytes > bytes || rings->offset > bytes - search->rings_bytes) return false;
  const size_t size = VGPU_VM_MARK_OFFSET + VGPU_VM_MARK_BYTES;
  unsigned char *memory = mmap(NULL, size, PROT_READ, MAP_SHARED, descriptor, (off_t)rings->offset);
  if (memory == MAP_FAILED) return false;
  bool marked = memcmp(memory + VGPU_VM_MARK_OFFSET, rings->mark, VGPU_VM_MARK_BYTES) == 0;
  munmap(memory, size);
  if (!marked) return false;
  search->descriptor = descriptor;
  search->bytes = bytes;
  return true;
}

int vgpu_vm_memory_find(const struct vgpu_vm_rings *rings, uint64_t rings_bytes, uint64_t *bytes) {
  struct search search = {.rings = rings, .rings_bytes = rings_bytes, .descriptor = -1};
  if (!look(has_mark, &search)) return -1;
  *bytes = search.bytes;
  return search.descriptor;
}
