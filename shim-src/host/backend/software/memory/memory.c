#include "host/backend/software/memory/memory.h"
#include "host/backend/software/ptx/program.h"
#include "host/backend/software/memory/virtual.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire/shared.h"

#include "sorted_ranges.h"

/*
 * Device addresses begin where a Linux process on x86-64 or aarch64 has no memory of its own by default, so
 * that host and device pointers never look alike. A device has a window of one TiB.
 */
#define FIRST_ADDRESS 0x200000000000ull
#define WINDOW 0x10000000000ull
#define SMALL_ALIGNMENT 512ull
#define LARGE_ALIGNMENT (2ull << 20)
#define LARGE (1ull << 20)
/* Smaller ones use the heap: the kernel limits the number of mappings. */
#define MAPPED (64ull << 10)
#define HUGE_WORTH (8ull << 20)

uint64_t vgpu_memory_rounded(uint64_t bytes) {
  if (bytes == 0 || bytes > WINDOW) return 0;
  return (bytes + SMALL_ALIGNMENT - 1) / SMALL_ALIGNMENT * SMALL_ALIGNMENT;
}

VGPU_SORTED_RANGES(struct vgpu_memory, struct vgpu_allocation, address)

/* Returns the first gap of `size` bytes in [from, end); 0: none. */
static uint64_t find_gap(const struct vgpu_memory *memory, uint64_t from, uint64_t end, uint64_t size,
                         uint64_t alignment) {
  size_t at = upper_bound(memory, from);
  uint64_t start = from;
  if (at > 0 && memory->array[at - 1].address + memory->array[at - 1].size > start) {
    start = memory->array[at - 1].address + memory->array[at - 1].size;
  }
  for (;; at++) {
    start = (start + alignment - 1) / alignment * alignment;
    if (start >= end || size > end - start) return 0;
    if (at == memory->count || start + size <= memory->array[at].address) return start;
    start = memory->array[at].address + memory->array[at].size;
  }
}

unsigned char *vgpu_memory_take(uint64_t size) {
  if (size < MAPPED) return calloc(1, size);
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  if (size >= HUGE_WORTH) (void)madvise(memory, size, MADV_HUGEPAGE); /* a hint: GPUs have such pages */
  return memory;
}

void vgpu_memory_give(unsigned char *memory, uint64_t size) {
  if (size < MAPPED) free(memory);
  else munmap(memory, size);
}

uint64_t vgpu_memory_allocate(struct vgpu_memory *memory, uint32_t device, uint64_t context, uint64_t pool,
                              uint64_t size) {
  uint64_t window = FIRST_ADDRESS + device * WINDOW;
  uint64_t *hint = &memory->hint[device];
  if (*hint < window) *hint = window;
  uint64_t alignment = size >= LARGE ? LARGE_ALIGNMENT : SMALL_ALIGNMENT;
  uint64_t address = find_gap(memory, *hint, window + WINDOW, size, alignment);
  if (address == 0) address = find_gap(memory, window, window + WINDOW, size, alignment);
  if (address == 0 || !make_room(memory)) return 0;
  unsigned char *bytes = vgpu_memory_take(size);
  if (bytes == NULL) return 0;
  unsigned char *written = memory->watched ? vgpu_memory_take(size) : NULL;
  if (memory->watched && written == NULL) {
    vgpu_memory_give(bytes, size);
    return 0;
  }
  insert(memory, &(struct vgpu_allocation){.address = address,
                                           .size = size,
                                           .memory = bytes,
                                           .written = written,
                                           .context = context,
                                           .pool = pool,
                                           .device = device});
  *hint = address + size;
  return address;
}

static uint64_t whole_pages(uint64_t size) {
  return (size + 4095) / 4096 * 4096;
}

uint64_t vgpu_memory_open(struct vgpu_memory *memory, uint32_t device, uint64_t context, uint64_t size,
                          int descriptor) {
  uint64_t window = FIRST_ADDRESS + device * WINDOW;
  uint64_t address = find_gap(memory, window, window + WINDOW, size, LARGE_ALIGNMENT);
  unsigned char *bytes =
      address == 0 || !make_room(memory) ? NULL : vgpu_shared_map(descriptor, whole_pages(size));
  unsigned char *written = bytes != NULL && memory->watched ? vgpu_memory_take(size) : NULL;
  if (bytes == NULL || (memory->watched && written == NULL)) {
    if (bytes != NULL) munmap(bytes, whole_pages(size));
    return 0;
  }
  if (written != NULL) memset(written, 1, size); /* which bytes were written before is not known */
  insert(memory, &(struct vgpu_allocation){.address = address,
                                           .size = size,
                                           .memory = bytes,
                                           .written = written,
                                           .context = context,
                                           .device = device,
                                           .shared = true});
  return address;
}

