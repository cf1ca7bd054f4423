/*
 * Device memory of one session on software devices. An address the guest sees is a place in a made-up
 * address space; what lies behind it is memory of this process, given by the kernel page by page when
 * first written. No address of the guest is ever used as a pointer.
 */
#ifndef VGPU_HOST_SOFTWARE_MEMORY_H
#define VGPU_HOST_SOFTWARE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/session/exchange.h"

struct vgpu_allocation {
  uint64_t address;
  uint64_t size; /* as accounted: rounded up */
  unsigned char *memory;
  unsigned char *written; /* a byte for each, 1 once it was written; NULL: not needed */
  uint64_t context;       /* 0: goes with none */
  uint64_t pool;          /* number of the pool that it counts to; 0: none */
  uint32_t device;
  bool lent;               /* the guest's memory, that this process sees too; not to be freed here */
  bool shared;             /* memory with a file behind it, which other sessions may see */
  struct vgpu_token token; /* that they open it by */
  bool reserved;           /* addresses only; what is mapped there is told by virtual.h */
};

struct vgpu_virtual;

struct vgpu_memory {
  struct vgpu_allocation *array; /* sorted by address */
  size_t count;
  size_t capacity;
  uint64_t hint[32];            /* where to look for room next, for each device */
  struct vgpu_virtual *virtual; /* NULL until something is reserved */
  bool watched;                 /* allocations know what of them was written */
};

/* The bytes that an allocation of `bytes` takes; 0 when it is too large for any device. */
uint64_t vgpu_memory_rounded(uint64_t bytes);

/*
 * `size` from vgpu_memory_rounded; it goes with a context or belongs to a pool (0: neither). The address, or
 * 0 when there is no memory or no room.
 */
uint64_t vgpu_memory_allocate(struct vgpu_memory *memory, uint32_t device, uint64_t context, uint64_t pool,
                              uint64_t size);

/* The same for memory of another session: `descriptor` holds all of it, and stays the caller's. */
uint64_t vgpu_memory_open(struct vgpu_memory *memory, uint32_t device, uint64_t context, uint64_t size,
                          int descriptor);

/*
 * A descriptor of the allocation that holds this address, whose memory becomes that of a file of `*bytes`
 * bytes; from then on both see what the other writes. -1: there is none that can be shared, or no memory.
 */
int vgpu_memory_share(struct vgpu_memory *memory, uint64_t address, struct vgpu_allocation **allocation,
                      uint64_t *bytes);

/*
 * Reserves addresses: at `wanted` if that is free. The caller checks `size` and `alignment` (0: any). The
 * addresses cannot be read or written until memory is mapped there. 0: no room.
 */
uint64_t vgpu_memory_reserve(struct vgpu_memory *memory, uint64_t size, uint64_t alignment, uint64_t wanted);

/* Gives back the reservation of exactly these addresses; false if there is none. */
bool vgpu_memory_unreserve(struct vgpu_memory *memory, uint64_t address, uint64_t size);

/* The reservation that holds all of the range; NULL: none. */
const struct vgpu_allocation *vgpu_memory_reservation(const struct vgpu_memory *memory, uint64_t address,
                                                      uint64_t size);

/*
 * Memory of the guest's at the guest's own address; pages, and where no other memory of the device is or can
 * come to be. False: they are not, or no memory.
 */
bool vgpu_memory_lend(struct vgpu_memory *memory, uint64_t address, uint64_t bytes, unsigned char *at);

/* Ends that; the memory, or NULL: nothing is lent there. */
unsigned char *vgpu_memory_take_back(struct vgpu_memory *memory, uint64_t address);

/*
 * `bytes` of memory that is lent elsewhere take the place of an allocation: both addresses are the same
 * memory then. False: there is no such allocation. *was tells what it was. Ended like a loan.
 */
bool vgpu_memory_alias(struct vgpu_memory *memory, uint64_t address, unsigned char *at, uint64_t bytes,
                       struct vgpu_allocation *was);

/* Frees the allocation at exactly this address; false if there is none. *freed tells what it was. */
bool vgpu_memory_free(struct vgpu_memory *memory, uint64_t address, struct vgpu_allocation *freed);

/* Frees one allocation of a context; false when it has none (any more). */
bool vgpu_memory_free_one_of(struct vgpu_memory *memory, uint64_t context, struct vgpu_allocation *freed);

/* The bytes at [address, address + bytes), or NULL if they are not all of one allocation or accessible. */
unsigned char *vgpu_memory_at(const struct vgpu_memory *memory, uint64_t address, uint64_t bytes);

/* The same for a caller that will write there: where writes are tracked, all of it counts as written. */
unsigned char *vgpu_memory_to_write(const struct vgpu_memory *memory, uint64_t address, uint64_t bytes);

/* The allocation that holds this address, or NULL. */
const struct vgpu_allocation *vgpu_memory_holding(const struct vgpu_memory *memory, uint64_t address);

/* Zeroed memory of this process for what has no address on the device; NULL: there is none. */
unsigned char *vgpu_memory_take(uint64_t size);
void vgpu_memory_give(unsigned char *memory, uint64_t size);

/* Writes zeros; whole pages are given back to the kernel instead. From vgpu_memory_at. */
void vgpu_memory_clear(unsigned char *at, uint64_t bytes);

#endif
