#include "host/backend/software/ptx/texture/sample.h"

#include <math.h>
#include <string.h>

/* Fixed point with 8 fractional bits, as the CUDA programming guide says. */
#define ONE 256

static float limited(float x, float low, float high) {
  return x > low ? x < high ? x : high : low; /* NaN becomes low */
}

/*
 * floor() of a value that fits an integer, because the C library's floor() is a call on processors without
 * SSE 4.1.
 */
static int64_t floor_of(double x) {
  int64_t i = (int64_t)x;
  return i - (x < (double)i);
}

/* Wrapping and mirroring need normalized coordinates; others are clamped. */
static uint8_t mode_of(const struct ptx_reading *r, uint32_t axis) {
  uint8_t mode = r->sampler->address[axis];
  if (r->image->cube) return ADDRESS_CLAMP;
  bool turns = mode == ADDRESS_WRAP || mode == ADDRESS_MIRROR;
  return turns && (!r->sampler->normalized_coordinates || r->integers) ? ADDRESS_CLAMP : mode;
}

static float texels(const struct ptx_reading *r, const struct ptx_sample *sample, uint32_t axis) {
  float x = sample->at[axis].f;
  if (r->sampler->normalized_coordinates) {
    if (r->mode[axis] == ADDRESS_WRAP || r->mode[axis] == ADDRESS_MIRROR) {
      float whole = floorf(x), part = x - whole;
      bool back = r->mode[axis] == ADDRESS_MIRROR && fmodf(whole, 2.0f) != 0.0f;
      x = back ? 1.0f - part : part;
    }
    x *= (float)r->size[axis];
  }
  return limited(x, -1048576.0f, 536870912.0f) + (float)sample->offset[axis];
}

/* Returns the texel that is read for one beyond the edge; -1: the border. */
static int64_t beyond(const struct ptx_reading *r, uint32_t axis, int64_t i) {
  int64_t size = r->size[axis];
  if (r->image->linear) return -1;
  switch (r->mode[axis]) {
    case ADDRESS_WRAP:
      i %= size;
      return i < 0 ? i + size : i;
    case ADDRESS_MIRROR:
      i %= 2 * size;
      if (i < 0) i += 2 * size;
      return i < size ? i : 2 * size - 1 - i;
    case ADDRESS_BORDER:
      return -1;
    default:
      return i < 0 ? 0 : size - 1;
  }
}

static int64_t within(const struct ptx_reading *r, uint32_t axis, int64_t i) {
  return i >= 0 && i < r->size[axis] ? i : beyond(r, axis, i);
}

void ptx_border(const struct ptx_reading *r, union ptx_channels *to) {
  for (int c = 0; c < 4; c++) {
    float value = r->image->linear ? 0 : r->sampler->border[c];
    if (r->floats) to->f[c] = value;
    else to->u[c] = (uint32_t)(int64_t)limited(value, -2147483648.0f, 4294967040.0f);
  }
}

static void fetch(const struct ptx_reading *r, const struct ptx_sample *sample, const int64_t at[3],
                  union ptx_channels *to) {
  if ((at[0] | at[1] | at[2]) < 0) {
    ptx_border(r, to);
    return;
  }
  uint32_t z = r->axes == 3 ? (uint32_t)at[2] : sample->layer;
  ptx_fetch(r->image, r->level, (uint32_t)at[0], (uint32_t)at[1], z, to);
}

/* Beyond the edge of a cube's face is another face. Beyond a corner this face continues. */
static void fetch_around(const struct ptx_reading *r, const struct ptx_sample *sample, const int64_t first[2],
                         uint32_t corner, union ptx_channels *to) {
  int64_t at[3] = {first[0] + (corner & 1), first[1] + (corner >> 1 & 1), 0};
  int64_t size = r->size[0], inside[2] = {within(r, 0, at[0]), within(r, 1, at[1])};
  struct ptx_sample there = *sample;
  if ((at[0] != inside[0]) != (at[1] != inside[1])) {
    float s = 2 * ((float)at[0] + 0.5f) / (float)size - 1, t = 2 * ((float)at[1] + 0.5f) / (float)size - 1;
    const float directions[6][3] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t},
                                    {s, -1, -t}, {s, -t, 1},  {-s, -t, -1}};
    float place[2];
    there.layer = sample->layer / 6 * 6 + ptx_cube_face(directions[sample->layer % 6], place);
    for (int k = 0; k < 2; k++)
      inside[k] = (int64_t)limited(floorf(place[k] * (float)size), 0, (float)(size - 1));
  }
  at[0] = inside[0];
  at[1] = inside[1];
  fetch(r, &there, at, to);
}

