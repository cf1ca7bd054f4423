/* Gives the bits that sample.c gives: axis after axis for all lanes, then corner after corner. */
#include <string.h>

#include "host/backend/software/ptx/texture/image.h"

#define FEW 6 /* for so few lanes, one after the other is faster */

/* A texel of each lane: channels as in sample.c. */
union values {
  float f[4][PTX_LANES];
  uint32_t u[4][PTX_LANES];
};

static uint32_t reference(const struct place *at, uint32_t index) {
  return at->split->frame->function->x[at->in->x + index];
}

static const void *operand(const struct place *at, uint32_t index) {
  uint32_t from = reference(at, index);
  return from == PTX_NONE ? NULL : ptx_operand(at, from);
}

/*
 * True if all lanes have the same value of an operand. A constant is the same for all; other operands are
 * compared.
 */
static bool same_for_all(const struct place *at, uint32_t index, uint32_t mask) {
  const unsigned char *objects = operand(at, index);
  if (objects == NULL) return true;
  uint32_t first = (uint32_t)__builtin_ctz(mask);
  for (uint32_t left = mask & (mask - 1); left != 0; left &= left - 1) {
    if (memcmp(objects + first * 8, objects + (uint32_t)__builtin_ctz(left) * 8, 8) != 0) return false;
  }
  return true;
}

static bool has_way(const struct place *at, uint32_t mask, const struct ptx_reading *r) {
  uint32_t m = at->in->m;
  if (__builtin_popcount(mask) <= FEW || r->gather || r->image->cube || at->in->size != 4 ||
      (m & IMAGE_PACKED) != 0)
    return false;
  return same_for_all(at, IMAGE_OBJECT, mask) && same_for_all(at, IMAGE_SAMPLER, mask);
}

static enum ptx_beyond axis_of(uint8_t mode) {
  return mode == ADDRESS_WRAP     ? AXIS_WRAP
         : mode == ADDRESS_MIRROR ? AXIS_MIRROR
         : mode == ADDRESS_BORDER ? AXIS_BORDER
                                  : AXIS_CLAMP;
}

static void place_axes(const struct place *at, const struct ptx_reading *r, struct ptx_texels *texels) {
  for (uint32_t axis = 0; axis < r->axes; axis++) {
    enum ptx_beyond turned = axis_of(r->mode[axis]);
    struct ptx_axis how = {.size = r->size[axis],
                           .turned = turned,
                           .beyond = r->image->linear ? AXIS_BORDER : turned,
                           .integers = r->integers,
                           .normalized = r->sampler->normalized_coordinates,
                           .filtered = r->filtered};
    at->worker->alu->texel_axis(&texels[axis], operand(at, IMAGE_X + axis), operand(at, IMAGE_OFFSET + axis),
                                &how);
  }
}

/* Layers are clamped; the third axis of a volume was computed before. */
static void place_layers(const struct place *at, const struct ptx_reading *r, int32_t *layers) {
  const int32_t *layer = operand(at, IMAGE_LAYER);
  int32_t last = r->level->depth == 0 ? 0 : (int32_t)r->level->depth - 1;
  for (int i = 0; i < PTX_LANES; i++) {
    int32_t z = layer == NULL || (at->in->m & IMAGE_LAYERED) == 0 ? 0 : layer[i];
    layers[i] = z < 0 ? 0 : z > last ? last : z;
  }
}

static bool single(const struct ptx_texture *t) {
  return t->channels == 1 && (t->texel == TEXEL_F32 || t->texel == TEXEL_U32 || t->texel == TEXEL_S32);
}

static void absent(const struct ptx_reading *r, union values *to) {
  for (uint32_t c = r->image->channels; c < 4; c++) {
    for (int i = 0; i < PTX_LANES; i++) {
      if (r->floats) to->f[c][i] = c < 3 ? 0 : 1;
      else to->u[c][i] = c < 3 ? 0 : 1;
    }
  }
}

/* Reads texels of up to 4 bytes, as words. Inactive lanes have a place in the image, too. */
static void fetch_words(const struct place *at, const struct ptx_reading *r, const uint64_t *places,
                        union values *to) {
  const struct ptx_alu *alu = at->worker->alu;
  const struct ptx_texture *t = r->image;
  _Alignas(64) uint32_t words[PTX_LANES];
  ptx_gather *gather = alu->gather[__builtin_ctz(t->bytes)][0][2];
  gather(words, r->level->bytes, places, REACH_NO_HALVES | REACH_NO_STEPS, FULL);
  if (single(t)) memcpy(to->u[0], words, sizeof words);
  else alu->texel_bytes(to->u, words, t->channels, r->floats);
  absent(r, to);
}

