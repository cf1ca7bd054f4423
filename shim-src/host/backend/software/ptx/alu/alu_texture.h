/* Samples of 32 lanes, by the arithmetic of texture/sample.c; included by alu.c. */

#define WEIGHT_ONE 256 /* weights are fixed point with 8 fractional bits */

/* limited() of sample.c. */
#define WITHIN(x, low, high) ((x) > (low) ? (x) < (high) ? (x) : (high) : (low))

/* Finds the texel that is read: the texel itself, one at the edge, or -1 for the border. */
static void inside(s32 *at, const struct ptx_axis *a) {
  const s32 size = (s32)a->size, last = size - 1;
  switch (a->beyond) {
    case AXIS_BORDER:
      LANES at[i] = at[i] >= 0 && at[i] < size ? at[i] : -1;
      return;
    case AXIS_WRAP:
      for (int i = 0; i < PTX_LANES; i++) {
        if (at[i] >= 0 && at[i] < size) continue;
        at[i] %= size;
        if (at[i] < 0) at[i] += size;
      }
      return;
    case AXIS_MIRROR:
      for (int i = 0; i < PTX_LANES; i++) {
        if (at[i] >= 0 && at[i] < size) continue;
        s64 turned = (s64)at[i] % (2 * (s64)size);
        if (turned < 0) turned += 2 * (s64)size;
        at[i] = (s32)(turned < size ? turned : 2 * (s64)size - 1 - turned);
      }
      return;
    default:
      LANES at[i] = at[i] < 0 ? 0 : at[i] > last ? last : at[i];
  }
}

static void texels_by_integers(struct ptx_texels *to, const s32 *x, const s32 *offset) {
  const s64 most = 1 << 30; /* larger than any size */
  LANES {
    const s64 at = (s64)x[i] + offset[i];
    to->at[0][i] = (s32)WITHIN(at, -most, most);
  }
}

/* Mirrors a coordinate: the result is between 0 and 1, and runs backwards in every second period. */
static inline float mirrored(float x) {
  const float whole = floorf(x), part = x - whole, half = whole * 0.5f;
  return half != floorf(half) ? 1.0f - part : part;
}

static void texel_axis(struct ptx_texels *to, const void *coordinates, const s32 *offset,
                       const struct ptx_axis *a) {
  static const s32 none[PTX_LANES] = {0};
  if (offset == NULL) offset = none;
  if (a->integers) {
    texels_by_integers(to, coordinates, offset);
    inside(to->at[0], a);
    return;
  }
  const float *c = coordinates, size = (float)a->size;
  float x[PTX_LANES];
  if (a->normalized && a->turned == AXIS_WRAP) LANES x[i] = (c[i] - floorf(c[i])) * size;
  else if (a->normalized && a->turned == AXIS_MIRROR) LANES x[i] = mirrored(c[i]) * size;
  else if (a->normalized) LANES x[i] = c[i] * size;
  else LANES x[i] = c[i];
  LANES x[i] = WITHIN(x[i], -1048576.0f, 536870912.0f) + (float)offset[i];
  if (!a->filtered) {
    LANES {
      const s32 whole = (s32)x[i];
      to->at[0][i] = whole - (x[i] < (float)whole);
    }
    inside(to->at[0], a);
    return;
  }
  LANES {
    /* floor(v) is the place in 256ths of a texel: whole texels, and the weight as the rest */
    const double v = ((double)x[i] - 0.5) * WEIGHT_ONE + 0.5, texel = v / WEIGHT_ONE;
    const s32 cut = (s32)texel, whole = cut - (texel < (double)cut);
    const s32 rest = (s32)(v - (double)whole * WEIGHT_ONE);
    to->at[0][i] = whole;
    to->at[1][i] = whole + 1;
    to->weight[1][i] = (float)rest / WEIGHT_ONE;
    to->weight[0][i] = 1.0f - to->weight[1][i];
  }
  inside(to->at[0], a);
  inside(to->at[1], a);
}

static uint32_t texel_places(u64 *to, const s32 *x, const s32 *y, const s32 *z, u32 bytes, u64 row,
                             u64 slice) {
  u32 outside = 0;
  LANES {
    const u64 place = (u64)(u32)x[i] * bytes + (u64)(u32)y[i] * row + (u64)(u32)z[i] * slice;
    to[i] = (x[i] | y[i] | z[i]) < 0 ? 0 : place;
  }
  LANES outside |= (u32)((x[i] | y[i] | z[i]) < 0) << i;
  return outside;
}

/* Converts channels of 8 bits, packed in words, to floats from 0 to 1, or leaves them as integers. */
static void texel_bytes(u32 (*to)[PTX_LANES], const u32 *words, u32 channels, bool floats) {
  for (u32 c = 0; c < channels; c++) {
    const u32 shift = 8 * c;
    if (!floats) LANES to[c][i] = words[i] >> shift & 255;
    else LANES {
        const float value = (float)(s32)(words[i] >> shift & 255) / 255.0f;
        memcpy(&to[c][i], &value, 4);
      }
  }
}

/* Adds a corner to a filtered sample. A corner with weight 0 is left out, because it may be an infinity. */
static void texel_add(float (*sum)[PTX_LANES], const float (*texel)[PTX_LANES], const float *weight) {
  for (int c = 0; c < 4; c++) {
    float *s = sum[c];
    const float *t = texel[c];
    LANES s[i] = weight[i] == 0.0f ? s[i] : s[i] + weight[i] * t[i];
  }
}
