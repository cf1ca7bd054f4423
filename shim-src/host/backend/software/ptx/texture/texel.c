#include <math.h>

#include "host/backend/software/ptx/half.h"
#include "host/backend/software/ptx/texture/sample.h"

bool ptx_reads_floats(const struct ptx_texture *t) {
  return t->texel == TEXEL_F16 || t->texel == TEXEL_F32 ||
         (t->normalized_reads && t->texel != TEXEL_U32 && t->texel != TEXEL_S32);
}

/* 8 bits, IEC 61966-2-1. */
static float linear_of(float s) {
  return s <= 0.04045f ? s / 12.92f : powf((s + 0.055f) / 1.055f, 2.4f);
}

static uint32_t integer(enum ptx_texel texel, const unsigned char *from) {
  uint16_t half;
  uint32_t word;
  switch (texel) {
    case TEXEL_U8:
      return *from;
    case TEXEL_S8:
      return (uint32_t)(int32_t)(int8_t)*from;
    case TEXEL_U16:
      memcpy(&half, from, 2);
      return half;
    case TEXEL_S16:
      memcpy(&half, from, 2);
      return (uint32_t)(int32_t)(int16_t)half;
    default:
      memcpy(&word, from, 4);
      return word;
  }
}

static float as_float(const struct ptx_texture *t, const unsigned char *from, uint32_t channel) {
  uint16_t half;
  uint32_t bits = integer((enum ptx_texel)t->texel, from);
  float value = 0;
  switch ((enum ptx_texel)t->texel) {
    case TEXEL_F32:
      return ptx_float(bits);
    case TEXEL_F16:
      memcpy(&half, from, 2);
      return ptx_from_half(half);
    case TEXEL_U8:
      value = (float)bits / 255.0f;
      break;
    case TEXEL_U16:
      return (float)bits / 65535.0f;
    case TEXEL_S8:
      value = (float)(int32_t)bits / 127.0f;
      return value < -1.0f ? -1.0f : value;
    case TEXEL_S16:
      value = (float)(int32_t)bits / 32767.0f;
      return value < -1.0f ? -1.0f : value;
    default:
      return (float)bits; /* not read as floats */
  }
  return t->srgb && channel < 3 ? linear_of(value) : value;
}

void ptx_fetch(const struct ptx_texture *t, const struct ptx_level *level, uint32_t x, uint32_t y, uint32_t z,
               union ptx_channels *to) {
  const unsigned char *from = level->bytes + z * level->slice + y * level->row + (uint64_t)x * t->bytes;
  if (t->texel == TEXEL_F32) {
    *to = (union ptx_channels){.f = {0, 0, 0, 1}};
    if (t->bytes == 16) memcpy(to->f, from, 16); /* with a constant size, memcpy is not a call */
    else memcpy(to->f, from, t->bytes);
    return;
  }
  uint32_t bytes = t->bytes / t->channels;
  bool floats = ptx_reads_floats(t);
  for (uint32_t c = 0; c < 4; c++) {
    if (c >= t->channels) to->u[c] = c < 3 ? 0 : floats ? ptx_bits(1.0f) : 1;
    else if (floats) to->f[c] = as_float(t, from + c * bytes, c);
    else to->u[c] = integer((enum ptx_texel)t->texel, from + c * bytes);
  }
}
