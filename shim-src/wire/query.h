/* NVML's getters that the host answers. Both ends use shapes generated from shim-src/api/nvml.api. */
#ifndef VGPU_WIRE_QUERY_H
#define VGPU_WIRE_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vgpu_query_kind {
  VGPU_QUERY_VALUE,     /* by value */
  VGPU_QUERY_DEVICE,    /* another device, by its number in the session */
  VGPU_QUERY_OUT,       /* `size` bytes, written */
  VGPU_QUERY_TEXT,      /* bytes that are written; the next parameter is their number */
  VGPU_QUERY_COUNT,     /* the number of elements of ITEMS, read and written */
  VGPU_QUERY_ITEMS,     /* an array with elements of `size` bytes, written. It may be NULL */
  VGPU_QUERY_FIELDS,    /* the same, read and written; the parameter before is the number of elements */
  VGPU_QUERY_STRUCTURE, /* read and written; begins with one of `versions` */
};

#define VGPU_QUERY_PARAMETERS 6u
struct vgpu_query_parameter {
  uint32_t kind;
  uint32_t size;
  uint32_t versions[3]; /* 0 behind the last: size in the lower 24 bits, number above */
};
struct vgpu_query {
  uint32_t number;
  const char *symbol;
  uint32_t count; /* of the parameters behind the device */
  struct vgpu_query_parameter parameters[VGPU_QUERY_PARAMETERS];
};
extern const struct vgpu_query vgpu_queries[];
extern const uint32_t vgpu_query_count;

/* VGPU_OP_DEVICE_QUERY. The bulk has FIELDS and STRUCTURE, each at a multiple of 8. */
struct vgpu_query_request {
  uint32_t number;
  uint32_t device;
  /* VALUE, DEVICE: itself. TEXT: unused. COUNT: the capacity. STRUCTURE: its version. ITEMS: 0 is NULL. */
  uint64_t values[VGPU_QUERY_PARAMETERS];
};
_Static_assert(sizeof(struct vgpu_query_request) == 56, "query");

/* The bulk has all that the call writes, each at a multiple of 8. */
struct vgpu_query_reply {
  int32_t result; /* nvmlReturn_t */
  uint32_t reserved;
};

/* Bytes that one call reads and writes. A call with more is refused; a larger capacity is reduced. */
#define VGPU_QUERY_BYTES 65536u

/* Finds a query by its number and sets *index, unless `index` is NULL. Returns NULL if there is none. */
const struct vgpu_query *vgpu_query_find(uint32_t number, uint32_t *index);

/*
 * Gives the bytes of each parameter; 0 for one that is passed by value. False: a version that no shape has,
 * or more than VGPU_QUERY_BYTES in all.
 */
bool vgpu_query_sizes(const struct vgpu_query *query, const struct vgpu_query_request *request,
                      uint32_t sizes[VGPU_QUERY_PARAMETERS]);

static inline bool vgpu_query_reads(uint32_t kind) {
  return kind == VGPU_QUERY_FIELDS || kind == VGPU_QUERY_STRUCTURE;
}
static inline uint32_t vgpu_query_step(uint32_t bytes) {
  return (bytes + 7) & ~7u;
}
bool vgpu_query_carries(const struct vgpu_query_parameter *parameter, uint32_t version);

/* Calls a function of NVML with the values of a query: numbers, handles and addresses. Only for the host. */
typedef int (*vgpu_query_call)(void (*function)(void), void *device, const uint64_t *values);
extern const vgpu_query_call vgpu_query_calls[];

#endif
