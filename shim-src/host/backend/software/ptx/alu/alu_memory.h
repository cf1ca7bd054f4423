#include "host/backend/software/ptx/run/single.h"

#define HALF for (int i = 0; i < PTX_LANES / 2; i++)

static const u64 lane_index[PTX_LANES / 2] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/*
 * Returns the shape if all lanes have one address, or the lanes of each half have adjacent addresses, as in
 * most accesses; 0: another shape.
 */
static inline uint32_t simple_shape(const u64 *to, const struct ptx_reach *r) {
  const u64 low = to[0], high = to[PTX_LANES / 2], size = 1ull << r->shift;
  const int shift = r->shift;
  u64 other = 0;
  bool steps = to[1] - low == size;
  if (steps) {
    HALF other |= (to[i] ^ (low + (lane_index[i] << shift))) |
                  (to[PTX_LANES / 2 + i] ^ (high + (lane_index[i] << shift)));
  } else {
    HALF other |= (to[i] ^ low) | (to[PTX_LANES / 2 + i] ^ high);
  }
  if (other != 0) return 0;
  const u64 length = steps ? 15 * size : 0;
  if ((((low + r->base) | (high + r->base)) & r->align) != 0 || low > r->limit || high > r->limit ||
      low + length > r->limit || high + length > r->limit) {
    return REACH_OUTSIDE;
  }
  return steps ? REACH_NO_HALVES : REACH_NO_STEPS;
}

static uint32_t reach_lanes(u64 *restrict to, const void *address, u32 mask, const struct ptx_reach *r) {
  const u64 offset = r->offset, base = r->base, limit = r->limit, lane_distance = r->lane_distance;
  if (r->narrow) {
    const u32 *a = address;
    LANES to[i] = (u64)(u32)(a[i] + (u32)offset) - base;
  } else {
    const u64 *a = address;
    const u64 add = offset - base;
    LANES to[i] = a[i] + add;
  }
  if (mask != 0xffffffffu) {
    const u64 instead = to[r->lane];
    LANES to[i] = (mask >> i & 1) != 0 ? to[i] : instead;
  } else if (lane_distance == 0) {
    const uint32_t shape = simple_shape(to, r);
    if (shape != 0) return shape;
  }
  /* alignment concerns the lowest bits, the bound gets one above them */
  const u64 align = r->align;
  u64 wrong = 0, same = 0, steps = 0;
  LANES wrong |= ((to[i] + base) & align) | (to[i] > limit ? 1ull << 32 : 0);
  if (wrong != 0) return REACH_OUTSIDE;
  if (lane_distance != 0) {
    LANES to[i] += (u64)i * lane_distance;
    return REACH_NO_HALVES | REACH_NO_STEPS;
  }
  if (mask == 0xffffffffu) return REACH_NO_HALVES | REACH_NO_STEPS;
  const int shift = r->shift;
  const u64 low = to[0], high = to[PTX_LANES / 2];
  HALF same |= (to[i] ^ low) | (to[PTX_LANES / 2 + i] ^ high);
  if (same == 0) return REACH_NO_STEPS;
  if (r->loads) {
    /* If the lanes of `mask` have a constant step, the others get it, too, where that is allowed. */
    const int here = (int)r->lane, there = (mask >> 16) != 0 ? 16 + __builtin_ctz(mask >> 16) : here;
    const u64 begin = to[here] - ((u64)(here & 15) << shift), next = to[there] - ((u64)(there & 15) << shift);
    const u64 length = 15ull << shift;
    HALF steps |= ((mask >> i & 1) != 0 ? to[i] ^ (begin + (lane_index[i] << shift)) : 0) |
                  ((mask >> i >> 16 & 1) != 0 ? to[16 + i] ^ (next + (lane_index[i] << shift)) : 0);
    if (steps == 0 && begin <= limit && next <= limit && begin + length <= limit && next + length <= limit) {
      HALF to[i] = begin + (lane_index[i] << shift);
      HALF to[16 + i] = next + (lane_index[i] << shift);
      return REACH_NO_HALVES;
    }
    steps = 0;
  }
  HALF steps |= (to[i] ^ (low + (lane_index[i] << shift))) |
                (to[PTX_LANES / 2 + i] ^ (high + (lane_index[i] << shift)));
  return REACH_NO_HALVES | (steps != 0 ? REACH_NO_STEPS : 0);
}

