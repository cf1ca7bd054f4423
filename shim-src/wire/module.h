#ifndef VGPU_WIRE_MODULE_H
#define VGPU_WIRE_MODULE_H

#include <stdint.h>

/* CUfunction_attribute 0..15 */
#define VGPU_FUNCTION_ATTRIBUTES 16u
enum {
  VGPU_FUNCTION_MAX_THREADS = 0,
  VGPU_FUNCTION_SHARED = 1,
  VGPU_FUNCTION_CONSTANT = 2,
  VGPU_FUNCTION_LOCAL = 3,
  VGPU_FUNCTION_REGISTERS = 4,
  VGPU_FUNCTION_PTX_VERSION = 5,
  VGPU_FUNCTION_BINARY_VERSION = 6,
  VGPU_FUNCTION_CACHE_CA = 7,
  VGPU_FUNCTION_MAX_DYNAMIC = 8,
  VGPU_FUNCTION_CARVEOUT = 9,
  VGPU_FUNCTION_CLUSTER_MUST = 10,
  VGPU_FUNCTION_CLUSTER_WIDTH = 11,
  VGPU_FUNCTION_CLUSTER_HEIGHT = 12,
  VGPU_FUNCTION_CLUSTER_DEPTH = 13,
  VGPU_FUNCTION_NON_PORTABLE = 14,
  VGPU_FUNCTION_SCHEDULING = 15,
};
#define VGPU_PARAMETERS_MAX 4096u       /* of one function */
#define VGPU_PARAMETER_BYTES_MAX 32768u /* 32764 since CUDA 12.1; 4096 before */
/*
 * As the size of a launch's parameters: the guest has refused this launch, and the host only logs and counts
 * it.
 */
#define VGPU_LAUNCH_REFUSED UINT32_MAX

/*
 * Facts of a function. In the bulk they are followed by one vgpu_parameter for each parameter, in order, and,
 * only if the device cannot run the function, by an int32_t: the CUresult of its launches.
 */
struct vgpu_function_facts {
  int32_t attributes[VGPU_FUNCTION_ATTRIBUTES];
  uint32_t parameter_count;
  uint32_t parameter_bytes; /* of the whole block */
};
_Static_assert(sizeof(struct vgpu_function_facts) == 72, "function facts");

struct vgpu_parameter {
  uint32_t offset;
  uint32_t size;
};

/* A JIT option: what the program gave as value; buffers themselves do not travel. */
struct vgpu_jit_option {
  uint32_t option; /* CUjit_option */
  uint32_t reserved;
  uint64_t value;
};
_Static_assert(sizeof(struct vgpu_jit_option) == 16, "JIT option");
#define VGPU_JIT_OPTIONS_MAX 64u

/*
 * An input of link_images. In the bulk it is followed by its name and a zero, its bytes, and zeros up to a
 * multiple of 8 bytes: at least one, because text ends there.
 */
struct vgpu_link_input {
  uint32_t type;       /* CUjitInputType */
  uint32_t name_bytes; /* with the zero */
  uint64_t bytes;
};
_Static_assert(sizeof(struct vgpu_link_input) == 16, "link input");
#define VGPU_LINK_INPUTS_MAX 1024u

enum {
  VGPU_LINK_CUBIN = 0,
  VGPU_LINK_PTX = 1,
  VGPU_LINK_FATBIN = 2,
  VGPU_LINK_OBJECT = 3,
  VGPU_LINK_LIBRARY = 4,
  VGPU_LINK_NVVM = 5,
};

/* Returns the bytes that an input takes with its padding. `name_bytes` includes the zero. */
static inline uint64_t vgpu_link_input_size(uint64_t name_bytes, uint64_t bytes) {
  return (sizeof(struct vgpu_link_input) + name_bytes + bytes + 8) / 8 * 8;
}

/* One attribute of a launch, laid out as CUlaunchAttribute; handles in it are numbers of the wire. */
struct vgpu_launch_attribute {
  uint32_t id;
  uint32_t reserved;
  uint64_t value[8];
};
_Static_assert(sizeof(struct vgpu_launch_attribute) == 72, "launch attribute");
#define VGPU_LAUNCH_ATTRIBUTES_MAX 32u

enum {
  LAUNCH_IGNORE = 0,
  LAUNCH_COOPERATIVE = 2,
  LAUNCH_CLUSTER = 4,
  LAUNCH_PROGRAMMATIC_EVENT = 7,
  LAUNCH_COMPLETION_EVENT = 12,
  LAUNCH_UPDATABLE_NODE = 13,
};

#endif
