/*
 * Every range of memory that the driver knows: device allocations, whose addresses come from the host, and
 * host memory that the driver allocated or registered. The list is sorted by address and has a lock of its
 * own.
 */
#ifndef VGPU_GUEST_CUDA_REGIONS_H
#define VGPU_GUEST_CUDA_REGIONS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vgpu_region_kind {
  VGPU_REGION_DEVICE = 1,
  VGPU_REGION_PINNED = 2,
  VGPU_REGION_REGISTERED = 3,
  VGPU_REGION_MAPPED = 4,
  VGPU_REGION_GRAPH =
      5, /* device memory of a graph's allocation node; it is mapped when the graph is launched */
  VGPU_REGION_MANAGED = 6 /* shared memory that is device memory as well */
};

struct vgpu_region {
  uint64_t start;
  uint64_t size;
  enum vgpu_region_kind kind;
  uint32_t flags;   /* host memory: the program's flags; mapped: 0 if no device may access it */
  uint64_t context; /* number of the context that made it; 0 if mapped or of a pool */
  int32_t ordinal;
  uint32_t shared_region; /* pinned, managed: number of its shared memory; 0: plain memory of this process */
  bool lent;              /* it is device memory as well, at the same address (shared_region_map) */
  bool in_pieces;    /* the host has its pages in several pieces, and no copy of the host's crosses them */
  int32_t advice[3]; /* managed: set by cuMemAdvise and cuMemPrefetchAsync (managed.c) */
  uint64_t module;   /* number of the module or library that has the variable; 0: allocated */
  uint64_t pool;     /* number of its pool; 0: not from a pool */
  uint64_t id;       /* CU_POINTER_ATTRIBUTE_BUFFER_ID: each number is used once */
  bool opened;       /* another process's memory, opened by a handle (share.c) */
  bool sync_memops;  /* as the program set it; copies are made in order in any case */
};

static inline bool vgpu_region_on_device(const struct vgpu_region *region) {
  return region->kind == VGPU_REGION_DEVICE || region->kind == VGPU_REGION_MAPPED ||
         region->kind == VGPU_REGION_GRAPH || region->kind == VGPU_REGION_MANAGED;
}

struct vgpu_regions {
  pthread_rwlock_t lock;
  struct vgpu_region *array;
  size_t count;
  size_t capacity;
  uint64_t next_id;
};

void vgpu_regions_init(struct vgpu_regions *regions);

enum vgpu_regions_result { VGPU_REGIONS_OK = 0, VGPU_REGIONS_OVERLAP = 1, VGPU_REGIONS_NO_MEMORY = 2 };
enum vgpu_regions_result vgpu_regions_add(struct vgpu_regions *regions, const struct vgpu_region *region);

/* Copies the region that contains `address` to *found. False: there is none. */
bool vgpu_regions_find(struct vgpu_regions *regions, uint64_t address, struct vgpu_region *found);

/*
 * Stores advice for the managed memory that contains [address, address + size). False: it is not managed
 * memory.
 */
bool vgpu_regions_advise(struct vgpu_regions *regions, uint64_t address, uint64_t size, unsigned which,
                         int32_t value);

/*
 * Sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of the device memory that contains `address`. False: there is none.
 */
bool vgpu_regions_set_sync(struct vgpu_regions *regions, uint64_t address, bool sync);

enum vgpu_region_lent { VGPU_NOT_LENT = 0, VGPU_LENT = 1, VGPU_LENT_IN_PIECES = 2 };

/*
 * Marks host memory as device memory too, or as host memory only. False: no region of that kind starts at
 * `start`.
 */
bool vgpu_regions_set_lent(struct vgpu_regions *regions, uint64_t start, enum vgpu_region_kind kind,
                           enum vgpu_region_lent lent);

/* Removes the region of that kind that starts at `start`, and copies it to *removed. False: there is none. */
bool vgpu_regions_remove(struct vgpu_regions *regions, uint64_t start, enum vgpu_region_kind kind,
                         struct vgpu_region *removed);

/*
 * True if all of [address, address + size) is device memory of one allocation, or of adjacent mappings that
 * the device may access.
 */
bool vgpu_regions_is_device(struct vgpu_regions *regions, uint64_t address, uint64_t size);

/* Removes the variables of a module or library that was unloaded. */
void vgpu_regions_drop_module(struct vgpu_regions *regions, uint64_t module);

/* Sets the access of every mapping that begins in [start, start + size). */
void vgpu_regions_set_access(struct vgpu_regions *regions, uint64_t start, uint64_t size, uint32_t access);

/* Returns how many bytes of a pool are in use. */
uint64_t vgpu_regions_pool_bytes(struct vgpu_regions *regions, uint64_t pool);

void vgpu_regions_drop_context(struct vgpu_regions *regions, uint64_t context);

#endif