#define BLEND(U)                                                                                             \
  static void blend_##U(void *dv, const void *from, u32 mask) {                                              \
    U *d = dv;                                                                                               \
    const U *s = from;                                                                                       \
    LANES d[i] = (mask >> i & 1) != 0 ? s[i] : d[i];                                                         \
  }
BLEND(u16)
BLEND(u32)
BLEND(u64)

/*
 * One check for the warp: the lanes of each half are at one place, or side by side. False: another shape, or
 * a place that is not allowed; nothing was done.
 */
#define STRAIGHT(name, A, R, shapes, copy)                                                                   \
  AS_KERNELS_DO static bool name(void *registers, const void *address, const struct ptx_straight *s) {       \
    const A *a = address, low = a[0], high = a[PTX_LANES / 2];                                               \
    const A step = (A)(a[1] - low);                                                                          \
    if (!(shapes)) return false;                                                                             \
    A other = 0;                                                                                             \
    HALF other |= (A)((a[i] ^ (A)(low + (A)i * step)) | (a[PTX_LANES / 2 + i] ^ (A)(high + (A)i * step)));   \
    const u64 first = (A)(low + (A)s->offset), second = (A)(high + (A)s->offset), end = 15 * (u64)step;      \
    const u64 from = first - s->base, next = second - s->base, most = s->size - sizeof(R) - end;             \
    if (other != 0 || ((first | second) & (sizeof(R) - 1)) != 0 || s->size < sizeof(R) + end ||              \
        from > most || next > most)                                                                          \
      return false;                                                                                          \
    R *r = registers;                                                                                        \
    unsigned char *one = s->memory + from, *two = s->memory + next;                                          \
    copy;                                                                                                    \
    return true;                                                                                             \
  }
#define LOAD_STRAIGHT(R)                                                                                     \
  if (step != 0) {                                                                                           \
    memcpy(r, one, sizeof(R) * PTX_LANES / 2);                                                               \
    memcpy(r + PTX_LANES / 2, two, sizeof(R) * PTX_LANES / 2);                                               \
  } else {                                                                                                   \
    R x, y;                                                                                                  \
    memcpy(&x, one, sizeof x);                                                                               \
    memcpy(&y, two, sizeof y);                                                                               \
    HALF r[i] = x;                                                                                           \
    HALF r[PTX_LANES / 2 + i] = y;                                                                           \
  }
#define STORE_STRAIGHT(R)                                                                                    \
  memcpy(one, r, sizeof(R) * PTX_LANES / 2);                                                                 \
  memcpy(two, r + PTX_LANES / 2, sizeof(R) * PTX_LANES / 2);
