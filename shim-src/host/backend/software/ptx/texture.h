/*
 * Textures and surfaces for the PTX machine: images, and how they are read. A kernel has 64-bit objects; the
 * caller of a launch finds their images.
 */
#ifndef VGPU_PTX_TEXTURE_H
#define VGPU_PTX_TEXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptx_texel { TEXEL_U8, TEXEL_U16, TEXEL_U32, TEXEL_S8, TEXEL_S16, TEXEL_S32, TEXEL_F16, TEXEL_F32 };

/* Numbered like CUaddress_mode and CUfilter_mode. */
enum ptx_address_mode { ADDRESS_WRAP, ADDRESS_CLAMP, ADDRESS_MIRROR, ADDRESS_BORDER };
enum ptx_filter_mode { FILTER_POINT, FILTER_LINEAR };

/* One level of an image. `depth` counts slices, layers, or faces of cubes. */
struct ptx_level {
  unsigned char *bytes;
  uint32_t width, height, depth;
  uint64_t row, slice; /* distance to the next row, and to the next slice */
};

#define PTX_LEVELS_MOST 18u /* enough for 1 << 17 texels */

struct ptx_texture {
  const struct ptx_level
      *levels; /* does not change until the launch has ended; NULL: `plain` is the only one */
  struct ptx_level plain;
  uint32_t level_count;
  uint8_t texel, channels, bytes; /* enum ptx_texel; bytes of all channels */
  bool surface;                   /* for suld and similar instructions only */
  bool linear;                    /* plain memory without rows: texels outside read as zero */
  bool layered, cube;
  /* the sampler */
  bool normalized_reads; /* integers are read as floats from 0 or -1 to 1 */
  bool normalized_coordinates, srgb, seamless;
  uint8_t address[3], filter, mip_filter;
  float bias, min_level, max_level, border[4];
};

static inline const struct ptx_level *ptx_level_of(const struct ptx_texture *texture, uint32_t level) {
  return texture->levels == NULL ? &texture->plain : &texture->levels[level];
}

static inline uint32_t ptx_texel_bytes(enum ptx_texel texel) {
  return texel == TEXEL_U8 || texel == TEXEL_S8                           ? 1
         : texel == TEXEL_U16 || texel == TEXEL_S16 || texel == TEXEL_F16 ? 2
                                                                          : 4;
}

#endif
