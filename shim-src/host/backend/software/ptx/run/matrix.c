/* Products of 16-bit floats are exact; sums are 32-bit floats'. */
#include <string.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/half.h"
#include "host/backend/software/ptx/matrix.h"
#include "host/backend/software/ptx/alu/product.h"
#include "host/backend/software/ptx/run/fragment.h"

/* Gives the place of element i in a lane's fragment of doubles, as the PTX ISA defines it for mma. */
static void place(struct shape s, int which, uint32_t lane, uint32_t i, uint32_t *row, uint32_t *column) {
  uint32_t group = lane >> 2, in_group = lane & 3;
  bool tall = s.m == 16;
  if (which == OF_A) {
    *row = group + (tall && (i & 1) != 0 ? 8 : 0);
    *column = in_group + (tall ? i >> 1 : i) * 4;
  } else if (which == OF_B) {
    *row = in_group + i * 4;
    *column = group;
  } else {
    *row = group + (i >= 2 ? 8 : 0);
    *column = in_group * 2 + (i & 1);
  }
}

/* Returns one element from registers. `of_lane` counts elements from the first register on. */
static double element(const struct place *at, const uint32_t *x, uint32_t lane, uint32_t of_lane,
                      enum ptx_type type) {
  if (type == T_F64) {
    double d;
    memcpy(&d, ptx_operand(at, x[of_lane]) + lane * 8, 8);
    return d;
  }
  uint32_t word;
  bool half = type == T_F16;
  memcpy(&word, ptx_operand(at, x[half ? of_lane / 2 : of_lane]) + lane * 4, 4);
  return half ? (double)ptx_from_half((uint16_t)(word >> of_lane % 2 * 16)) : (double)ptx_float(word);
}

static void put_element(const struct place *at, const uint32_t *x, uint32_t lane, uint32_t i,
                        enum ptx_type type, double value) {
  if (type == T_F64) {
    memcpy(at->registers + (x[i] & ~3u) + lane * 8, &value, 8);
  } else if (type == T_F16) {
    uint16_t half = ptx_half_of_double(value, 1);
    memcpy(at->registers + (x[i / 2] & ~3u) + lane * 4 + (i & 1) * 2, &half, 2);
  } else {
    float f = (float)value;
    uint32_t word = f == f ? ptx_bits(f) : 0x7fffffff;
    memcpy(at->registers + (x[i] & ~3u) + lane * 4, &word, 4);
  }
}

static void multiply(const struct product *p, const double *a, const double *b, double *c) {
  const struct ptx_alu *alu = ptx_alu_best();
  uint32_t rows = p->s.m, columns = p->s.n, depth = p->s.k;
  if (p->types[OF_A] == T_F64) {
    alu->matrix_f64(c, c, a, b, rows, columns, depth);
    return;
  }
  float x[PTX_MATRIX_MOST], y[PTX_MATRIX_MOST], z[PTX_MATRIX_MOST];
  for (uint32_t i = 0; i < rows * depth; i++) x[i] = (float)a[i];
  for (uint32_t i = 0; i < columns * depth; i++) y[i] = (float)b[i];
  for (uint32_t i = 0; i < rows * columns; i++) z[i] = (float)c[i];
  alu->matrix_f32(z, z, x, y, rows, columns, depth);
  for (uint32_t i = 0; i < rows * columns; i++) c[i] = z[i];
}

static void mma_doubles(const struct place *at, const struct product *p, const uint32_t *x) {
  const struct shape s = p->s;
  uint32_t of[3] = {s.m * s.k / PTX_LANES, s.k * s.n / PTX_LANES, s.m * s.n / PTX_LANES};
  uint32_t columns[3] = {s.k, s.n, s.n}, row, column;
  double matrices[3][PTX_MATRIX_MOST];
  const uint32_t *from = x + of[OF_C];
  for (int which = OF_A; which <= OF_C; which++) {
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
      for (uint32_t i = 0; i < of[which]; i++) {
        place(s, which, lane, i, &row, &column);
        matrices[which][row * columns[which] + column] = element(at, from, lane, i, T_F64);
      }
    }
    from += of[which];
  }
  multiply(p, matrices[OF_A], matrices[OF_B], matrices[OF_C]);
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
    for (uint32_t i = 0; i < of[OF_C]; i++) {
      place(s, OF_C, lane, i, &row, &column);
      put_element(at, x, lane, i, T_F64, matrices[OF_C][row * s.n + column]);
    }
  }
}

/*
 * Collects the rows of a fragment as bytes. A register has 4 bytes of a row; the next registers are for the
 * row 8 below (if a has 16 rows), then for the bytes 16 further on.
 */
