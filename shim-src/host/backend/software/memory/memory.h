/*
 * Device memory of one session on software devices. A device address is a place in an invented address space.
 * The memory behind it is memory of this process; the kernel provides each page when it is first written. An
 * address from the guest is never used as a pointer.
 */
#ifndef VGPU_HOST_SOFTWARE_MEMORY_H
#define VGPU_HOST_SOFTWARE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/session/exchange.h"

struct vgpu_allocation {
  uint64_t address;
  uint64_t size; /* the accounted size, rounded up */
  unsigned char *memory;
  unsigned char *written; /* for each byte 1 once it was written; NULL: not tracked */
  uint64_t context;       /* context that it is freed with; 0: none */
  uint64_t pool;          /* number of its pool; 0: none */
  uint32_t device;
  bool lent;               /* the guest's memory, which is mapped here too and must not be freed */
  bool shared;             /* memory with a file, which other sessions may map */
  struct vgpu_token token; /* the token by which they open it */
  bool reserved;           /* addresses only; virtual.h has their mappings */
};

struct vgpu_virtual;

struct vgpu_memory {
  struct vgpu_allocation *array; /* sorted by address */
  size_t count;
  size_t capacity;
  uint64_t hint[32];            /* for each device, where to look for room next */
  struct vgpu_virtual *virtual; /* NULL until something is reserved */
  bool watched;                 /* allocations track which bytes were written */
};

/* Returns the bytes that an allocation of `bytes` takes; 0: too large for any device. */
uint64_t vgpu_memory_rounded(uint64_t bytes);

/*
 * Allocates `size` bytes (from vgpu_memory_rounded). The memory is freed with the context `context` or
 * belongs to the pool `pool`; 0: neither. Returns the address; 0: no memory or no room.
 */
uint64_t vgpu_memory_allocate(struct vgpu_memory *memory, uint32_t device, uint64_t context, uint64_t pool,
                              uint64_t size);

/*
 * Like vgpu_memory_allocate, for memory of another session. `descriptor` is its file and remains the
 * caller's.
 */
uint64_t vgpu_memory_open(struct vgpu_memory *memory, uint32_t device, uint64_t context, uint64_t size,
                          int descriptor);

/*
 * Moves the memory of the allocation at this address to a file of *bytes bytes and returns a descriptor.
 * Every session that maps the file then sees the same memory. -1: there is no allocation that can be shared,
 * or no memory.
 */
int vgpu_memory_share(struct vgpu_memory *memory, uint64_t address, struct vgpu_allocation **allocation,
                      uint64_t *bytes);

/*
 * Reserves addresses, at `wanted` if they are free, and returns the first. They cannot be read or written
 * until memory is mapped there. The caller has checked `size` and `alignment` (0: any). 0: no room.
 */
uint64_t vgpu_memory_reserve(struct vgpu_memory *memory, uint64_t size, uint64_t alignment, uint64_t wanted);

/* Removes the reservation of exactly these addresses. False: there is none. */
bool vgpu_memory_unreserve(struct vgpu_memory *memory, uint64_t address, uint64_t size);

/* Returns the reservation that contains the whole range; NULL: none. */
const struct vgpu_allocation *vgpu_memory_reservation(const struct vgpu_memory *memory, uint64_t address,
                                                      uint64_t size);

/*
 * Makes memory of the guest, which is at `at` in this process, device memory at the guest's own address. The
 * memory must be whole pages, at addresses that no other device memory has or can get. False: it is not, or
 * there is no memory.
 */
bool vgpu_memory_lend(struct vgpu_memory *memory, uint64_t address, uint64_t bytes, unsigned char *at);

/* Ends the loan that begins at `address` and returns its memory. NULL: no loan begins there. */
unsigned char *vgpu_memory_take_back(struct vgpu_memory *memory, uint64_t address);

/*
 * Replaces the memory of the allocation at `address` with `bytes` at `at`, which are lent at another address,
 * so that both addresses refer to the same memory. It ends like a loan. *was receives the old allocation.
 * False: there is no such allocation.
 */
bool vgpu_memory_alias(struct vgpu_memory *memory, uint64_t address, unsigned char *at, uint64_t bytes,
                       struct vgpu_allocation *was);

/* Frees the allocation at exactly this address and copies it to *freed. False: there is none. */
bool vgpu_memory_free(struct vgpu_memory *memory, uint64_t address, struct vgpu_allocation *freed);

/* Frees one allocation of a context and copies it to *freed. False: the context has none left. */
bool vgpu_memory_free_one_of(struct vgpu_memory *memory, uint64_t context, struct vgpu_allocation *freed);

/*
 * Returns the bytes at [address, address + bytes) in this process. NULL: they are not all in one allocation,
 * or not accessible.
 */
unsigned char *vgpu_memory_at(const struct vgpu_memory *memory, uint64_t address, uint64_t bytes);

/*
 * Like vgpu_memory_at, for a caller that will write: if writes are tracked, all the bytes count as written.
 */
unsigned char *vgpu_memory_to_write(const struct vgpu_memory *memory, uint64_t address, uint64_t bytes);

/* Returns the allocation that contains this address, or NULL. */
const struct vgpu_allocation *vgpu_memory_holding(const struct vgpu_memory *memory, uint64_t address);

/*
 * Returns zeroed memory of this process for an object that has no address on the device; NULL: no memory.
 * vgpu_memory_give frees it.
 */
unsigned char *vgpu_memory_take(uint64_t size);
void vgpu_memory_give(unsigned char *memory, uint64_t size);

/* Writes zeros to memory from vgpu_memory_at. Whole pages are given back to the kernel instead. */
void vgpu_memory_clear(unsigned char *at, uint64_t bytes);

#endif
