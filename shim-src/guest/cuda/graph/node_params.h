/* The API's structures that describe a node, with their layout in memory. */
#ifndef VGPU_GUEST_CUDA_NODE_PARAMS_H
#define VGPU_GUEST_CUDA_NODE_PARAMS_H

#include "api/structures.h"
#include "guest/cuda/module/code.h"

/* CUgraphNodeType. */
enum vgpu_node_kind {
  VGPU_NODE_KERNEL = 0,
  VGPU_NODE_MEMCPY = 1,
  VGPU_NODE_MEMSET = 2,
  VGPU_NODE_HOST = 3,
  VGPU_NODE_GRAPH = 4,
  VGPU_NODE_EMPTY = 5,
  VGPU_NODE_WAIT = 6,
  VGPU_NODE_RECORD = 7,
  VGPU_NODE_ALLOCATE = 10,
  VGPU_NODE_FREE = 11,
  VGPU_NODE_MEMORY_OPS = 12,
  VGPU_NODE_CONDITIONAL = 13,
  VGPU_NODE_LAST = VGPU_NODE_CONDITIONAL, /* of the kinds that the API has */
  /* Only in the list of an executable graph (graph_condition.c). */
  VGPU_NODE_BODY = 64,
  VGPU_NODE_VALUES = 65,
};

/* CUDA_KERNEL_NODE_PARAMS. Version 1 ends before `kernel`. */
struct vgpu_kernel_params {
  void *function;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared;
  void **parameters;
  void **extra;
  void *kernel;
  struct vgpu_context *context;
};
#define VGPU_KERNEL_PARAMS_V1 56u

/* CUDA_MEMSET_NODE_PARAMS. Version 1 ends before `context`. */
struct vgpu_memset_params {
  uint64_t destination;
  size_t pitch;
  uint32_t value;
  uint32_t element;
  size_t width;
  size_t height;
  struct vgpu_context *context;
};
#define VGPU_MEMSET_PARAMS_V1 40u

/* CUDA_HOST_NODE_PARAMS. Version 1 ends before `sync_mode`. */
struct vgpu_host_params {
  void (*function)(void *data);
  void *data;
  uint32_t sync_mode; /* CUhostTaskSyncMode: how a driver waits for the function; the result is the same */
  struct vgpu_context *context;
};
#define VGPU_HOST_PARAMS_V1 16u

/* CUDA_MEMCPY_NODE_PARAMS */
struct vgpu_copy_node_params {
  int32_t flags;
  int32_t reserved;
  struct vgpu_context *context;
  struct vgpu_box copy;
};

/* CUDA_CHILD_GRAPH_NODE_PARAMS */
struct vgpu_child_params {
  void *graph;
  int32_t ownership;
};

/* CUDA_MEM_ALLOC_NODE_PARAMS, with CUmemPoolProps and CUmemAccessDesc */
struct vgpu_allocation_params {
  int32_t allocation_type;
  int32_t handle_types;
  int32_t location_type;
  int32_t location;
  void *win32_security_attributes;
  size_t max_size;
  uint16_t usage;
  unsigned char reserved[54];
  const struct vgpu_memory_access *accesses;
  size_t access_count;
  size_t bytes;
  uint64_t address; /* filled by the call */
};
struct vgpu_memory_access {
  int32_t location_type;
  int32_t location;
  int32_t flags;
};

/* CUstreamBatchMemOpParams. The flags of a barrier are at an offset that the other operations do not use. */
struct vgpu_memory_operation {
  uint32_t type;
  uint32_t barrier_flags;
  uint64_t address;
  uint64_t value;
  uint32_t flags;
  uint32_t unused;
  uint64_t rest[2];
};

/* CUDA_BATCH_MEM_OP_NODE_PARAMS */
struct vgpu_memory_ops_params {
  struct vgpu_context *context;
  uint32_t count;
  struct vgpu_memory_operation *operations;
  uint32_t flags;
};

/* CUDA_CONDITIONAL_NODE_PARAMS */
struct vgpu_condition_params {
  uint64_t handle;
  int32_t type; /* CUgraphConditionalNodeType */
  uint32_t size;
  struct vgpu_graph **bodies; /* filled by the call */
  struct vgpu_context *context;
};

/* CUgraphNodeParams */
struct vgpu_node_params {
  int32_t type;
  int32_t reserved[3];
  union {
    unsigned char bytes[232];
    struct vgpu_kernel_params kernel;
    struct vgpu_copy_node_params copy;
    struct vgpu_memset_params memset;
    struct vgpu_host_params host;
    struct vgpu_child_params child;
    struct vgpu_event *event;
    struct vgpu_allocation_params allocation;
    uint64_t freed; /* address */
    struct vgpu_memory_ops_params memory_ops;
    struct vgpu_condition_params condition;
  } of;
  int64_t reserved_too;
};

_Static_assert(sizeof(struct vgpu_kernel_params) == 72, "CUDA_KERNEL_NODE_PARAMS");
_Static_assert(sizeof(struct vgpu_memset_params) == 48, "CUDA_MEMSET_NODE_PARAMS");
_Static_assert(sizeof(struct vgpu_host_params) == 32, "CUDA_HOST_NODE_PARAMS");
_Static_assert(sizeof(struct vgpu_copy_node_params) == 216, "CUDA_MEMCPY_NODE_PARAMS");
_Static_assert(sizeof(struct vgpu_allocation_params) == 120, "CUDA_MEM_ALLOC_NODE_PARAMS");
_Static_assert(sizeof(struct vgpu_memory_operation) == 48, "CUstreamBatchMemOpParams");
_Static_assert(sizeof(struct vgpu_memory_ops_params) == 32, "CUDA_BATCH_MEM_OP_NODE_PARAMS");
_Static_assert(sizeof(struct vgpu_condition_params) == 32, "CUDA_CONDITIONAL_NODE_PARAMS");
_Static_assert(sizeof(struct vgpu_node_params) == 256, "CUgraphNodeParams");

#endif
