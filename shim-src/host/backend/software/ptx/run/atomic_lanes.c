/* Other threads use device memory at the same time, but not shared memory: one thread runs a cluster. */
#include <string.h>

#include "host/backend/software/ptx/half.h"
#include "host/backend/software/ptx/run/single.h"
#include "host/backend/software/ptx/run/warp.h"

typedef void lanes_atomic(unsigned char *memory, const uint64_t *to, const void *bv, const void *cv, void *dv,
                          uint32_t mask);

/*
 * `value`: from old, b and c. If another thread changes device memory meanwhile, the operation is repeated.
 * Adjacent lanes with the same address change device memory once: often all lanes add to one counter. The
 * results are kept until then, because d can be b or c.
 */
#define LANES_ATOMIC(name, T, value) LANES_ATOMIC_OF_TWO(name, T, value, value)
#define LANES_ATOMIC_OF_TWO(name, T, value, value_in_device)                                                 \
  static void name##_shared(unsigned char *memory, const uint64_t *to, const void *bv, const void *cv,       \
                            void *dv, uint32_t mask) {                                                       \
    const T *bs = bv, *cs = cv;                                                                              \
    T *d = dv;                                                                                               \
    for (uint32_t left = mask; left != 0; left &= left - 1) {                                                \
      uint32_t lane = (uint32_t)__builtin_ctz(left);                                                         \
      T old, b = bs[lane], c = cs[lane];                                                                     \
      memcpy(&old, memory + to[lane], sizeof old);                                                           \
      T next = (T)(value);                                                                                   \
      (void)b, (void)c;                                                                                      \
      memcpy(memory + to[lane], &next, sizeof next);                                                         \
      d[lane] = old;                                                                                         \
    }                                                                                                        \
  }                                                                                                          \
  static void name##_device(unsigned char *memory, const uint64_t *to, const void *bv, const void *cv,       \
                            void *dv, uint32_t mask) {                                                       \
    const T *bs = bv, *cs = cv;                                                                              \
    T *d = dv, before[PTX_LANES];                                                                            \
    for (uint32_t left = mask, behind; left != 0; left = behind) {                                           \
      uint64_t at = to[__builtin_ctz(left)];                                                                 \
      T *word = (T *)(void *)(memory + at), found = __atomic_load_n(word, __ATOMIC_RELAXED), old;            \
      do {                                                                                                   \
        old = found;                                                                                         \
        for (behind = left; behind != 0 && to[__builtin_ctz(behind)] == at; behind &= behind - 1) {          \
          uint32_t lane = (uint32_t)__builtin_ctz(behind);                                                   \
          T b = bs[lane], c = cs[lane];                                                                      \
          (void)b, (void)c;                                                                                  \
          before[lane] = old;                                                                                \
          old = (T)(value_in_device);                                                                        \
        }                                                                                                    \
      } while (!__atomic_compare_exchange_n(word, &found, old, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));  \
      for (uint32_t done = left ^ behind; done != 0; done &= done - 1)                                       \
        d[__builtin_ctz(done)] = before[__builtin_ctz(done)];                                                \
    }                                                                                                        \
  }

static inline uint32_t add_f32(uint32_t a, uint32_t b) {
  float r = ptx_float(a) + ptx_float(b);
  return r == r ? ptx_bits(r) : 0x7fffffff;
}
static inline uint64_t add_f64(uint64_t a, uint64_t b) {
  return ptx_bits64(ptx_double(a) + ptx_double(b));
}
#define add_device_f32 ptx_flushed_sum
#define add_device_f64 add_f64

#define INTEGERS(S, T, I)                                                                                    \
  LANES_ATOMIC(and_##S, T, old &b)                                                                           \
  LANES_ATOMIC(or_##S, T, old | b)                                                                           \
  LANES_ATOMIC(xor_##S, T, old ^ b)                                                                          \
  LANES_ATOMIC(cas_##S, T, old == b ? c : old)                                                               \
  LANES_ATOMIC(exch_##S, T, b)                                                                               \
  LANES_ATOMIC(add_##S, T, old + b)                                                                          \
  LANES_ATOMIC(inc_##S, T, old >= b ? 0 : old + 1)                                                           \
  LANES_ATOMIC(dec_##S, T, old == 0 || old > b ? b : old - 1)                                                \
  LANES_ATOMIC(min_u##S, T, old < b ? old : b)                                                               \
  LANES_ATOMIC(max_u##S, T, old > b ? old : b)                                                               \
  LANES_ATOMIC(min_s##S, T, (I)old < (I)b ? old : b)                                                         \
  LANES_ATOMIC(max_s##S, T, (I)old > (I)b ? old : b)                                                         \
  LANES_ATOMIC_OF_TWO(add_f##S##_bits, T, add_f##S(old, b), add_device_f##S(old, b))
INTEGERS(32, uint32_t, int32_t)
INTEGERS(64, uint64_t, int64_t)

#define PAIR(name)                                                                                           \
  { name##_shared, name##_device }
#define OF_WIDTH(S)                                                                                          \
  {                                                                                                          \
    [A_AND] = PAIR(and_##S), [A_OR] = PAIR(or_##S), [A_XOR] = PAIR(xor_##S), [A_CAS] = PAIR(cas_##S),        \
    [A_EXCH] = PAIR(exch_##S), [A_ADD] = PAIR(add_##S), [A_INC] = PAIR(inc_##S), [A_DEC] = PAIR(dec_##S),    \
    [A_MIN] = PAIR(min_u##S), [A_MAX] = PAIR(max_u##S)                                                       \
  }
static lanes_atomic *const plain[2][A_ATOMICS][2] = {OF_WIDTH(32), OF_WIDTH(64)};
static lanes_atomic *const of_signed[2][2][2] = {{PAIR(min_s32), PAIR(max_s32)},
                                                 {PAIR(min_s64), PAIR(max_s64)}};
static lanes_atomic *const of_floats[2][2] = {PAIR(add_f32_bits), PAIR(add_f64_bits)};

static lanes_atomic *const *operation(const struct ptx_instruction *in) {
  uint32_t op = MA_OPERATION(in->m), wide = in->size == 8;
  if ((in->size != 4 && in->size != 8) || op >= A_ATOMICS) return NULL;
  switch (in->type) {
    case T_F32:
    case T_F64:
      return op == A_ADD ? of_floats[wide] : NULL;
    case T_F16X2:
    case T_BF16X2:
      return NULL;
    case T_S32:
    case T_S64:
      if (op == A_MIN || op == A_MAX) return of_signed[wide][op == A_MAX];
      break;
    default:
      break;
  }
  return plain[wide][op];
}

bool ptx_atomic_lanes(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  lanes_atomic *const *work = operation(in);
  uint64_t to[PTX_LANES], unused[PTX_LANES];
  uint32_t shape;
  unsigned char *memory = work == NULL ? NULL : ptx_in_one(at, mask, in->size, to, &shape);
  if (memory == NULL) return false;
  const unsigned char *b = ptx_operand(at, in->b), *c = in->c == PTX_NONE ? b : ptx_operand(at, in->c);
  work[memory == at->warp->block->shared ? 0 : 1](
      memory, to, b, c, in->d == PTX_NONE ? (void *)unused : at->registers + (in->d & ~3u), mask);
  return true;
}
