/*
 * ptx_variants: the arithmetic is compiled for several processors; what lanes do in memory and with textures
 * is done by each of those that run here, with the same random values, and compared byte for byte. Prints the
 * number of rounds for each, or where one differs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/alu/alu.h"

enum { MEMORY = 65536, WIDEST = 16 * PTX_LANES, ROUNDS = 20000 };

struct results {
  uint32_t shape, outside;
  uint64_t to[PTX_LANES], places[PTX_LANES];
  unsigned char loaded[WIDEST], blended[WIDEST], stored[MEMORY];
  struct ptx_texels texels;
  uint32_t channels[4][PTX_LANES];
  float sums[4][PTX_LANES];
};

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static float coordinate(void) {
  static const float strange[] = {0,     -0.0f, 1e-30f, 0.498046875f, 1e9f,
                                  -1e9f, 3e38f, NAN,    INFINITY,     -INFINITY};
  if (next() % 8 == 0) return strange[next() % (sizeof strange / sizeof *strange)];
  return (float)((int64_t)(next() % 8192) - 2048) / (next() % 2 == 0 ? 64.0f : 2048.0f);
}

/* The inputs of one round. */
struct input {
  struct ptx_reach reach;
  struct ptx_axis axis;
  uint32_t mask, width;
  uint64_t wide[PTX_LANES];
  uint32_t narrow[PTX_LANES], words[PTX_LANES];
  float x[PTX_LANES], weights[PTX_LANES], texel[4][PTX_LANES];
  int32_t offsets[PTX_LANES], y[PTX_LANES];
  unsigned char memory[MEMORY], registers[WIDEST];
};

static void choose(struct input *in) {
  uint32_t form = (uint32_t)(next() % 4);
  in->width = (uint32_t)(next() % 4);
  uint64_t bytes = 1ull << in->width, begin = 4096 + (next() % 1024) * bytes;
  in->mask = next() % 3 == 0 ? UINT32_MAX : (uint32_t)next() | 1u << (next() % 32);
  in->reach = (struct ptx_reach){.offset = (next() % 2) * 64,
                                 .limit = MEMORY - bytes,
                                 .align = bytes - 1,
                                 .shift = in->width,
                                 .lane = (uint32_t)__builtin_ctz(in->mask),
                                 .narrow = next() % 2 == 0,
                                 .loads = next() % 2 == 0};
  if (next() % 16 == 0) in->reach.base = 4096;
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    uint64_t at = form == 0   ? begin
                  : form == 1 ? begin + i * bytes
                  : form == 2 ? begin + (i / 16) * 2048 + (i % 16) * bytes
                              : 4096 + next() % 2048 * bytes;
    /* lanes outside the mask may have any address */
    if ((in->mask >> i & 1) == 0 && next() % 4 == 0) at = next();
    if (next() % 2000 == 0) at += 1 + next() % MEMORY;
    in->wide[i] = at;
    in->narrow[i] = (uint32_t)at;
    in->words[i] = (uint32_t)next();
    in->x[i] = coordinate();
    in->weights[i] = (float)(next() % 257) / 256.0f;
    in->offsets[i] = (int32_t)(next() % 16) - 8;
    in->y[i] = (int32_t)(next() % 40) - 2;
    for (int c = 0; c < 4; c++) in->texel[c][i] = (float)((int64_t)(next() % 2000) - 1000) / 7.0f;
  }
  in->axis = (struct ptx_axis){.size = (uint32_t)(next() % 60) + 1,
                               .beyond = (enum ptx_beyond)(next() % 3),
                               .integers = next() % 4 == 0,
                               .normalized = next() % 2 == 0,
                               .filtered = next() % 2 == 0};
  for (size_t i = 0; i < sizeof in->registers; i++) in->registers[i] = (unsigned char)next();
}

static void work(const struct ptx_alu *alu, const struct input *in, struct results *out) {
  const void *addresses = in->reach.narrow ? (const void *)in->narrow : (const void *)in->wide;
  memset(out, 0, sizeof *out);
  memcpy(out->stored, in->memory, sizeof out->stored);
  memcpy(out->loaded, in->registers, sizeof out->loaded);
  memcpy(out->blended, in->registers, sizeof out->blended);
  out->shape = alu->reach(out->to, addresses, in->mask, &in->reach);
  if ((out->shape & REACH_OUTSIDE) == 0) {
    alu->gather[in->width][0][3](out->loaded, in->memory, out->to, out->shape, in->mask);
    alu->scatter[in->width][3](out->stored, in->registers, out->to, out->shape, in->mask);
  } else {
    memset(out->to, 0, sizeof out->to); /* has no meaning */
  }
  alu->blend[3](out->blended, in->wide, in->mask);
  alu->texel_axis(&out->texels, in->axis.integers ? (const void *)in->words : (const void *)in->x,
                  in->offsets, &in->axis);
  out->outside = alu->texel_places(out->places, out->texels.at[0], in->y, in->offsets, 4, 1024, 65536);
  alu->texel_bytes(out->channels, in->words, 4, in->axis.normalized);
  alu->texel_add(out->sums, in->texel, in->weights);
  alu->texel_add(out->sums, in->texel, in->x);
}

/* Any NaN is equal to any other: PTX does not define which NaN a sum gives. */
static void same_nan(struct results *r) {
  for (int c = 0; c < 4; c++) {
    for (int i = 0; i < PTX_LANES; i++) {
      if (isnan(r->sums[c][i])) r->sums[c][i] = 0;
    }
  }
}

static struct input in;
static struct results want, have;

static int compare(const char *name, const struct ptx_alu *alu) {
  state = 88172645463325252ull;
  uint32_t refused = 0;
  for (size_t i = 0; i < sizeof in.memory; i++) in.memory[i] = (unsigned char)next();
  for (uint32_t round = 0; round < ROUNDS; round++) {
    choose(&in);
    work(&ptx_alu_base, &in, &want);
    work(alu, &in, &have);
    same_nan(&want);
    same_nan(&have);
    refused += (want.shape & REACH_OUTSIDE) != 0;
    const char *where = want.shape != have.shape                                       ? "shape"
                        : memcmp(want.to, have.to, sizeof want.to) != 0                ? "places"
                        : memcmp(want.loaded, have.loaded, sizeof want.loaded) != 0    ? "loads"
                        : memcmp(want.stored, have.stored, sizeof want.stored) != 0    ? "stores"
                        : memcmp(want.blended, have.blended, sizeof want.blended) != 0 ? "blends"
                        : memcmp(&want.texels, &have.texels, sizeof want.texels) != 0  ? "texels of an axis"
                        : memcmp(&want, &have, sizeof want) != 0                       ? "texels"
                                                                                       : NULL;
    if (where == NULL) continue;
    printf("%s: round %u: %s differ\n", name, round, where);
    return 1;
  }
  printf("%s: %d rounds, %s\n", name, ROUNDS,
         refused * 2 < ROUNDS ? "most within bounds" : "few within bounds");
  return 0;
}

int main(void) {
  int wrong = compare("base", &ptx_alu_base);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    wrong |= compare("v3", &ptx_alu_v3);
  if (ptx_alu_best() == &ptx_alu_v4) wrong |= compare("v4", &ptx_alu_v4);
#endif
  return wrong;
}
