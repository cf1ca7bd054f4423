/* A device address is a place in an invented address space, never used as a pointer. */
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

/* 0: too large for any device. */
uint64_t vgpu_memory_rounded(uint64_t bytes);

/* `size`: from vgpu_memory_rounded. `context`, `pool`: owner, or 0. Returns the address; 0: no room. */
uint64_t vgpu_memory_allocate(struct vgpu_memory *memory, uint32_t device, uint64_t context, uint64_t pool,
                              uint64_t size);

/* For another session's memory. `descriptor`: its file; stays the caller's. */
uint64_t vgpu_memory_open(struct vgpu_memory *memory, uint32_t device, uint64_t context, uint64_t size,
                          int descriptor);

/* Moves it to a file of `*bytes` bytes that other sessions can map. -1: cannot be shared. */
int vgpu_memory_share(struct vgpu_memory *memory, uint64_t address, struct vgpu_allocation **allocation,
                      uint64_t *bytes);

/* At `wanted` if it is free. The caller checks `size` and `alignment` (0: any). 0: no room. */
uint64_t vgpu_memory_reserve(struct vgpu_memory *memory, uint64_t size, uint64_t alignment, uint64_t wanted);

/* False: there is no reservation of exactly these addresses. */
bool vgpu_memory_unreserve(struct vgpu_memory *memory, uint64_t address, uint64_t size);

/* NULL: no reservation contains the whole range. */
const struct vgpu_allocation *vgpu_memory_reservation(const struct vgpu_memory *memory, uint64_t address,
                                                      uint64_t size);

/* Whole pages, at addresses that no other device memory can have. False: it is not, or no memory. */
bool vgpu_memory_lend(struct vgpu_memory *memory, uint64_t address, uint64_t bytes, unsigned char *at);

/* NULL: no loan begins there. */
unsigned char *vgpu_memory_take_back(struct vgpu_memory *memory, uint64_t address);

/* Its address then refers to memory lent elsewhere, too. Ends like a loan. *was: the old one. */
bool vgpu_memory_alias(struct vgpu_memory *memory, uint64_t address, unsigned char *at, uint64_t bytes,
                       struct vgpu_allocation *was);

/* False: no allocation at exactly this address. */
bool vgpu_memory_free(struct vgpu_memory *memory, uint64_t address, struct vgpu_allocation *freed);

bool vgpu_memory_free_one_of(struct vgpu_memory *memory, uint64_t context, struct vgpu_allocation *freed);

/* NULL: not all in one allocation, or not accessible. */
unsigned char *vgpu_memory_at(const struct vgpu_memory *memory, uint64_t address, uint64_t bytes);

/* If writes are tracked, all the bytes count as written. */
unsigned char *vgpu_memory_to_write(const struct vgpu_memory *memory, uint64_t address, uint64_t bytes);

const struct vgpu_allocation *vgpu_memory_holding(const struct vgpu_memory *memory, uint64_t address);

/* Zeroed, without a device address; NULL: no memory. */
unsigned char *vgpu_memory_take(uint64_t size);
void vgpu_memory_give(unsigned char *memory, uint64_t size);

/* `at`: from vgpu_memory_at. Whole pages go back to the kernel. */
void vgpu_memory_clear(unsigned char *at, uint64_t bytes);

#endif