int vgpu_memory_share(struct vgpu_memory *memory, uint64_t address, struct vgpu_allocation **allocation,
                      uint64_t *bytes) {
  size_t at = upper_bound(memory, address);
  struct vgpu_allocation *found = at == 0 ? NULL : &memory->array[at - 1];
  if (found == NULL || address - found->address >= found->size || found->reserved || found->lent ||
      found->shared)
    return -1;
  *bytes = whole_pages(found->size);
  int descriptor = vgpu_shared_make("vgpu-device-memory", *bytes);
  unsigned char *now = descriptor < 0 ? NULL : vgpu_shared_map(descriptor, *bytes);
  if (now == NULL) {
    if (descriptor >= 0) close(descriptor);
    return -1;
  }
  memcpy(now, found->memory, found->size);
  vgpu_memory_give(found->memory, found->size);
  found->memory = now;
  found->shared = true;
  *allocation = found;
  return descriptor;
}

static void take_out(struct vgpu_memory *memory, size_t at, struct vgpu_allocation *freed) {
  *freed = memory->array[at];
  if (freed->shared) munmap(freed->memory, whole_pages(freed->size));
  else if (!freed->lent) vgpu_memory_give(freed->memory, freed->size);
  if (freed->written != NULL) vgpu_memory_give(freed->written, freed->size);
  remove_at(memory, at);
}

bool vgpu_memory_free(struct vgpu_memory *memory, uint64_t address, struct vgpu_allocation *freed) {
  size_t at = upper_bound(memory, address);
  if (at == 0 || memory->array[at - 1].address != address || memory->array[at - 1].reserved ||
      memory->array[at - 1].lent) {
    return false;
  }
  take_out(memory, at - 1, freed);
  return true;
}

bool vgpu_memory_alias(struct vgpu_memory *memory, uint64_t address, unsigned char *at, uint64_t bytes,
                       struct vgpu_allocation *was) {
  struct vgpu_allocation freed;
  if (!vgpu_memory_free(memory, address, &freed)) return false;
  *was = freed;
  was->memory = was->written = NULL;
  /* An entry was removed before, so there is room. */
  insert(memory, &(struct vgpu_allocation){.address = freed.address,
                                           .size = bytes,
                                           .memory = at,
                                           .context = freed.context,
                                           .device = freed.device,
                                           .lent = true});
  return true;
}

bool vgpu_memory_free_one_of(struct vgpu_memory *memory, uint64_t context, struct vgpu_allocation *freed) {
  for (size_t at = memory->count; at > 0; at--) {
    if (memory->array[at - 1].context != context || memory->array[at - 1].reserved ||
        memory->array[at - 1].lent) {
      continue;
    }
    take_out(memory, at - 1, freed);
    return true;
  }
  return false;
}

unsigned char *vgpu_memory_at(const struct vgpu_memory *memory, uint64_t address, uint64_t bytes) {
  size_t at = upper_bound(memory, address);
  if (at == 0) return NULL;
  const struct vgpu_allocation *allocation = &memory->array[at - 1];
  uint64_t offset = address - allocation->address;
  if (offset > allocation->size || bytes > allocation->size - offset) return NULL;
  if (allocation->reserved && !vgpu_virtual_accessible(memory->virtual, address, bytes)) return NULL;
  return allocation->memory + offset;
}

unsigned char *vgpu_memory_to_write(const struct vgpu_memory *memory, uint64_t address, uint64_t bytes) {
  unsigned char *at = vgpu_memory_at(memory, address, bytes);
  if (at == NULL || !memory->watched) return at;
  const struct vgpu_allocation *allocation = &memory->array[upper_bound(memory, address) - 1];
  if (allocation->written != NULL) memset(allocation->written + (address - allocation->address), 1, bytes);
  return at;
}

const struct vgpu_allocation *vgpu_memory_holding(const struct vgpu_memory *memory, uint64_t address) {
  size_t at = upper_bound(memory, address);
  if (at == 0) return NULL;
  const struct vgpu_allocation *allocation = &memory->array[at - 1];
  return address - allocation->address < allocation->size ? allocation : NULL;
}

