/*
 * Each of the group's four warps computes its 16 rows of d when it comes to the instruction. wait_group waits
 * for all four, so that a warp may then overwrite memory that the others read.
 */
#include "host/backend/software/ptx/wgmma.h"

#include <string.h>

#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/half.h"
#include "host/backend/software/ptx/alu/product.h"
#include "host/backend/software/ptx/run/warp.h"

#define GROUP 4u /* warps */
#define ROWS 16u /* rows of a and d for one warp */

struct operands {
  const struct place *at;
  const uint32_t *x;
  enum ptx_type a, b, d;
  uint32_t flags, n, k;
};

/* A matrix in shared memory. Distances are in bytes. */
struct descriptor {
  uint64_t start, leading, stride;
  uint32_t width; /* of its swizzle, in units of 16 bytes; 1: none */
  uint32_t base;
};

static struct descriptor described(const struct place *at, uint32_t reference) {
  static const uint8_t widths[4] = {1, 8, 4, 2};
  uint64_t bits;
  memcpy(&bits, ptx_operand(at, reference), 8);
  return (struct descriptor){.start = (bits & 0x3fff) << 4,
                             .leading = (bits >> 16 & 0x3fff) << 4,
                             .stride = (bits >> 32 & 0x3fff) << 4,
                             .base = (uint32_t)(bits >> 49) & 7,
                             .width = widths[bits >> 62]};
}

/* Returns the 16 bytes at `offset` from the descriptor's start. NULL: a fault was raised. */
static const unsigned char *chunk(const struct place *at, const struct descriptor *d, uint64_t offset) {
  struct block *block = at->warp->block;
  uint64_t address = d->start + offset;
  address ^= (((address >> 7) - d->base) & (d->width - 1)) << 4;
  address &= 0x3ffff;
  uint32_t size = at->worker->launch->shared_bytes;
  if (size < 16 || address > size - 16) {
    ptx_raise(at, PTX_ILLEGAL_ADDRESS, 0, address,
              "a matrix of a wgmma that is outside of the block's shared memory");
    return NULL;
  }
  if (block->check != NULL) ptx_check_shared(at, block, 0, address, 16);
  return block->shared + address;
}

/* Reads `count` rows from `first` on. 8 rows of 16 bytes are adjacent (more bytes with a swizzle). */
static bool rows_of(const struct place *at, const struct descriptor *d, uint32_t first, uint32_t count,
                    uint32_t bytes, unsigned char *to) {
  if (d->width > 1 && d->width * 16 < bytes) {
    ptx_raise(at, PTX_UNSUPPORTED, 0, d->start, "a matrix of a wgmma whose rows are wider than its swizzle");
    return false;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t row = first + i;
    for (uint32_t k = 0; k < bytes / 16; k++) {
      uint64_t offset = (uint64_t)(row & 7) * d->width * 16 + (row >> 3) * d->stride +
                        k * (d->width == 1 ? d->leading : 16);
      const unsigned char *from = chunk(at, d, offset);
      if (from == NULL) return false;
      memcpy(to + i * bytes + k * 16, from, 16);
    }
  }
  return true;
}

/* Like rows_of, for a transposed matrix: columns of 16-bit elements, 8 rows in 16 bytes. */
static bool columns_of(const struct place *at, const struct descriptor *d, uint32_t first, uint32_t count,
                       uint32_t bytes, unsigned char *to) {
  for (uint32_t i = 0; i < count; i += 8) {
    uint64_t j = (first + i) / 8;
    uint64_t across = d->width == 1 ? j * d->stride : j % d->width * 16 + j / d->width * d->leading;
    for (uint32_t k = 0; k < bytes / 2; k++) {
      uint64_t along =
          (uint64_t)(k & 7) * d->width * 16 + (k >> 3) * (d->width == 1 ? d->leading : d->stride);
      const unsigned char *from = chunk(at, d, across + along);
      if (from == NULL) return false;
      for (uint32_t r = 0; r < 8; r++) memcpy(to + (i + r) * bytes + k * 2, from + r * 2, 2);
    }
  }
  return true;
}

static bool take_a(const struct operands *p, unsigned char *to) {
  const struct place *at = p->at;
  const uint32_t *x = p->x + at->in->size;
  if ((p->flags & WG_A_REGISTERS) != 0) {
    for (uint32_t i = 0; i < 4; i++) {
      const unsigned char *from = ptx_operand(at, x[i]);
      for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        uint32_t row = (lane >> 2) + 8 * (i & 1), byte = (lane & 3) * 4 + 16 * (i >> 1);
        memcpy(to + row * WG_ROW_BYTES + byte, from + lane * 4, 4);
      }
    }
    return true;
  }
  struct descriptor d = described(at, x[0]);
  uint32_t first = at->warp->number % GROUP * ROWS;
  return (p->flags & WG_TRANSPOSE_A) != 0 ? columns_of(at, &d, first, ROWS, WG_ROW_BYTES, to)
                                          : rows_of(at, &d, first, ROWS, WG_ROW_BYTES, to);
}