static void take_rows(const struct place *at, const uint32_t *x, uint32_t registers, bool tall,
                      uint32_t bytes, unsigned char *to) {
  for (uint32_t i = 0; i < registers; i++) {
    const unsigned char *from = ptx_operand(at, x[i]);
    uint32_t below = tall && (i & 1) != 0 ? 8 : 0, along = 16 * (tall ? i >> 1 : i);
    for (uint32_t row = 0; row < PTX_LANES / 4; row++)
      memcpy(to + (row + below) * bytes + along, from + row * 16, 16);
  }
}

/* A lane has two adjacent elements of a row of c, in two registers, then two of the row 8 below. */
static void pair_up(uint32_t *to, const void *first, const void *second) {
  const uint32_t *a = first, *b = second;
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
    to[lane * 2] = a[lane];
    to[lane * 2 + 1] = b[lane];
  }
}

static void part(void *first, void *second, const uint32_t *from) {
  uint32_t *a = first, *b = second;
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
    a[lane] = from[lane * 2];
    b[lane] = from[lane * 2 + 1];
  }
}

/* Products with rows of 16, 32 or 64 bytes: all except those of doubles. */
static void mma_rows(const struct place *at, const struct product *p, const uint32_t *x) {
  const struct shape s = p->s;
  bool one = (p->flags & MX_BITS) != 0, tall = s.m == 16, half = p->types[OF_C] == T_F16;
  bool sparse = (p->flags & MX_SPARSE) != 0, four = (p->flags & MX_FOUR) != 0;
  uint32_t bytes = s.k * (one ? 1 : four ? 4 : ptx_element_bytes(p->types[OF_A]) * 8) / 8;
  uint32_t of_c = at->in->size, of_a = s.m * bytes / (sparse ? 256 : 128), of_b = s.n * bytes / 128;
  const uint32_t *xa = x + of_c, *xb = xa + of_a, *xc = xb + of_b;
  unsigned char a[16 * 128], b[8 * 128], full[16 * 32];
  uint32_t c[16 * 8];
  take_rows(at, xa, of_a, tall, sparse ? bytes / 2 : bytes, sparse ? full : a);
  if (sparse) ptx_spread(p->types[OF_A], s.m, bytes, ptx_operand(at, xc[of_c]), at->in->type, full, a);
  take_rows(at, xb, of_b, false, bytes, b);
  if (four) {
    ptx_unpack_fours(a, s.m * bytes, p->types[OF_A] == T_S8);
    ptx_unpack_fours(b, s.n * bytes, p->types[OF_B] == T_S8);
  }
  for (uint32_t i = 0; i < s.m / 8; i++) {
    uint32_t *to = c + i * PTX_LANES * 2;
    if (half) at->worker->alu->widen[T_F16](to, ptx_operand(at, xc[i]), PTX_LANES * 2, false);
    else pair_up(to, ptx_operand(at, xc[i * 2]), ptx_operand(at, xc[i * 2 + 1]));
  }
  const struct ptx_product product = {.a = p->types[OF_A],
                                      .b = p->types[OF_B],
                                      .d = p->types[OF_C],
                                      .rows = s.m,
                                      .columns = 8,
                                      .k = s.k,
                                      .saturate = (p->flags & MX_SATURATE) != 0};
  if (one) ptx_multiply_bits(&product, bytes, at->in->type != 0, a, b, c);
  else ptx_multiply(at->worker->alu, &product, a, b, c, c);
  for (uint32_t i = 0; i < s.m / 8; i++) {
    const uint32_t *from = c + i * PTX_LANES * 2;
    if (half) at->worker->alu->narrow_f16((uint16_t *)(void *)ptx_written(at, x[i]), from, PTX_LANES * 2);
    else part(ptx_written(at, x[i * 2]), ptx_written(at, x[i * 2 + 1]), from);
  }
}

/* m8n8k4 of halves: four products at once, each of two quads of lanes (4q.. and 16 + 4q..). */
static void mma_quads(const struct place *at, const struct product *p, const uint32_t *x) {
  uint32_t of_c = at->in->size;
  const uint32_t *xa = x + of_c, *xb = xa + 2, *xc = xb + 2;
  bool wide = p->types[OF_C] == T_F32;
  for (uint32_t q = 0; q < 4; q++) {
    double a[32], b[32], c[64];
    for (uint32_t t = 0; t < 8; t++) {
      uint32_t lane = (t & 3) + q * 4 + (t >= 4 ? 16 : 0), low = t >= 4 ? 4 : 0;
      for (uint32_t i = 0; i < 4; i++) {
        double va = element(at, xa, lane, i, T_F16), vb = element(at, xb, lane, i, T_F16);
        if ((p->flags & MX_A_COLUMNS) != 0) a[(i + low) * 4 + (lane & 3)] = va;
        else a[((lane & 3) + low) * 4 + i] = va;
        if ((p->flags & MX_B_ROWS) != 0) b[(lane & 3) * 8 + i + low] = vb;
        else b[i * 8 + (lane & 3) + low] = vb;
      }
      for (uint32_t i = 0; i < 8; i++) {
        uint32_t row = wide ? (lane & 1) + (i & 2) + low : (lane & 3) + low;
        uint32_t column = wide ? (i & 4) + (lane & 2) + (i & 1) : i;
        c[row * 8 + column] = element(at, xc, lane, i, p->types[OF_C]);
      }
    }
    multiply(p, a, b, c);
    for (uint32_t t = 0; t < 8; t++) {
      uint32_t lane = (t & 3) + q * 4 + (t >= 4 ? 16 : 0), low = t >= 4 ? 4 : 0;
      for (uint32_t i = 0; i < 8; i++) {
        uint32_t row = wide ? (lane & 1) + (i & 2) + low : (lane & 3) + low;
        uint32_t column = wide ? (i & 4) + (lane & 2) + (i & 1) : i;
        put_element(at, x, lane, i, p->types[OF_C], c[row * 8 + column]);
      }
    }
  }
}

