#include <string.h>

#include "host/backend/software/ptx/half.h"
#include "host/backend/software/ptx/run/single.h"
#include "host/backend/software/ptx/run/warp.h"

static uint32_t add_float(uint32_t a, uint32_t b) {
  float r = ptx_float(a) + ptx_float(b);
  return r == r ? ptx_bits(r) : 0x7fffffff;
}

static uint16_t add_half(uint16_t a, uint16_t b) {
  return ptx_half_nearest(ptx_bits(ptx_from_half(a) + ptx_from_half(b)));
}
static uint16_t add_bfloat(uint16_t a, uint16_t b) {
  return ptx_bfloat_nearest(ptx_bits(ptx_from_bfloat(a) + ptx_from_bfloat(b)));
}
static uint16_t extreme16(uint16_t a, uint16_t b, bool larger, uint16_t top) {
  if ((a & 0x7fff) > top) return b;
  if ((b & 0x7fff) > top) return a;
  int16_t x = (int16_t)(a ^ (uint16_t)((uint16_t)((int16_t)a >> 15) >> 1));
  int16_t y = (int16_t)(b ^ (uint16_t)((uint16_t)((int16_t)b >> 15) >> 1));
  return (larger ? x > y : x < y) ? a : b;
}

/*
 * An mbarrier: bits 0 to 19 missing arrivals, 20 to 39 arrivals of a phase, 40 to 60 bytes that are expected
 * and have not come (signed: they may come first), 63 changes with each phase. The low half of b arrives, the
 * high half does not come again; c is added to the bytes first. A phase is over when neither is missing.
 */
static uint64_t arrived(uint64_t old, uint64_t b, uint64_t c) {
  uint64_t phase = old & 1ull << 63, of_phase = ((old >> 20) - (b >> 32)) & 0xfffff;
  uint64_t missing = (old - (b & 0xfffff)) & 0xfffff, bytes = ((old >> 40) + c) & 0x1fffff;
  if (missing != 0 || bytes != 0) return phase | bytes << 40 | of_phase << 20 | missing;
  return (phase ^ 1ull << 63) | of_phase << 20 | of_phase;
}

static uint64_t changed(const struct ptx_instruction *in, uint64_t old, uint64_t b, uint64_t c) {
  bool flushes = (in->m & MA_FLUSHES) != 0;
  uint32_t op = MA_OPERATION(in->m);
  switch (in->type) {
    case T_F32:
      if (op == A_ADD && flushes) return ptx_flushed_sum((uint32_t)old, (uint32_t)b);
      if (op == A_ADD) return add_float((uint32_t)old, (uint32_t)b);
      break;
    case T_F64:
      if (op == A_ADD) return ptx_bits64(ptx_double(old) + ptx_double(b));
      break;
    case T_F16:
    case T_BF16:
    case T_F16X2:
    case T_BF16X2: {
      bool half = in->type == T_F16 || in->type == T_F16X2;
      uint64_t r = 0;
      for (uint32_t k = 0; k < in->size; k += 2) {
        uint16_t x = (uint16_t)(old >> k * 8), y = (uint16_t)(b >> k * 8);
        uint16_t z = op == A_ADD ? (half ? add_half(x, y) : add_bfloat(x, y))
                                 : extreme16(x, y, op == A_MAX, half ? 0x7c00 : 0x7f80);
        r |= (uint64_t)z << k * 8;
      }
      return r;
    }
    default:
      break;
  }
  bool is_signed = in->type == T_S32 || in->type == T_S64;
  int64_t so = in->size == 4 ? (int32_t)old : (int64_t)old, sb = in->size == 4 ? (int32_t)b : (int64_t)b;
  switch (op) {
    case A_AND:
      return old & b;
    case A_OR:
      return old | b;
    case A_XOR:
      return old ^ b;
    case A_CAS:
      return old == b ? c : old;
    case A_EXCH:
      return b;
    case A_ADD:
      return old + b;
    case A_INC:
      return old >= b ? 0 : old + 1;
    case A_ARRIVE:
      return arrived(old, b, c);
    case A_DEC:
      return old == 0 || old > b ? b : old - 1;
    case A_MIN:
      return is_signed ? (so < sb ? old : b) : old < b ? old : b;
    default:
      return is_signed ? (so > sb ? old : b) : old > b ? old : b;
  }
}

