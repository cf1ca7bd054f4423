/*
 * Matrix instructions. Fragments in the lanes' registers are collected to whole matrices, multiplied, and
 * distributed again. Products of 16-bit floats are exact; sums are those of 32-bit floats.
 */
#include <string.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/half.h"
#include "host/backend/software/ptx/matrix.h"
#include "host/backend/software/ptx/alu/product.h"
#include "host/backend/software/ptx/run/warp.h"

#define MOST 1024 /* elements of a matrix: 16 by 64 */
enum { OF_A, OF_B, OF_C };

struct shape {
  uint32_t m, n, k;
};

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

/* Returns one element from registers; `of_lane` counts elements from the first register on. */
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
    memcpy(at->registers + (x[i] & ~(PTX_DEFINED | 3u)) + lane * 8, &value, 8);
  } else if (type == T_F16) {
    uint16_t half = ptx_half_of_double(value, 1);
    memcpy(at->registers + (x[i / 2] & ~(PTX_DEFINED | 3u)) + lane * 4 + (i & 1) * 2, &half, 2);
  } else {
    float f = (float)value;
    uint32_t word = f == f ? ptx_bits(f) : 0x7fffffff;
    memcpy(at->registers + (x[i] & ~(PTX_DEFINED | 3u)) + lane * 4, &word, 4);
  }
}

static uint32_t bits_of(enum ptx_type type) {
  switch (type) {
    case T_F16:
    case T_BF16:
      return 16;
    case T_S8:
    case T_U8:
      return 8;
    case T_F64:
      return 64;
    default:
      return 32;
  }
}

struct product {
  struct shape s;
  enum ptx_type types[3], result;
  uint32_t flags;
};

/* Computes c += a b for whole matrices of floats, in the arithmetic of the types. */
static void multiply(const struct product *p, const double *a, const double *b, double *c) {
  const struct ptx_alu *alu = ptx_alu_best();
  uint32_t rows = p->s.m, columns = p->s.n, depth = p->s.k;
  if (p->types[OF_A] == T_F64) {
    alu->matrix_f64(c, a, b, rows, columns, depth);
    return;
  }
  float x[MOST], y[MOST], z[MOST];
  for (uint32_t i = 0; i < rows * depth; i++) x[i] = (float)a[i];
  for (uint32_t i = 0; i < columns * depth; i++) y[i] = (float)b[i];
  for (uint32_t i = 0; i < rows * columns; i++) z[i] = (float)c[i];
  alu->matrix_f32(z, x, y, rows, columns, depth);
  for (uint32_t i = 0; i < rows * columns; i++) c[i] = z[i];
}

