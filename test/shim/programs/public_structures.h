/* Structures of graphs and pools as the public API lays them out, our own declarations. */
#ifndef VGPU_TEST_PUBLIC_STRUCTURES_H
#define VGPU_TEST_PUBLIC_STRUCTURES_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t devptr;

struct kernel_params {
  void *function;
  unsigned grid[3], block[3], shared;
  void **parameters, **extra;
  void *kernel, *context;
};
struct fill_params {
  devptr destination;
  size_t pitch;
  unsigned value, element;
  size_t width, height;
  void *context;
};
struct copy_side {
  size_t x, y, z, level;
  unsigned type;
  void *host;
  devptr device;
  void *array, *reserved;
  size_t pitch, height;
};
struct copy_params {
  struct copy_side source, destination;
  size_t width, height, depth;
};
struct operation {
  unsigned type, barrier_flags;
  devptr address;
  uint64_t value;
  unsigned flags, unused;
  uint64_t rest[2];
};
struct operations_params {
  void *context;
  unsigned count;
  struct operation *list;
  unsigned flags;
};
struct pool_properties {
  int type, handle_types, location_type, location;
  void *win32;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};
struct access {
  int location_type, location;
  unsigned flags;
};
struct allocation_params {
  struct pool_properties pool;
  const struct access *accesses;
  size_t access_count;
  size_t bytes;
  devptr address;
};
struct node_params {
  int type, reserved[3];
  union {
    unsigned char bytes[232];
    struct kernel_params kernel;
    struct {
      int flags, reserved;
      void *context;
      struct copy_params copy;
    } copy;
    struct fill_params fill;
    struct {
      void (*call)(void *);
      void *data;
    } function;
    struct {
      void *graph;
      int ownership;
    } child;
    void *event;
    struct allocation_params allocation;
    devptr release;
    struct operations_params operations;
    struct {
      uint64_t handle;
      int type;
      unsigned size;
      void **bodies;
      void *context;
    } condition;
  } of;
  int64_t reserved_too;
};
_Static_assert(sizeof(struct node_params) == 256, "CUgraphNodeParams");

struct edge {
  unsigned char from_port, to_port, type, reserved[5];
};

struct update_info {
  int result;
  void *error_node, *error_from;
};

#endif
