#include <stdio.h>

#include "host/backend/software/ptx/half.h"
#include "host/backend/software/ptx/run/single.h"
#include "host/backend/software/ptx/texture/image.h"

/* Fits an index into an axis. False: it is outside and must not be clamped. */
static bool fit(int64_t *i, int64_t size, uint32_t how) {
  if (*i >= 0 && *i < size) return true;
  if (how != OUTSIDE_CLAMP || size <= 0) return false;
  *i = *i < 0 ? 0 : size - 1;
  return true;
}

/*
 * Returns the memory of an access. NULL with *outside: the access has no effect; NULL without *outside: a
 * fault was raised.
 */
static unsigned char *locate(const struct place *at, uint32_t lane, const struct ptx_texture *surface,
                             uint32_t bytes, bool *outside) {
  uint32_t m = at->in->m, how = IMAGE_OUTSIDE(m), axes = IMAGE_AXES(m);
  const struct ptx_level *level = ptx_level_of(surface, 0);
  int64_t x = (int32_t)ptx_image_operand(at, IMAGE_X, lane, 4), y = 0, z = 0;
  if (axes >= 2) y = (int32_t)ptx_image_operand(at, IMAGE_Y, lane, 4);
  if (axes == 3) z = (int32_t)ptx_image_operand(at, IMAGE_Z, lane, 4);
  if ((m & IMAGE_LAYERED) != 0) z = (int32_t)ptx_image_operand(at, IMAGE_LAYER, lane, 4);
  /* An x that counts bytes becomes a count of accesses, once it is known to be aligned. */
  bool formatted = (m & IMAGE_FORMATTED) != 0;
  int64_t row = formatted ? level->width : (int64_t)level->width * surface->bytes,
          step = formatted ? 1 : bytes;
  *outside = false;
  char text[120];
  if (x % step != 0) {
    snprintf(text, sizeof text, "an access of %u bytes at x = %lld of a surface is not aligned", bytes,
             (long long)x);
    ptx_raise(at, PTX_MISALIGNED_ADDRESS, lane, (uint64_t)x, text);
    return NULL;
  }
  int64_t column = x / step;
  if (!fit(&column, row / step, how) || !fit(&y, level->height, how) || !fit(&z, level->depth, how)) {
    *outside = how == OUTSIDE_ZERO;
    if (*outside) return NULL;
    snprintf(text, sizeof text, "an access at x = %lld, y = %lld, z = %lld is outside of the surface",
             (long long)x, (long long)y, (long long)z);
    ptx_raise(at, PTX_ILLEGAL_ADDRESS, lane, (uint64_t)x, text);
    return NULL;
  }
  uint64_t offset = (uint64_t)column * (formatted ? surface->bytes : bytes);
  return level->bytes + (uint64_t)z * level->slice + (uint64_t)y * level->row + offset;
}

static uint32_t converted(enum ptx_texel texel, uint32_t bits, bool floats) {
  switch (texel) {
    case TEXEL_F16:
      return floats ? ptx_half_of_double((double)ptx_float(bits), 1) : bits;
    case TEXEL_U8:
      return bits > 0xff ? 0xff : bits;
    case TEXEL_U16:
      return bits > 0xffff ? 0xffff : bits;
    case TEXEL_S8: {
      int32_t i = (int32_t)bits;
      return (uint32_t)(i < -128 ? -128 : i > 127 ? 127 : i) & 0xff;
    }
    case TEXEL_S16: {
      int32_t i = (int32_t)bits;
      return (uint32_t)(i < -32768 ? -32768 : i > 32767 ? 32767 : i) & 0xffff;
    }
    default:
      return bits;
  }
}

AS_KERNELS_DO bool ptx_surface(const struct place *at, uint32_t lane, const struct ptx_texture *surface) {
  const struct ptx_instruction *in = at->in;
  uint32_t count = in->x_count - (uint32_t)IMAGE_MORE, bytes = in->size * count;
  uint32_t held = in->size == 1 ? 2 : in->size; /* a register for bytes has 16 bits */
  bool outside;
  unsigned char *memory = locate(at, lane, surface, bytes, &outside);
  if (memory == NULL && !outside) return false;
  unsigned char data[16] = {0};
  switch (IMAGE_OPERATION(in->m)) {
    case SURFACE_LOAD:
      if (memory != NULL) ptx_copy_once(data, memory, bytes);
      for (uint32_t i = 0; i < count; i++) {
        uint64_t value = 0;
        memcpy(&value, data + i * in->size, in->size);
        memcpy(ptx_image_result(at, i, lane, held), &value, held);
      }
      return true;
    case SURFACE_STORE:
      if ((in->m & IMAGE_FORMATTED) != 0) {
        uint32_t each = surface->bytes / surface->channels;
        bool floats = surface->texel == TEXEL_F16 || surface->texel == TEXEL_F32;
        for (uint32_t i = 0; i < surface->channels; i++) {
          uint32_t bits = i < count ? (uint32_t)ptx_image_operand(at, IMAGE_MORE + i, lane, 4) : 0;
          bits = converted((enum ptx_texel)surface->texel, bits, floats);
          memcpy(data + i * each, &bits, each);
        }
        bytes = surface->bytes;
      } else {
        for (uint32_t i = 0; i < count; i++) {
          uint64_t value = ptx_image_operand(at, IMAGE_MORE + i, lane, held);
          memcpy(data + i * in->size, &value, in->size);
        }
      }
      if (memory != NULL) ptx_copy_once(memory, data, bytes);
      return true;
    default: {
      /* Reductions that count elements are for whole texels. */
      if (memory == NULL) return true;
      uint64_t value = ptx_image_operand(at, IMAGE_MORE, lane, in->size);
      if ((in->m & IMAGE_FORMATTED) != 0 && surface->bytes != in->size) {
        ptx_raise(at, PTX_ILLEGAL_ADDRESS, lane, 0, "a reduction of another width than the surface's texels");
        return false;
      }
      ptx_exchange(in, memory, value, 0);
      return true;
    }
  }
}
