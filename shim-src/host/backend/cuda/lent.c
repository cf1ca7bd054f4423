/*
 * Memory that the guest shares and that the device reads and writes itself. A program uses one pointer for
 * both, so the memory needs the guest's address in this process, too: with unified addressing the device
 * reaches registered memory at the address at which it was registered (CUDA driver API, "Unified
 * Addressing"). The driver maps gigabytes wherever the kernel puts them, so the part of the address space in
 * which programs have their memory is kept free. Guests that share no memory need that, too: if the device
 * allocated at an address of the program's own memory, the library could not tell them apart.
 */
#include "host/backend/cuda/lent.h"

#include <errno.h>
#include <sys/mman.h>

#include "host/backend/cuda/session.h"
#include "host/log.h"

#define PAGE 4096u
#define PORTABLE_AND_MAPPED 3u /* CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_DEVICEMAP */
#define READ_ONLY 8u           /* CU_MEMHOSTREGISTER_READ_ONLY */

#define MOST_PARTS 128u

/* Parts of this process's address space that nothing else is mapped to, in ascending order. */
static struct {
  struct {
    uintptr_t start, end;
  } parts[MOST_PARTS];
  size_t count;
} kept;

#ifdef __x86_64__
/*
 * The kernel places mappings downwards from a random page of the last TiB below the stack, and leaves at
 * least 128 MiB for the stack (arch/x86/mm/mmap.c: arch_mmap_rnd, mmap_base). One TiB more is for programs
 * that map much.
 */
#ifdef __SANITIZE_THREAD__ /* TSan maps no memory of the program below (tsan_platform.h, kHiAppMemBeg) */
#define SPACE_START 0x7e8000000000u
#else
#define SPACE_START 0x7e0000000000u
#endif
#define STACK_ROOM ((uintptr_t)128 << 20)
#define SMALLEST ((uintptr_t)64 << 10)

/* If something is mapped there already, the rest is kept piece by piece. */
static void keep(uintptr_t start, uintptr_t end) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  if (start >= end || kept.count == MOST_PARTS) return;
  if (mmap((void *)start, end - start, PROT_NONE, flags, -1, 0) != MAP_FAILED) {
    if (kept.count > 0 && kept.parts[kept.count - 1].end == start) kept.parts[kept.count - 1].end = end;
    else {
      kept.parts[kept.count].start = start;
      kept.parts[kept.count++].end = end;
    }
    return;
  }
  if (errno != EEXIST) return;
  const uintptr_t middle = start + (end - start) / 2 / SMALLEST * SMALLEST;
  if (middle == start) return;
  keep(start, middle);
  keep(middle, end);
}

void vgpu_cuda_keep_addresses(void) {
  const uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
  keep(SPACE_START, (stack - STACK_ROOM) / SMALLEST * SMALLEST);
}
#else
void vgpu_cuda_keep_addresses(void) {
  /* Memory is mapped at its guest's address where that is free. */
}
#endif

static bool is_kept(uintptr_t start, uintptr_t end) {
  for (size_t i = 0; i < kept.count; i++)
    if (start >= kept.parts[i].start && end <= kept.parts[i].end) return true;
  return false;
}

/* Another region of this session has some of these bytes. */
static bool is_taken(const struct vgpu_shared_regions *regions, uintptr_t start, uintptr_t end) {
  for (uint32_t i = 0; i < regions->begun; i++) {
    const uintptr_t memory = (uintptr_t)regions->array[i].memory;
    if (memory != 0 && memory < end && start < memory + regions->array[i].bytes) return true;
  }
  return false;
}