/* Products of doubles: a register holds an element. */
static void mma_doubles(const struct place *at, const struct product *p, const uint32_t *x) {
  const struct shape s = p->s;
  uint32_t of[3] = {s.m * s.k / PTX_LANES, s.k * s.n / PTX_LANES, s.m * s.n / PTX_LANES};
  uint32_t columns[3] = {s.k, s.n, s.n}, row, column;
  double matrices[3][MOST];
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

/* Unpacks elements of 4 bits to bytes, in place, from the last one on. */
static void unpack(unsigned char *rows, uint32_t bytes, bool is_signed) {
  for (uint32_t i = bytes; i-- > 0;) {
    unsigned char both = rows[i];
    for (uint32_t k = 2; k-- > 0;) {
      unsigned char value = both >> k * 4 & 15;
      rows[i * 2 + k] = is_signed && value > 7 ? value | 0xf0 : value;
    }
  }
}

/* Products with rows of 16, 32 or 64 bytes: all except those of doubles. */
static void mma_rows(const struct place *at, const struct product *p, const uint32_t *x) {
  const struct shape s = p->s;
  bool one = (p->flags & MX_BITS) != 0, tall = s.m == 16, half = p->types[OF_C] == T_F16;
  bool sparse = (p->flags & MX_SPARSE) != 0, four = (p->flags & MX_FOUR) != 0;
  uint32_t bytes = s.k * (one ? 1 : four ? 4 : ptx_type_bytes(p->types[OF_A]) * 8) / 8;
  uint32_t of_c = at->in->size, of_a = s.m * bytes / (sparse ? 256 : 128), of_b = s.n * bytes / 128;
  const uint32_t *xa = x + of_c, *xb = xa + of_a, *xc = xb + of_b;
  unsigned char a[16 * 128], b[8 * 128], full[16 * 32];
  uint32_t c[16 * 8];
  take_rows(at, xa, of_a, tall, sparse ? bytes / 2 : bytes, sparse ? full : a);
  if (sparse) ptx_spread(p->types[OF_A], s.m, bytes, ptx_operand(at, xc[of_c]), at->in->type, full, a);
  take_rows(at, xb, of_b, false, bytes, b);
  if (four) {
    unpack(a, s.m * bytes, p->types[OF_A] == T_S8);
    unpack(b, s.n * bytes, p->types[OF_B] == T_S8);
  }
  /* A lane has two adjacent elements of a row, then two of the row 8 below. */
  for (uint32_t i = 0; i < s.m / 4; i++) {
    const unsigned char *from = ptx_operand(at, xc[half ? i / 2 : i]);
    uint32_t *to = c + (i >= 2 ? PTX_LANES * 2 : 0) + (i & 1);
    if (half) {
      const uint16_t *element = (const uint16_t *)(const void *)from + (i & 1);
      for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        to[lane * 2] = ptx_bits(ptx_from_half(element[lane * 2]));
    } else {
      const uint32_t *element = (const uint32_t *)(const void *)from;
      for (uint32_t lane = 0; lane < PTX_LANES; lane++) to[lane * 2] = element[lane];
    }
  }
  const struct ptx_product product = {.a = p->types[OF_A],
                                      .b = p->types[OF_B],
                                      .d = p->types[OF_C],
                                      .rows = s.m,
                                      .columns = 8,
                                      .k = s.k,
                                      .saturate = (p->flags & MX_SATURATE) != 0};
  if (one) ptx_multiply_bits(&product, bytes, at->in->type != 0, a, b, c);
  else ptx_multiply(at->worker->alu, &product, a, b, c);
  for (uint32_t i = 0; i < s.m / 4; i++) {
    unsigned char *d = at->registers + (x[half ? i / 2 : i] & ~(PTX_DEFINED | 3u));
    const uint32_t *from = c + (i >= 2 ? PTX_LANES * 2 : 0) + (i & 1);
    if (half) {
      uint16_t *to = (uint16_t *)(void *)d + (i & 1);
      for (uint32_t lane = 0; lane < PTX_LANES; lane++) to[lane * 2] = ptx_half_nearest(from[lane * 2]);
    } else {
      const uint32_t most = p->types[OF_C] == T_F32 ? 0x7f800000 : 0xffffffff; /* values above it are NaN */
      uint32_t *to = (uint32_t *)(void *)d;
      for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        uint32_t value = from[lane * 2];
        to[lane] = (value & 0x7fffffff) > most ? 0x7fffffff : value;
      }
    }
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

/*
 * The ISA does not define how fragments of wmma are distributed. Here registers have a matrix as in memory,
 * row by row (b column by column): 32 lanes' bytes of a register, then those of the next register.
 */
static void take_whole(const struct place *at, const uint32_t *x, enum ptx_type type, uint32_t elements,
                       void *to) {
  uint32_t bytes = elements * bits_of(type) / 8, step = PTX_LANES * (type == T_F64 ? 8 : 4);
  for (uint32_t from = 0; from < bytes; from += step) {
    uint32_t length = bytes - from < step ? bytes - from : step;
    memcpy((unsigned char *)to + from, ptx_operand(at, x[from / step] & ~PTX_DEFINED), length);
  }
}

static void put_whole(const struct place *at, const uint32_t *x, enum ptx_type type, uint32_t elements,
                      const void *from) {
  uint32_t bytes = elements * bits_of(type) / 8, step = PTX_LANES * (type == T_F64 ? 8 : 4);
  for (uint32_t to = 0; to < bytes; to += step) {
    uint32_t length = bytes - to < step ? bytes - to : step;
    memcpy(at->registers + (x[to / step] & ~(PTX_DEFINED | 3u)), (const unsigned char *)from + to, length);
  }
}

static void wmma_doubles(const struct place *at, const struct shape s, const uint32_t *const x[4]) {
  double a[MOST], b[MOST] = {0}, turned[MOST], c[MOST];
  take_whole(at, x[1], T_F64, s.m * s.k, a);
  take_whole(at, x[2], T_F64, s.k * s.n, turned);
  take_whole(at, x[3], T_F64, s.m * s.n, c);
  for (uint32_t k = 0; k < s.k; k++)
    for (uint32_t j = 0; j < s.n; j++) b[k * s.n + j] = turned[j * s.k + k];
  at->worker->alu->matrix_f64(c, a, b, s.m, s.n, s.k);
  put_whole(at, x[0], T_F64, s.m * s.n, c);
}

static void wmma(const struct place *at, const struct product *p, const uint32_t *x) {
  const struct shape s = p->s;
  const uint32_t *operands[4] = {x};
  for (uint32_t i = 0; i < 3; i++) operands[i + 1] = operands[i] + (at->in->u.offset >> i * 8 & 0xff);
  if (p->types[OF_A] == T_F64) {
    wmma_doubles(at, s, operands);
    return;
  }
  _Alignas(8) unsigned char a[MOST * 4], b[MOST * 4];
  uint32_t c[MOST], elements = s.m * s.n;
  uint16_t halves[MOST];
  take_whole(at, operands[1], p->types[OF_A], s.m * s.k, a);
  take_whole(at, operands[2], p->types[OF_B], s.k * s.n, b);
  if (p->types[OF_C] == T_F16) {
    take_whole(at, operands[3], T_F16, elements, halves);
    for (uint32_t i = 0; i < elements; i++) c[i] = ptx_bits(ptx_from_half(halves[i]));
  } else {
    take_whole(at, operands[3], p->types[OF_C], elements, c);
  }
  const struct ptx_product product = {.a = p->types[OF_A],
                                      .b = p->types[OF_B],
                                      .d = p->types[OF_C],
                                      .rows = s.m,
                                      .columns = s.n,
                                      .k = s.k,
                                      .saturate = (p->flags & MX_SATURATE) != 0};
  ptx_multiply(at->worker->alu, &product, a, b, c);
  if (p->result == T_F16) {
    for (uint32_t i = 0; i < elements; i++) halves[i] = ptx_half_nearest(c[i]);
    put_whole(at, operands[0], T_F16, elements, halves);
    return;
  }
  for (uint32_t i = 0; p->result == T_F32 && i < elements; i++)
    c[i] = (c[i] & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : c[i];
  put_whole(at, operands[0], p->result, elements, c);
}

static uint64_t address_of(const struct place *at, uint32_t lane) {
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
      row[r] = ptx_resolve(at, in->space, j * 8 + r, address_of(at, j * 8 + r), 16);
      if (row[r] == NULL) return false;
      if (load) memcpy(values[r], row[r], 16);
    }
    unsigned char *registers = at->registers + (x[j] & ~(PTX_DEFINED | 3u));
    const unsigned char *source = ptx_operand(at, x[j] & ~PTX_DEFINED);
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

/* A row or column in memory, where its elements are adjacent, and in the matrix, where they may not be. */
static bool wmma_run(const struct place *at, uint32_t number, uint64_t address, uint32_t length, bool load,
                     unsigned char *matrix, uint32_t apart) {
  const struct ptx_instruction *in = at->in;
  uint32_t bytes = bits_of(in->type) / 8, whole = length * bytes, lane = number % PTX_LANES;
  bool aligned = (address & (whole - 1)) == 0;
  unsigned char *memory = aligned ? ptx_resolve(at, in->space, lane, address, whole) : NULL;
  if (aligned && memory == NULL) return false;
  if (aligned && apart == bytes) {
    memcpy(load ? matrix : memory, load ? memory : matrix, whole);
    return true;
  }
  for (uint32_t i = 0; i < length; i++) {
    unsigned char *one =
        aligned ? memory + i * bytes : ptx_resolve(at, in->space, lane, address + i * bytes, bytes);
    if (one == NULL) return false;
    memcpy(load ? matrix + i * apart : one, load ? one : matrix + i * apart, bytes);
  }
  return true;
}

static bool wmma_memory(const struct place *at, const uint32_t *x, bool load) {
  const struct ptx_instruction *in = at->in;
  uint32_t rows = in->target & 0xff, columns = in->target >> 8, bytes = bits_of(in->type) / 8, stride;
  bool by_rows = (in->m & MX_BY_ROWS) != 0, of_b = (in->m & MX_OF_B) != 0;
  uint32_t runs = by_rows ? rows : columns, length = by_rows ? columns : rows;
  /* distance of elements, and of rows or columns, in the matrix */
  uint32_t apart = by_rows != of_b ? 1 : runs, next = by_rows != of_b ? length : 1;
  _Alignas(8) unsigned char matrix[MOST * 8];
  memcpy(&stride, ptx_operand(at, in->b), 4);
  if (!load) take_whole(at, x, in->type, rows * columns, matrix);
  for (uint32_t i = 0; i < runs; i++) {
    uint64_t address = address_of(at, 0) + (uint64_t)i * stride * bytes;
    if (!wmma_run(at, i, address, length, load, matrix + i * next * bytes, apart * bytes)) return false;
  }
  if (load) put_whole(at, x, in->type, rows * columns, matrix);
  return true;
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
      return wmma_memory(at, x, true);
    case K_WMMA_STORE:
      return wmma_memory(at, x, false);
    default:
      break;
  }
  struct product p = {.s = {in->target & 0xff, in->target >> 8 & 0xff, in->target >> 16},
                      .types = {in->m & 0xff, in->m >> 8 & 0xff, in->m >> 16 & 0xff},
                      .result = in->type,
                      .flags = in->m >> 24};
  if ((p.flags & MX_WMMA) != 0) wmma(at, &p, x);
  else if (p.s.m == 8 && p.types[OF_A] == T_F16) mma_quads(at, &p, x);
  else if (p.types[OF_A] == T_F64) mma_doubles(at, &p, x);
  else mma_rows(at, &p, x);
  return true;
}