static void filtered(const struct ptx_reading *r, const struct ptx_sample *sample, union ptx_channels *to) {
  int64_t first[3] = {0, 0, 0}, at[3][2] = {{0}};
  float weights[3][2];
  for (uint32_t axis = 0; axis < r->axes; axis++) {
    int64_t fixed = floor_of(((double)texels(r, sample, axis) - 0.5) * ONE + 0.5);
    first[axis] = fixed >> 8;
    weights[axis][1] = (float)(fixed & (ONE - 1)) / ONE;
    weights[axis][0] = 1.0f - weights[axis][1];
    for (int k = 0; k < 2; k++) at[axis][k] = within(r, axis, first[axis] + k);
  }
  bool around = r->image->cube && r->sampler->seamless;
  union ptx_channels sum = {.f = {0}};
  for (uint32_t corner = 0; corner < 1u << r->axes; corner++) {
    int64_t where[3] = {0, 0, 0};
    float weight = 1.0f;
    for (uint32_t axis = 0; axis < r->axes; axis++) {
      where[axis] = at[axis][corner >> axis & 1];
      weight *= weights[axis][corner >> axis & 1];
    }
    if (weight == 0.0f) continue; /* the texel may be an infinity, which would spoil the sum */
    union ptx_channels texel;
    if (around) fetch_around(r, sample, first, corner, &texel);
    else fetch(r, sample, where, &texel);
    for (int c = 0; c < 4; c++) sum.f[c] += weight * texel.f[c];
  }
  *to = sum;
}

static void nearest(const struct ptx_reading *r, const struct ptx_sample *sample, union ptx_channels *to) {
  int64_t at[3] = {0, 0, 0};
  for (uint32_t axis = 0; axis < r->axes; axis++) {
    int64_t i = r->integers ? (int64_t)sample->at[axis].i + sample->offset[axis]
                            : floor_of((double)texels(r, sample, axis));
    at[axis] = within(r, axis, i);
  }
  fetch(r, sample, at, to);
}

static void gathered(const struct ptx_reading *r, const struct ptx_sample *sample, union ptx_channels *to) {
  static const uint8_t steps[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  int64_t first[2];
  for (uint32_t axis = 0; axis < 2; axis++)
    first[axis] = floor_of(((double)texels(r, sample, axis) - 0.5) * ONE + 0.5) >> 8;
  for (int k = 0; k < 4; k++) {
    const int64_t at[3] = {within(r, 0, first[0] + steps[k][0]), within(r, 1, first[1] + steps[k][1]), 0};
    union ptx_channels texel;
    fetch(r, sample, at, &texel);
    to->u[k] = texel.u[r->component];
  }
}

void ptx_read_level(struct ptx_reading *r, uint32_t level) {
  r->level = ptx_level_of(r->image, level);
  r->size[0] = r->level->width;
  r->size[1] = r->level->height;
  r->size[2] = r->level->depth;
}

static void read(const struct ptx_reading *r, const struct ptx_sample *sample, union ptx_channels *to) {
  if (r->gather) gathered(r, sample, to);
  else if (r->filtered) filtered(r, sample, to);
  else nearest(r, sample, to);
}

void ptx_begin_reading(struct ptx_reading *r) {
  r->floats = ptx_reads_floats(r->image);
  r->filtered = r->sampler->filter == FILTER_LINEAR && !r->integers && r->floats && !r->image->linear;
  for (uint32_t axis = 0; axis < 3; axis++) r->mode[axis] = mode_of(r, axis);
  ptx_read_level(r, 0);
}

uint32_t ptx_choose_level(const struct ptx_reading *r, float detail, float *weight) {
  const struct ptx_texture *sampler = r->sampler;
  uint32_t most = r->image->level_count - 1;
  float bias = r->integers ? 0 : sampler->bias;
  float level = limited(limited(detail + bias, sampler->min_level, sampler->max_level), 0, (float)most);
  bool mixed = sampler->mip_filter == FILTER_LINEAR && !r->integers && !r->gather && r->floats;
  int32_t fixed = (int32_t)floorf(level * ONE + 0.5f);
  uint32_t below = mixed ? (uint32_t)fixed / ONE : (uint32_t)(fixed + ONE / 2) / ONE;
  *weight = mixed ? (float)(fixed % ONE) / ONE : 0;
  return below > most ? most : below;
}

void ptx_sample(struct ptx_reading *r, const struct ptx_sample *sample, union ptx_channels *to) {
  if (r->image->level_count <= 1) {
    read(r, sample, to);
    return;
  }
  float weight;
  uint32_t below = ptx_choose_level(r, sample->level, &weight);
  ptx_read_level(r, below);
  read(r, sample, to);
  if (weight == 0) return;
  union ptx_channels above;
  ptx_read_level(r, below + 1);
  read(r, sample, &above);
  for (int c = 0; c < 4; c++) to->f[c] = (1 - weight) * to->f[c] + weight * above.f[c];
}

uint32_t ptx_cube_face(const float d[3], float place[2]) {
  float ax = fabsf(d[0]), ay = fabsf(d[1]), az = fabsf(d[2]);
  uint32_t axis = ax >= ay && ax >= az ? 0 : ay >= az ? 1 : 2;
  bool negative = signbit(d[axis]) != 0;
  float m = axis == 0 ? ax : axis == 1 ? ay : az, s, t;
  switch (axis) {
    case 0:
      s = negative ? d[2] : -d[2];
      t = -d[1];
      break;
    case 1:
      s = d[0];
      t = negative ? -d[2] : d[2];
      break;
    default:
      s = negative ? -d[0] : d[0];
      t = -d[1];
      break;
  }
  place[0] = (s / m + 1) / 2;
  place[1] = (t / m + 1) / 2;
  return axis * 2 + (negative ? 1 : 0);
}