/* Moves the region's mapping to the guest's address. NULL, or why that is not possible. */
static const char *move(struct vgpu_worker *worker, struct vgpu_shared_region *region, uintptr_t to) {
  const uintptr_t end = to + region->bytes;
  const bool in_kept_space = is_kept(to, end);
  if (in_kept_space && is_taken(&worker->shared_regions, to, end))
    return "other shared memory of the session is there";
  if (!in_kept_space) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    const void *there = mmap((void *)to, region->bytes, PROT_NONE, flags, -1, 0);
    if (there == MAP_FAILED) return "the worker has memory of its own at this address";
  }
  const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
  if (mremap(region->memory, region->bytes, region->bytes, flags, (void *)to) == MAP_FAILED) {
    if (!in_kept_space) munmap((void *)to, region->bytes);
    return "the kernel does not move the mapping";
  }
  region->memory = (unsigned char *)to;
  region->in_kept_space = in_kept_space;
  return NULL;
}

static int32_t lend(struct vgpu_worker *worker, uint64_t context, uint32_t flags,
                    struct vgpu_shared_region *region) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  uint64_t address = 0;
  const struct vgpu_range range = {
      .address = (uintptr_t)region->memory, .size = region->bytes, .kind = VGPU_RANGE_LENT};
  int32_t result = VGPU_DRIVER(&cuda->api, cuMemHostRegister_v2, region->memory, region->bytes,
                               PORTABLE_AND_MAPPED | flags);
  if (result != CUDA_SUCCESS) return result;
  result = VGPU_DRIVER(&cuda->api, cuMemHostGetDevicePointer_v2, &address, region->memory, 0);
  if (result == CUDA_SUCCESS && address != range.address) result = CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS && !vgpu_ranges_add(&cuda->ranges, &range)) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) region->pinned = context;
  else VGPU_DRIVER(&cuda->api, cuMemHostUnregister, region->memory);
  return result;
}

int32_t vgpu_cuda_shared_region_map(struct vgpu_worker *worker,
                                    const struct vgpu_send_shared_region_map *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t end = 1ull << 47;
  struct vgpu_shared_region *region = vgpu_shared_regions_find(&worker->shared_regions, send->shared_region);
  if ((send->flags & ~READ_ONLY) != 0 || region == NULL || region->mapped || region->pinned != 0 ||
      region->unpinnable || vgpu_cuda_is_ending(worker, region->memory) || region->bytes != send->bytes ||
      send->bytes % PAGE != 0 || send->address == 0 || send->address % PAGE != 0 || send->address >= end ||
      send->bytes > end - send->address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (cuda->ranges.count + worker->handles.count >= worker->limits->session_handles)
    return CUDA_ERROR_OUT_OF_MEMORY;
  /* The guest may have freed memory at this address that the driver has not released yet. */
  result = vgpu_cuda_await_ending_of(worker, NULL, send->address, send->bytes);
  if (result != CUDA_SUCCESS) return result;
  vgpu_cuda_collect_unpinned(worker);
  const char *why = move(worker, region, (uintptr_t)send->address);
  if (why != NULL) {
    vgpu_host_log_limited("lent", worker->session,
                          "memory at %#llx, %llu bytes, has no address on the device: %s",
                          (unsigned long long)send->address, (unsigned long long)send->bytes, why);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  result = lend(worker, send->context, send->flags, region);
  if (result == CUDA_SUCCESS) region->mapped = true;
  else
    vgpu_host_log_limited("lent", worker->session,
                          "memory at %#llx, %llu bytes, has no address on the device: the driver answers %d",
                          (unsigned long long)send->address, (unsigned long long)send->bytes, result);
  return result;
}

void vgpu_cuda_end_lent(struct vgpu_worker *worker, struct vgpu_shared_region *region) {
  struct vgpu_range removed;
  (void)vgpu_ranges_remove(&cuda_of(worker)->ranges, (uintptr_t)region->memory, VGPU_RANGE_LENT, &removed);
  vgpu_cuda_end_pin(worker, region);
}

int32_t vgpu_cuda_shared_region_unmap(struct vgpu_worker *worker,
                                      const struct vgpu_send_shared_region_unmap *send) {
  for (uint32_t i = 0; i < worker->shared_regions.begun; i++) {
    struct vgpu_shared_region *region = &worker->shared_regions.array[i];
    if (!region->mapped || (uintptr_t)region->memory != send->address) continue;
    vgpu_cuda_end_lent(worker, region);
    region->mapped = false;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}