static void fetch(const struct place *at, const struct ptx_reading *r, const int32_t *x, const int32_t *y,
                  const int32_t *z, uint32_t mask, const union ptx_channels *border, union values *to) {
  const struct ptx_texture *t = r->image;
  uint64_t places[PTX_LANES];
  uint32_t outside = at->worker->alu->texel_places(places, x, y, z, t->bytes, r->level->row, r->level->slice);
  if (single(t) || (t->texel == TEXEL_U8 && !t->srgb)) {
    fetch_words(at, r, places, to);
  } else {
    for (uint32_t left = mask & ~outside; left != 0; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      union ptx_channels texel;
      ptx_fetch(t, r->level, (uint32_t)x[lane], (uint32_t)y[lane], (uint32_t)z[lane], &texel);
      for (int c = 0; c < 4; c++) to->u[c][lane] = texel.u[c];
    }
  }
  for (; outside != 0; outside &= outside - 1) {
    for (int c = 0; c < 4; c++) to->u[c][__builtin_ctz(outside)] = border->u[c];
  }
}

static void filter(const struct place *at, const struct ptx_reading *r, const struct ptx_texels *texels,
                   const int32_t *layers, uint32_t mask, const union ptx_channels *border,
                   union values *sum) {
  static const int32_t zeros[PTX_LANES] = {0};
  union values texel;
  memset(sum, 0, sizeof *sum);
  memset(&texel, 0, sizeof texel);
  for (uint32_t corner = 0; corner < 1u << r->axes; corner++) {
    const int32_t *where[3] = {texels[0].at[corner & 1], zeros, layers};
    float weight[PTX_LANES];
    memcpy(weight, texels[0].weight[corner & 1], sizeof weight);
    for (uint32_t axis = 1; axis < r->axes; axis++) {
      const float *more = texels[axis].weight[corner >> axis & 1];
      where[axis] = texels[axis].at[corner >> axis & 1];
      for (int i = 0; i < PTX_LANES; i++) weight[i] *= more[i];
    }
    fetch(at, r, where[0], where[1], where[2], mask, border, &texel);
    at->worker->alu->texel_add(sum->f, (const float(*)[PTX_LANES])texel.f, weight);
  }
}

static void read_level(const struct place *at, uint32_t mask, const struct ptx_reading *r,
                       union values *value) {
  static const int32_t zeros[PTX_LANES] = {0};
  struct ptx_texels texels[3];
  int32_t layers[PTX_LANES];
  union ptx_channels border;
  place_axes(at, r, texels);
  place_layers(at, r, layers);
  ptx_border(r, &border);
  if (r->filtered) {
    filter(at, r, texels, layers, mask, &border, value);
  } else {
    memset(value, 0, sizeof *value);
    fetch(at, r, texels[0].at[0], r->axes > 1 ? texels[1].at[0] : zeros,
          r->axes > 2 ? texels[2].at[0] : layers, mask, &border, value);
  }
}

static void give(const struct place *at, uint32_t mask, const union values *value) {
  uint32_t count = at->in->x_count - (uint32_t)IMAGE_MORE;
  for (uint32_t c = 0; c < count; c++)
    at->worker->alu->blend[2](ptx_image_result(at, c, 0, 4), value->u[c], mask);
}

static void add_level(union values *value, const union values *above, const float *weight) {
  for (int c = 0; c < 4; c++) {
    for (int i = 0; i < PTX_LANES; i++) {
      float mixed = (1 - weight[i]) * value->f[c][i] + weight[i] * above->f[c][i];
      if (weight[i] != 0) value->f[c][i] = mixed;
    }
  }
}

/* Reads the lanes of one level at a time. False: they are on too many levels. */
static bool read_levels(const struct place *at, uint32_t mask, const struct ptx_reading *reading) {
  struct ptx_reading r = *reading;
  uint32_t below[PTX_LANES], lanes_of[PTX_LEVELS_MOST] = {0}, used = 0;
  float weight[PTX_LANES] = {0};
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    below[lane] = ptx_choose_level(&r, ptx_image_detail(at, lane, r.image, r.sampler), &weight[lane]);
    if (lanes_of[below[lane]] == 0) used++;
    lanes_of[below[lane]] |= 1u << lane;
  }
  if (used * FEW >= (uint32_t)__builtin_popcount(mask)) return false;
  for (uint32_t level = 0; level < r.image->level_count; level++) {
    uint32_t lanes = lanes_of[level], mixed = 0;
    if (lanes == 0) continue;
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      mixed |= (uint32_t)(weight[lane] != 0) << lane;
    }
    union values value, above;
    ptx_read_level(&r, level);
    read_level(at, lanes, &r, &value);
    if (mixed != 0) {
      ptx_read_level(&r, level + 1);
      read_level(at, mixed, &r, &above);
      add_level(&value, &above, weight);
    }
    give(at, lanes, &value);
  }
  return true;
}

bool ptx_sample_together(const struct place *at, uint32_t mask, const struct ptx_reading *r) {
  if (!has_way(at, mask, r)) return false;
  if (r->image->level_count > 1) return read_levels(at, mask, r);
  union values value;
  read_level(at, mask, r, &value);
  give(at, mask, &value);
  return true;
}