uint64_t ptx_matrix_address(const struct place *at, uint32_t lane) {
  const struct ptx_instruction *in = at->in;
  const unsigned char *base = ptx_operand(at, in->a);
  if ((in->m & ML_NARROW) != 0) {
    uint32_t a;
    memcpy(&a, base + lane * 4, 4);
    return (uint32_t)(a + (uint32_t)in->u.offset) |
           (in->u.offset >> 32 != 0 && in->u.offset >> 32 != 0xffffffff ? in->u.offset & ~0xffffffffull : 0);
  }
  uint64_t a;
  memcpy(&a, base + lane * 8, 8);
  return a + in->u.offset;
}

/* Rows of eight 16-bit elements; lanes from 8j on have the addresses of matrix j. */
static bool rows_of_eight(const struct place *at, const uint32_t *x, bool load) {
  const struct ptx_instruction *in = at->in;
  bool transposed = (in->m & MX_TRANSPOSED) != 0;
  for (uint32_t j = 0; j < in->x_count; j++) {
    unsigned char *row[8];
    uint16_t values[8][8];
    for (uint32_t r = 0; r < 8; r++) {
      row[r] = ptx_resolve(at, in->space, j * 8 + r, ptx_matrix_address(at, j * 8 + r), 16);
      if (row[r] == NULL) return false;
      if (load) memcpy(values[r], row[r], 16);
    }
    unsigned char *registers = at->registers + (x[j] & ~3u);
    const unsigned char *source = ptx_operand(at, x[j]);
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
      for (uint32_t h = 0; h < 2; h++) {
        uint32_t r = lane >> 2, c = (lane & 3) * 2 + h;
        uint16_t *value = transposed ? &values[c][r] : &values[r][c];
        if (load) memcpy(registers + lane * 4 + h * 2, value, 2);
        else memcpy(value, source + lane * 4 + h * 2, 2);
      }
    }
    for (uint32_t r = 0; r < 8 && !load; r++) memcpy(row[r], values[r], 16);
  }
  return true;
}

static void transpose(const struct place *at) {
  uint16_t values[8][8];
  unsigned char *d = at->registers + (at->in->d & ~3u);
  const unsigned char *a = ptx_operand(at, at->in->a);
  for (uint32_t lane = 0; lane < PTX_LANES; lane++)
    memcpy(&values[lane >> 2][(lane & 3) * 2], a + lane * 4, 4);
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
    for (uint32_t h = 0; h < 2; h++) memcpy(d + lane * 4 + h * 2, &values[(lane & 3) * 2 + h][lane >> 2], 2);
  }
}

bool ptx_matrix(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  if (mask != FULL) {
    ptx_raise(at, PTX_TRAP, (uint32_t)__builtin_ctz(mask), 0,
              "a matrix instruction without all lanes of the warp");
    return false;
  }
  switch (in->kind) {
    case K_LDMATRIX:
      return rows_of_eight(at, x, true);
    case K_STMATRIX:
      return rows_of_eight(at, x, false);
    case K_MOVMATRIX:
      transpose(at);
      return true;
    case K_WMMA_LOAD:
      return ptx_wmma_memory(at, x, true);
    case K_WMMA_STORE:
      return ptx_wmma_memory(at, x, false);
    default:
      break;
  }
  struct product p = {.s = {in->target & 0xff, in->target >> 8 & 0xff, in->target >> 16},
                      .types = {in->m & 0xff, in->m >> 8 & 0xff, in->m >> 16 & 0xff},
                      .result = in->type,
                      .flags = in->m >> 24};
  if ((p.flags & MX_WMMA) != 0) ptx_wmma(at, &p, x);
  else if (p.s.m == 8 && p.types[OF_A] == T_F16) mma_quads(at, &p, x);
  else if (p.types[OF_A] == T_F64) mma_doubles(at, &p, x);
  else mma_rows(at, &p, x);
  return true;
}
