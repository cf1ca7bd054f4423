/*
 * Structures of the public CUDA API, under our own names: programs pass them to the guest, the host passes
 * them to the driver. The tests' programs declare their own, so that a test does not rely on the code it
 * checks.
 */
#ifndef VGPU_API_STRUCTURES_H
#define VGPU_API_STRUCTURES_H

#include <stddef.h>
#include <stdint.h>

/* CUmemorytype */
enum vgpu_memory_type {
  VGPU_MEMORY_HOST = 1,
  VGPU_MEMORY_DEVICE = 2,
  VGPU_MEMORY_ARRAY = 3,
  VGPU_MEMORY_UNIFIED = 4
};

/* CUDA_MEMCPY2D */
struct vgpu_flat_side {
  size_t x, y;
  uint32_t type;
  const void *host;
  uint64_t device;
  void *array;
  size_t pitch;
};
struct vgpu_flat_box {
  struct vgpu_flat_side source, destination;
  size_t width, height;
};
_Static_assert(sizeof(struct vgpu_flat_box) == 128, "CUDA_MEMCPY2D");

/* CUDA_MEMCPY3D. `owner` is a context in CUDA_MEMCPY3D_PEER, and unused otherwise. */
struct vgpu_box_side {
  size_t x, y, z, level; /* x counts bytes, of arrays too */
  uint32_t type;
  const void *host;
  uint64_t device;
  void *array;
  void *owner;
  size_t pitch, height;
};
struct vgpu_box {
  struct vgpu_box_side source, destination;
  size_t width, height, depth;
};
_Static_assert(sizeof(struct vgpu_box) == 200, "CUDA_MEMCPY3D");

/* CUDA_ARRAY_DESCRIPTOR */
struct vgpu_flat_array_descriptor {
  size_t width, height;
  int32_t format;
  uint32_t channels;
};
_Static_assert(sizeof(struct vgpu_flat_array_descriptor) == 24, "CUDA_ARRAY_DESCRIPTOR");

/* CUDA_ARRAY3D_DESCRIPTOR */
struct vgpu_array_descriptor {
  size_t width, height, depth;
  int32_t format;
  uint32_t channels, flags;
};
_Static_assert(sizeof(struct vgpu_array_descriptor) == 40, "CUDA_ARRAY3D_DESCRIPTOR");

/* CUDA_RESOURCE_DESC */
struct vgpu_resource_descriptor {
  int32_t type; /* CUresourcetype */
  union {
    void *array;
    struct {
      uint64_t address;
      int32_t format;
      uint32_t channels;
      size_t width, height, pitch; /* of linear memory the first counts bytes */
    } memory;
    int32_t reserved[32];
  } of;
  uint32_t flags;
};
_Static_assert(sizeof(struct vgpu_resource_descriptor) == 144, "CUDA_RESOURCE_DESC");

/* CUDA_TEXTURE_DESC */
struct vgpu_texture_descriptor {
  int32_t address_mode[3], filter;
  uint32_t flags, anisotropy;
  int32_t mip_filter;
  float bias, min_level, max_level, border[4];
  int32_t reserved[12];
};
_Static_assert(sizeof(struct vgpu_texture_descriptor) == 104, "CUDA_TEXTURE_DESC");

/* CUDA_RESOURCE_VIEW_DESC */
struct vgpu_view_descriptor {
  int32_t format;
  size_t width, height, depth;
  uint32_t first_level, last_level, first_layer, last_layer, reserved[16];
};
_Static_assert(sizeof(struct vgpu_view_descriptor) == 112, "CUDA_RESOURCE_VIEW_DESC");

/* CUdevResource. `inside` is the driver's own. */
enum { VGPU_RESOURCE_INVALID = 0, VGPU_RESOURCE_SM = 1, VGPU_RESOURCE_QUEUES = 1000 }; /* CUdevResourceType */
#define VGPU_RESOURCE_VISIBLE 40
struct vgpu_dev_resource {
  int32_t type;
  unsigned char inside[92];
  unsigned char visible[VGPU_RESOURCE_VISIBLE]; /* by type, one of the next two */
  void *next;
};
_Static_assert(sizeof(struct vgpu_dev_resource) == 144, "CUdevResource");

/* CUdevSmResource and CUdevWorkqueueConfigResource */
struct vgpu_sm_resource {
  uint32_t count, least, alignment, flags, domain;
};
struct vgpu_queues_resource {
  int32_t device;
  uint32_t limit, scope;
};

/* CU_DEV_SM_RESOURCE_GROUP_PARAMS */
struct vgpu_sm_group {
  uint32_t count, together, preferred, flags, domain, reserved[11];
};
_Static_assert(sizeof(struct vgpu_sm_group) == 64, "CU_DEV_SM_RESOURCE_GROUP_PARAMS");

#endif