static bool take_b(const struct operands *p, uint32_t bytes, unsigned char *to) {
  struct descriptor d = described(p->at, p->x[p->at->in->x_count - 1]);
  return (p->flags & WG_TRANSPOSE_B) != 0 ? columns_of(p->at, &d, 0, p->n, bytes, to)
                                          : rows_of(p->at, &d, 0, p->n, bytes, to);
}

static unsigned char *register_of(const struct operands *p, uint32_t i) {
  return p->at->registers + (p->x[i] & ~3u);
}

/*
 * Finds an element of d, as the ISA distributes them: two adjacent ones in two registers (in one, for
 * halves), then 8 rows below, then 8 columns further on.
 */
static uint32_t *element(const struct operands *p, uint32_t *c, uint32_t i, uint32_t lane) {
  return c + ((lane >> 2) + 8 * (i >> 1 & 1)) * p->n + (i >> 2) * 8 + (lane & 3) * 2 + (i & 1);
}

static void take_d(const struct operands *p, uint32_t *c) {
  for (uint32_t i = 0; i < p->n / 2; i++) {
    const unsigned char *from = register_of(p, p->d == T_F16 ? i / 2 : i);
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
      uint16_t half;
      uint32_t *to = element(p, c, i, lane);
      if (p->d == T_F16) {
        memcpy(&half, from + lane * 4 + (i & 1) * 2, 2);
        *to = ptx_bits(ptx_from_half(half));
      } else {
        memcpy(to, from + lane * 4, 4);
      }
    }
  }
}

static void put_d(const struct operands *p, uint32_t *c) {
  for (uint32_t i = 0; i < p->n / 2; i++) {
    unsigned char *to = register_of(p, p->d == T_F16 ? i / 2 : i);
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
      const uint32_t *from = element(p, c, i, lane);
      if (p->d == T_F16) {
        uint16_t half = ptx_half_nearest(*from);
        memcpy(to + lane * 4 + (i & 1) * 2, &half, 2);
      } else {
        memcpy(to + lane * 4, from, 4);
      }
    }
  }
}

/* Warps of the group that wait for this warp try again. */
static void wake(const struct warp *warp) {
  const struct block *block = warp->block;
  uint32_t first = warp->number / GROUP * GROUP;
  for (uint32_t i = first; i < first + GROUP && i < block->warp_count; i++) {
    for (uint32_t k = 0; k < block->warps[i].leaf_count; k++) {
      struct split *split = block->warps[i].leaves[k];
      if (split->state == SPLIT_EVENT) split->state = SPLIT_READY;
    }
  }
}

bool ptx_wgmma(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  struct operands p = {.at = at,
                       .x = at->split->frame->function->x + in->x,
                       .a = in->m & 0xff,
                       .b = in->m >> 8 & 0xff,
                       .d = in->m >> 16 & 0xff,
                       .flags = in->m >> 24,
                       .n = in->target};
  if (mask != FULL) {
    ptx_raise(at, PTX_TRAP, (uint32_t)__builtin_ctz(mask), 0, "a wgmma without all lanes of the warp");
    return false;
  }
  bool sparse = (p.flags & WG_SPARSE) != 0;
  uint32_t bytes = sparse ? 2 * WG_ROW_BYTES : WG_ROW_BYTES;
  p.k = bytes / ptx_type_bytes(p.a);
  unsigned char there[ROWS * WG_ROW_BYTES], full[2 * sizeof there], b[2 * WG_N_MOST * WG_ROW_BYTES];
  const unsigned char *a = there;
  uint32_t c[ROWS * WG_N_MOST];
  if (!take_a(&p, there) || !take_b(&p, bytes, b)) return false;
  if (sparse) {
    ptx_spread(p.a, ROWS, bytes, ptx_operand(at, p.x[in->x_count - 2]), in->type, there, full);
    a = full;
  }
  uint32_t add = ptx_predicate(at, in->a);
  if ((add & 1) != 0) take_d(&p, c);
  else memset(c, 0, ROWS * p.n * sizeof *c);
  const struct ptx_product product = {.a = p.a,
                                      .b = p.b,
                                      .d = p.d,
                                      .rows = ROWS,
                                      .columns = p.n,
                                      .k = p.k,
                                      .negate_a = (p.flags & WG_NEGATE_A) != 0,
                                      .negate_b = (p.flags & WG_NEGATE_B) != 0,
                                      .saturate = (p.flags & WG_SATURATE) != 0};
  if ((p.flags & WG_BITS) != 0) ptx_multiply_bits(&product, WG_ROW_BYTES, false, a, b, c);
  else ptx_multiply(at->worker->alu, &product, a, b, c, c);
  put_d(&p, c);
  at->warp->products++;
  wake(at->warp);
  return true;
}

bool ptx_wgmma_done(const struct warp *warp) {
  const struct block *block = warp->block;
  uint32_t first = warp->number / GROUP * GROUP;
  for (uint32_t i = first; i < first + GROUP && i < block->warp_count; i++) {
    const struct warp *other = &block->warps[i];
    if ((other->fresh || other->leaf_count > 0) && other->products < warp->products) return false;
  }
  return true;
}