#define STRAIGHTS(R)                                                                                         \
  STRAIGHT(load_narrow_##R, u32, R, step == 0 || step == sizeof(R), LOAD_STRAIGHT(R))                        \
  STRAIGHT(load_wide_##R, u64, R, step == 0 || step == sizeof(R), LOAD_STRAIGHT(R))                          \
  STRAIGHT(store_narrow_##R, u32, R, step == sizeof(R), STORE_STRAIGHT(R))                                   \
  STRAIGHT(store_wide_##R, u64, R, step == sizeof(R), STORE_STRAIGHT(R))
STRAIGHTS(u16)
STRAIGHTS(u32)
STRAIGHTS(u64)
#define ALL_STRAIGHT(f)                                                                                      \
  { [1] = f##_u16, [2] = f##_u32, [3] = f##_u64 }

/* M in memory, R in the register. */
#define GATHER(M, R)                                                                                         \
  AS_KERNELS_DO static void gather_##M##_##R(void *dv, const unsigned char *memory, const u64 *to,           \
                                             u32 shape, u32 mask) {                                          \
    _Alignas(64) R kept[PTX_LANES];                                                                          \
    R *d = mask == 0xffffffffu ? dv : kept;                                                                  \
    if ((shape & REACH_NO_HALVES) == 0) {                                                                    \
      M low, high;                                                                                           \
      memcpy(&low, memory + to[0], sizeof low);                                                              \
      memcpy(&high, memory + to[PTX_LANES / 2], sizeof high);                                                \
      HALF d[i] = (R)low;                                                                                    \
      HALF d[PTX_LANES / 2 + i] = (R)high;                                                                   \
    } else if ((shape & REACH_NO_STEPS) == 0) {                                                              \
      M m[PTX_LANES];                                                                                        \
      memcpy(m, memory + to[0], sizeof m / 2);                                                               \
      memcpy(m + PTX_LANES / 2, memory + to[PTX_LANES / 2], sizeof m / 2);                                   \
      LANES d[i] = (R)m[i];                                                                                  \
    } else {                                                                                                 \
      for (int i = 0; i < PTX_LANES; i++) {                                                                  \
        M m;                                                                                                 \
        memcpy(&m, memory + to[i], sizeof m);                                                                \
        d[i] = (R)m;                                                                                         \
      }                                                                                                      \
    }                                                                                                        \
    if (d != dv) {                                                                                           \
      R *all = dv;                                                                                           \
      LANES all[i] = (mask >> i & 1) != 0 ? kept[i] : all[i];                                                \
    }                                                                                                        \
  }
GATHER(u8, u16)
GATHER(u8, u32)
GATHER(u8, u64)
GATHER(s8, u16)
GATHER(s8, u32)
GATHER(s8, u64)
GATHER(u16, u16)
GATHER(u16, u32)
GATHER(u16, u64)
GATHER(s16, u32)
GATHER(s16, u64)
GATHER(u32, u32)
GATHER(u32, u64)
GATHER(s32, u64)
GATHER(u64, u64)

#define SCATTER(M, R)                                                                                        \
  AS_KERNELS_DO static void scatter_##M##_##R(unsigned char *memory, const void *av, const u64 *to,          \
                                              u32 shape, u32 mask) {                                         \
    const R *a = av;                                                                                         \
    if (mask == 0xffffffffu && (shape & REACH_NO_STEPS) == 0) {                                              \
      M m[PTX_LANES];                                                                                        \
      LANES m[i] = (M)a[i];                                                                                  \
      memcpy(memory + to[0], m, sizeof m / 2);                                                               \
      memcpy(memory + to[PTX_LANES / 2], m + PTX_LANES / 2, sizeof m / 2);                                   \
      return;                                                                                                \
    }                                                                                                        \
    for (u32 left = mask; left != 0; left &= left - 1) {                                                     \
      int i = __builtin_ctz(left);                                                                           \
      M m = (M)a[i];                                                                                         \
      memcpy(memory + to[i], &m, sizeof m);                                                                  \
    }                                                                                                        \
  }
SCATTER(u8, u16)
SCATTER(u8, u32)
SCATTER(u8, u64)
SCATTER(u16, u16)
SCATTER(u16, u32)
SCATTER(u16, u64)
SCATTER(u32, u32)
SCATTER(u32, u64)
SCATTER(u64, u64)

/* Vectors of 16 bytes, each by one access. */
AS_KERNELS_DO static void gather_whole(void *dv, const unsigned char *memory, const u64 *to, u32 shape,
                                       u32 mask) {
  (void)shape;
  (void)mask; /* all lanes: each has its place */
  ptx_16_bytes *d = dv;
  for (int i = 0; i < PTX_LANES; i++) d[i] = *(const volatile ptx_16_bytes_anywhere *)(memory + to[i]);
}
AS_KERNELS_DO static void scatter_whole(unsigned char *memory, const void *av, const u64 *to, u32 shape,
                                        u32 mask) {
  (void)shape;
  const ptx_16_bytes *a = av;
  for (u32 left = mask; left != 0; left &= left - 1) {
    int i = __builtin_ctz(left);
    *(volatile ptx_16_bytes_anywhere *)(memory + to[i]) = a[i];
  }
}

#define DEAL_OF(M, R, count)                                                                                 \
  LANES kept[i] = (R)m[i * (count)];                                                                         \
  break;
#define DEAL(M, R)                                                                                           \
  static void deal_##M##_##R(void *dv, const void *vectors, u32 count, u32 mask) {                           \
    _Alignas(64) R kept[PTX_LANES];                                                                          \
    R *d = dv;                                                                                               \
    const M *m = vectors;                                                                                    \
    switch (count) {                                                                                         \
      case 2:                                                                                                \
        DEAL_OF(M, R, 2)                                                                                     \
      case 4:                                                                                                \
        DEAL_OF(M, R, 4)                                                                                     \
      default:                                                                                               \
        DEAL_OF(M, R, 8)                                                                                     \
    }                                                                                                        \
    if (mask == 0xffffffffu) memcpy(d, kept, sizeof kept);                                                   \
    else LANES d[i] = (mask >> i & 1) != 0 ? kept[i] : d[i];                                                 \
  }
DEAL(u8, u16)
DEAL(u8, u32)
DEAL(u8, u64)
DEAL(s8, u16)
DEAL(s8, u32)
DEAL(s8, u64)
DEAL(u16, u16)
DEAL(u16, u32)
DEAL(u16, u64)
DEAL(s16, u32)
DEAL(s16, u64)
DEAL(u32, u32)
DEAL(u32, u64)
DEAL(s32, u64)
DEAL(u64, u64)

#define COLLECT_OF(M, count)                                                                                 \
  LANES m[i * (count)] = (M)a[i];                                                                            \
  break;
#define COLLECT(M, R)                                                                                        \
  static void collect_##M##_##R(void *vectors, const void *av, u32 count) {                                  \
    const R *a = av;                                                                                         \
    M *m = vectors;                                                                                          \
    switch (count) {                                                                                         \
      case 2:                                                                                                \
        COLLECT_OF(M, 2)                                                                                     \
      case 4:                                                                                                \
        COLLECT_OF(M, 4)                                                                                     \
      default:                                                                                               \
        COLLECT_OF(M, 8)                                                                                     \
    }                                                                                                        \
  }
COLLECT(u8, u16)
COLLECT(u8, u32)
COLLECT(u8, u64)
COLLECT(u16, u16)
COLLECT(u16, u32)
COLLECT(u16, u64)
COLLECT(u32, u32)
COLLECT(u32, u64)
COLLECT(u64, u64)

/* [memory 1, 2, 4, 8][signed][register 1, 2, 4, 8] */
#define ALL_LOADS(f)                                                                                         \
  {{[1] = f##_u8_u16, [2] = f##_u8_u32, [3] = f##_u8_u64},                                                   \
   {[1] = f##_s8_u16, [2] = f##_s8_u32, [3] = f##_s8_u64}},                                                  \
      {{[1] = f##_u16_u16, [2] = f##_u16_u32, [3] = f##_u16_u64},                                            \
       {[1] = f##_u16_u16, [2] = f##_s16_u32, [3] = f##_s16_u64}},                                           \
      {{[2] = f##_u32_u32, [3] = f##_u32_u64}, {[2] = f##_u32_u32, [3] = f##_s32_u64}}, {                    \
    {[3] = f##_u64_u64}, {                                                                                   \
      [3] = f##_u64_u64                                                                                      \
    }                                                                                                        \
  }
#define ALL_STORES(f)                                                                                        \
  {[1] = f##_u8_u16, [2] = f##_u8_u32, [3] = f##_u8_u64},                                                    \
      {[1] = f##_u16_u16, [2] = f##_u16_u32, [3] = f##_u16_u64}, {[2] = f##_u32_u32, [3] = f##_u32_u64}, {   \
    [3] = f##_u64_u64                                                                                        \
  }
#define ALL_WHOLE_LOADS [1] = gather_u16_u16, [2] = gather_u32_u32, [3] = gather_u64_u64, [4] = gather_whole
#define ALL_WHOLE_STORES                                                                                     \
  [1] = scatter_u16_u16, [2] = scatter_u32_u32, [3] = scatter_u64_u64, [4] = scatter_whole
