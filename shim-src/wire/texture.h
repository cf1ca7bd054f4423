/*
 * The request for a texture: the bulk of cuTexObjectCreate and of texture_reference. In the latter the
 * reference's name follows it. Numbers are the API's (CUresourcetype, CUarray_format, CUaddress_mode, ...).
 */
#ifndef VGPU_WIRE_TEXTURE_H
#define VGPU_WIRE_TEXTURE_H

#include <stdint.h>

enum vgpu_texture_resource {
  VGPU_TEXTURE_ARRAY = 0,
  VGPU_TEXTURE_MIPMAPPED = 1,
  VGPU_TEXTURE_LINEAR = 2,
  VGPU_TEXTURE_PITCH = 3,
  VGPU_TEXTURE_NONE = 4,       /* of references: only checks whether the module has it */
  VGPU_TEXTURE_SURFACE = 5,    /* of references: an array for a surface */
  VGPU_TEXTURE_NO_SURFACE = 6, /* likewise, only checks */
};

struct vgpu_texture_request {
  uint64_t array;                /* its number */
  uint64_t address;              /* of memory */
  uint64_t width, height, pitch; /* elements, rows, bytes; of linear memory: width alone, in bytes */
  uint64_t view_width, view_height, view_depth;
  uint32_t resource; /* enum vgpu_texture_resource */
  uint32_t level;    /* of the array, if it is one level of several */
  int32_t format;    /* of memory */
  uint32_t channels;
  int32_t address_mode[3], filter;
  uint32_t flags, anisotropy;
  int32_t mip_filter;
  float bias, min_level, max_level, border[4];
  uint32_t viewed; /* 0: the fields below are not used */
  int32_t view_format;
  uint32_t first_level, last_level, first_layer, last_layer;
  uint32_t reserved;
};
_Static_assert(sizeof(struct vgpu_texture_request) == 168, "no padding");

#define VGPU_ARRAY_LEVELS_MOST 18u
#define VGPU_TEXTURE_NAME_MOST 4096u

enum {
  VGPU_ARRAY_LAYERED = 1,
  VGPU_ARRAY_SURFACE = 2,
  VGPU_ARRAY_CUBEMAP = 4,
  VGPU_ARRAY_GATHER = 8,
  VGPU_ARRAY_DEPTH = 16,
  VGPU_ARRAY_COLOR = 32,
  VGPU_ARRAY_KNOWN = 63 /* without sparse arrays and those that are mapped later */
};

/* Bytes of one channel of a CUarray_format; 0: one that is not carried (compressed and planar formats). */
static inline uint32_t vgpu_format_bytes(int32_t format) {
  switch (format) {
    case 0x01: /* unsigned, signed; UNORM of 1, 2, 4 channels; SNORM */
    case 0x08:
    case 0xc0:
    case 0xc1:
    case 0xc2:
    case 0xc6:
    case 0xc7:
    case 0xc8:
      return 1;
    case 0x02:
    case 0x09:
    case 0x10: /* half */
    case 0xc3:
    case 0xc4:
    case 0xc5:
    case 0xc9:
    case 0xca:
    case 0xcb:
      return 2;
    case 0x03:
    case 0x0a:
    case 0x20: /* float */
      return 4;
    default:
      return 0;
  }
}

static inline uint64_t vgpu_level_size(uint64_t size, uint32_t level) {
  uint64_t smaller = level < 64 ? size >> level : 0;
  return size != 0 && smaller == 0 ? 1 : smaller;
}

#endif