uint64_t ptx_exchange(const struct ptx_instruction *in, unsigned char *to, uint64_t b, uint64_t c) {
  if (in->size == 8) {
    uint64_t *word = (uint64_t *)(void *)to, old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, changed(in, old, b, c), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
  }
  if (in->size == 4) {
    uint32_t *word = (uint32_t *)(void *)to, old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, (uint32_t)changed(in, old, b, c), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
  }
  uint16_t *word = (uint16_t *)(void *)to, old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, (uint16_t)changed(in, old, b, c), false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

/* Exchanges 16 bytes. The list has the halves of d, of b and of c. */
static bool wide_atomic(const struct place *at, uint32_t mask, const uint64_t *address) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  bool compares = MA_OPERATION(in->m) == A_CAS;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    unsigned char *to = ptx_resolve(at, in->space, lane, address[lane], PTX_WHOLE);
    if (to == NULL) return false;
    uint64_t value[2][2] = {{0}}, old[2];
    for (uint32_t i = 2; i < in->x_count; i++)
      memcpy(&value[i / 2 - 1][i % 2], ptx_operand(at, x[i]) + lane * 8, 8);
    if (compares) ptx_compare_16(to, value[0], value[1], old);
    else ptx_exchange_16(to, value[0], old);
    for (uint32_t i = 0; i < 2; i++) memcpy(at->registers + (x[i] & ~3u) + lane * 8, &old[i], 8);
  }
  return true;
}

bool ptx_atomic(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  if (ptx_atomic_lanes(at, mask)) return true;
  uint64_t address[PTX_LANES];
  ptx_addresses(at, address);
  if (in->size == PTX_WHOLE) return wide_atomic(at, mask, address);
  struct ptx_instruction flushing = *in;
  flushing.m |= MA_FLUSHES;
  const unsigned char *b = ptx_operand(at, in->b), *c = ptx_operand(at, in->c);
  unsigned char *d = in->d == PTX_NONE ? NULL : at->registers + (in->d & ~3u);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    unsigned char *to = ptx_resolve(at, in->space, lane, address[lane], in->size);
    if (to == NULL) return false;
    uint64_t x = 0, y = 0;
    memcpy(&x, b + lane * in->size, in->size);
    if (in->c != PTX_NONE) memcpy(&y, c + lane * in->size, in->size);
    bool device = in->space == S_GLOBAL || (in->space == S_GENERIC && ptx_is_device(address[lane]));
    uint64_t old = ptx_exchange(device ? &flushing : in, to, x, y);
    if (d != NULL) memcpy(d + lane * in->size, &old, in->size);
  }
  return true;
}

bool ptx_copy_async(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  if (ptx_copy_lanes(at, mask)) return true;
  uint64_t to[PTX_LANES];
  ptx_addresses(at, to);
  const unsigned char *from = ptx_operand(at, in->b), *have = ptx_operand(at, in->c);
  uint32_t ignored = 0;
  if (in->x_count > 0) memcpy(&ignored, ptx_operand(at, at->split->frame->function->x[in->x]), 4);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    unsigned char *d = ptx_resolve(at, S_SHARED, lane, to[lane], in->size);
    if (d == NULL) return false;
    uint32_t bytes = in->size;
    if (in->c != PTX_NONE) {
      memcpy(&bytes, have + lane * 4, 4);
      if (bytes > in->size) bytes = in->size;
    }
    if ((ignored >> lane & 1) != 0) bytes = 0;
    uint64_t address;
    memcpy(&address, from + lane * 8, 8);
    address += (uint64_t)(int64_t)(int32_t)in->target;
    if (bytes < in->size) memset(d, 0, in->size);
    if (bytes == 0) continue;
    if ((address & (in->size - 1u)) != 0) {
      ptx_refuse_access(at, PTX_MISALIGNED_ADDRESS, lane, address, in->size, "is not aligned");
      return false;
    }
    const unsigned char *s = ptx_in_global(at, lane, address, bytes);
    if (s == NULL) return false;
    if (bytes == in->size) ptx_copy_once(d, s, bytes);
    else memcpy(d, s, bytes);
  }
  return true;
}