void vgpu_memory_clear(unsigned char *at, uint64_t bytes) {
  const uintptr_t page = 4096;
  uintptr_t start = ((uintptr_t)at + page - 1) / page * page;
  uintptr_t end = ((uintptr_t)at + bytes) / page * page;
  /* REMOVE fails for plain memory (EINVAL); DONTNEED would keep the contents of shared memory. */
  bool given = bytes >= LARGE && start < end && madvise((void *)start, end - start, MADV_REMOVE) == 0;
  if (!given && bytes >= LARGE && start < end && errno == EINVAL) {
    given = madvise((void *)start, end - start, MADV_DONTNEED) == 0;
  }
  if (!given) {
    memset(at, 0, bytes);
    return;
  }
  memset(at, 0, start - (uintptr_t)at);
  memset((void *)end, 0, (uintptr_t)at + bytes - end);
}

/* Reservations have a window of 16 TiB behind the windows of the devices. */
#define RESERVED_FIRST 0x400000000000ull
#define RESERVED_WINDOW 0x100000000000ull

uint64_t vgpu_memory_reserve(struct vgpu_memory *memory, uint64_t size, uint64_t alignment, uint64_t wanted) {
  if (alignment < LARGE_ALIGNMENT) alignment = LARGE_ALIGNMENT;
  uint64_t end = RESERVED_FIRST + RESERVED_WINDOW;
  uint64_t address = 0;
  if (wanted >= RESERVED_FIRST && wanted < end && wanted % alignment == 0 && size <= end - wanted) {
    address = find_gap(memory, wanted, wanted + size, size, alignment);
  }
  if (address == 0) address = find_gap(memory, RESERVED_FIRST, end, size, alignment);
  if (address == 0 || !make_room(memory)) return 0;
  void *bytes = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bytes == MAP_FAILED) return 0;
  insert(memory,
         &(struct vgpu_allocation){.address = address, .size = size, .memory = bytes, .reserved = true});
  return address;
}

const struct vgpu_allocation *vgpu_memory_reservation(const struct vgpu_memory *memory, uint64_t address,
                                                      uint64_t size) {
  size_t at = upper_bound(memory, address);
  if (at == 0) return NULL;
  const struct vgpu_allocation *allocation = &memory->array[at - 1];
  uint64_t offset = address - allocation->address;
  return allocation->reserved && offset <= allocation->size && size <= allocation->size - offset ? allocation
                                                                                                 : NULL;
}

bool vgpu_memory_unreserve(struct vgpu_memory *memory, uint64_t address, uint64_t size) {
  size_t at = upper_bound(memory, address);
  if (at == 0 || memory->array[at - 1].address != address || memory->array[at - 1].size != size ||
      !memory->array[at - 1].reserved) {
    return false;
  }
  munmap(memory->array[at - 1].memory, size);
  remove_at(memory, at - 1);
  return true;
}

/*
 * True for addresses that a program's own memory never has: the windows of devices, of reservations and of
 * kernels.
 */
static bool is_taken(uint64_t address, uint64_t bytes) {
  static const uint64_t windows[][2] = {{FIRST_ADDRESS, RESERVED_FIRST + RESERVED_WINDOW},
                                        {PTX_SHARED_WINDOW, PTX_FUNCTION_WINDOW + PTX_WINDOW_SIZE}};
  for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
    if (address < windows[i][1] && address + bytes > windows[i][0]) return true;
  }
  return false;
}

bool vgpu_memory_lend(struct vgpu_memory *memory, uint64_t address, uint64_t bytes, unsigned char *at) {
  const uint64_t page = 4096, end = 1ull << 47;
  if (address == 0 || address % page != 0 || bytes == 0 || bytes % page != 0 || address >= end ||
      bytes > end - address || is_taken(address, bytes) ||
      find_gap(memory, address, address + bytes, bytes, page) != address || !make_room(memory)) {
    return false;
  }
  insert(memory, &(struct vgpu_allocation){.address = address, .size = bytes, .memory = at, .lent = true});
  return true;
}

unsigned char *vgpu_memory_take_back(struct vgpu_memory *memory, uint64_t address) {
  size_t at = upper_bound(memory, address);
  if (at == 0 || memory->array[at - 1].address != address || !memory->array[at - 1].lent) return NULL;
  struct vgpu_allocation freed;
  take_out(memory, at - 1, &freed);
  return freed.memory;
}
