/*
 * The ISA does not define how wmma's fragments are distributed. Here registers have a matrix as in memory,
 * row by row (b column by column): 32 lanes' bytes of a register, then those of the next. Usually these are
 * adjacent, and the matrix is used where it is.
 */
#include <string.h>

#include "host/backend/software/ptx/alu/product.h"
#include "host/backend/software/ptx/matrix.h"
#include "host/backend/software/ptx/run/fragment.h"

#define MOST_BYTES (PTX_MATRIX_MOST * 4) /* of a matrix: 32 by 16 doubles */

typedef uint64_t sixteen __attribute__((vector_size(16), aligned(1), may_alias));

/* Compilers make slow string instructions of memcpy for constant lengths of about a hundred bytes. */
static inline void copy_lines(unsigned char *to, const unsigned char *from, uint32_t bytes) {
  if (bytes % 64 != 0) {
    memcpy(to, from, bytes);
    return;
  }
  for (uint32_t i = 0; i < bytes; i += 64) {
    const sixteen *s = (const sixteen *)(const void *)(from + i);
    const sixteen a = s[0], b = s[1], c = s[2], d = s[3];
    sixteen *t = (sixteen *)(void *)(to + i);
    t[0] = a;
    t[1] = b;
    t[2] = c;
    t[3] = d;
  }
}

static inline void copy_row(unsigned char *to, const unsigned char *from, uint32_t bytes) {
  if (bytes == 32) {
    const sixteen *s = (const sixteen *)(const void *)from;
    const sixteen a = s[0], b = s[1];
    ((sixteen *)(void *)to)[0] = a;
    ((sixteen *)(void *)to)[1] = b;
  } else if (bytes == 16) {
    memcpy(to, from, 16);
  } else if (bytes == 8) {
    memcpy(to, from, 8);
  } else {
    copy_lines(to, from, bytes);
  }
}

struct whole {
  const uint32_t *x;
  uint32_t step, bytes; /* of a register, of the matrix */
};

static struct whole whole(const uint32_t *x, enum ptx_type type, uint32_t elements) {
  return (struct whole){x, type == T_F64 ? 256 : 128, elements * ptx_element_bytes(type)};
}

/* Returns the place of the matrix if its registers are adjacent; otherwise NULL. */
static unsigned char *in_place(const struct place *at, const struct whole *w) {
  uint32_t first = w->x[0], end = first + w->bytes;
  if ((first & 3) != REF_FRAME) return NULL;
  const uint32_t *x = w->x;
  for (uint32_t next = first; next < end; next += w->step) {
    if (*x++ != next) return NULL;
  }
  return at->registers + (first & ~3u);
}

static const unsigned char *take(const struct place *at, const struct whole *w, unsigned char *room) {
  const unsigned char *there = in_place(at, w);
  if (there != NULL) return there;
  for (uint32_t from = 0, i = 0; from < w->bytes; from += w->step, i++) {
    uint32_t length = w->bytes - from < w->step ? w->bytes - from : w->step;
    copy_lines(room + from, ptx_operand(at, w->x[i]), length);
  }
  return room;
}

static void put(const struct place *at, const struct whole *w, const unsigned char *from) {
  for (uint32_t to = 0, i = 0; to < w->bytes; to += w->step, i++) {
    uint32_t length = w->bytes - to < w->step ? w->bytes - to : w->step;
    copy_lines(ptx_written(at, w->x[i]), from + to, length);
  }
}

static bool meet(const unsigned char *a, uint32_t a_bytes, const unsigned char *b, uint32_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

/* Products of 4-bit and 1-bit elements: a and b have 8 rows (columns) of 16 bytes. */
static void packed(const struct place *at, const struct product *p, const uint32_t *x) {
  const struct whole wa = {x + 2, 128, 128}, wb = {x + 3, 128, 128}, wc = {x + 4, 128, 256},
                     wd = {x, 128, 256};
  bool four = (p->flags & MX_FOUR) != 0;
  _Alignas(64) unsigned char a[256], b[256], room[256];
  _Alignas(64) uint32_t sums[64];
  memcpy(a, take(at, &wa, room), 128);
  memcpy(b, take(at, &wb, room), 128);
  memcpy(sums, take(at, &wc, room), sizeof sums);
  const struct ptx_product product = {.a = p->types[OF_A],
                                      .b = p->types[OF_B],
                                      .d = T_S32,
                                      .rows = 8,
                                      .columns = 8,
                                      .k = p->s.k,
                                      .saturate = (p->flags & MX_SATURATE) != 0};
  if (four) {
    ptx_unpack_fours(a, 128, p->types[OF_A] == T_S8);
    ptx_unpack_fours(b, 128, p->types[OF_B] == T_S8);
    ptx_multiply(at->worker->alu, &product, a, b, sums, sums);
  } else {
    ptx_multiply_bits(&product, 16, (p->flags & MX_EITHER) != 0, a, b, sums);
  }
  put(at, &wd, (const unsigned char *)sums);
}

void ptx_wmma(const struct place *at, const struct product *p, const uint32_t *x) {
  if ((p->flags & (MX_FOUR | MX_BITS)) != 0) {
    packed(at, p, x);
    return;
  }
  const struct shape s = p->s;
  const struct ptx_alu *alu = at->worker->alu;
  const uint32_t *xa = x + (at->in->u.offset & 0xff), *xb = xa + (at->in->u.offset >> 8 & 0xff),
                 *xc = xb + (at->in->u.offset >> 16 & 0xff);
  const uint32_t elements = s.m * s.n;
  const struct whole wa = whole(xa, p->types[OF_A], s.m * s.k), wb = whole(xb, p->types[OF_B], s.k * s.n),
                     wc = whole(xc, p->types[OF_C], elements), wd = whole(x, p->result, elements);
  _Alignas(64) unsigned char room_a[MOST_BYTES], room_b[MOST_BYTES], room_c[MOST_BYTES], room_d[MOST_BYTES];
  const unsigned char *a = take(at, &wa, room_a), *b = take(at, &wb, room_b), *c = take(at, &wc, room_c);
  if (p->types[OF_C] == T_F16) {
    alu->widen[T_F16]((uint32_t *)(void *)room_d, c, elements, false);
    c = room_d;
  }
  /* d is made where it belongs, unless that is still read. */
  unsigned char *d = p->result == T_F16 ? NULL : in_place(at, &wd);
  if (d != NULL && ((c != d && meet(c, wd.bytes, d, wd.bytes)) || meet(a, wa.bytes, d, wd.bytes))) d = NULL;
  unsigned char *sums = d != NULL ? d : room_d;
  if (p->types[OF_A] == T_F64) {
    _Alignas(32) double turned[PTX_MATRIX_MOST / 2];
    alu->turn_u64((uint64_t *)(void *)turned, (const uint64_t *)(const void *)b, s.n, s.k);
    alu->matrix_f64((double *)(void *)sums, (const double *)(const void *)c, (const double *)(const void *)a,
                    turned, s.m, s.n, s.k);
  } else {
    const struct ptx_product product = {.a = p->types[OF_A],
                                        .b = p->types[OF_B],
                                        .d = p->types[OF_C],
                                        .rows = s.m,
                                        .columns = s.n,
                                        .k = s.k,
                                        .saturate = (p->flags & MX_SATURATE) != 0};
    ptx_multiply(alu, &product, a, b, (const uint32_t *)(const void *)c, (uint32_t *)(void *)sums);
  }
  if (p->result == T_F16) {
    alu->narrow_f16((uint16_t *)(void *)room_c, (const uint32_t *)(const void *)sums, elements);
    sums = room_c;
  }
  if (d == NULL) put(at, &wd, sums);
}

/* The matrix of a load or store: runs (rows or columns) of adjacent elements in memory. */
struct lying {
  uint64_t address, stride; /* of runs, in bytes */
  uint32_t runs, length;    /* of a run, in elements */
  uint32_t bytes;           /* of an element */
  bool turned;              /* elements of a run are not adjacent in the registers */
};

/*
 * Returns the memory of the whole matrix if it is in one range: shared memory of this block, or device memory
 * that this instruction has used before. NULL: resolve run by run.
 */
static unsigned char *in_one_range(const struct place *at, const struct lying *l) {
  const struct block *block = at->warp->block;
  if (block->check != NULL || (l->address & (l->bytes - 1)) != 0) return NULL;
  uint64_t offset = l->address, bytes = (l->runs - 1) * l->stride + l->length * l->bytes;
  enum ptx_space space = at->in->space;
  if (space == S_GENERIC) {
    uint64_t base;
    space = ptx_space_of(offset, &base);
    if (space == S_LOCAL || space == S_PARAM) return NULL;
    offset -= base;
  }
  if (space == S_SHARED) {
    /* further on there is the memory of other blocks */
    uint64_t size = at->worker->launch->shared_bytes;
    if (offset >> PTX_RANK_SHIFT != 0 || offset > size || bytes > size - offset) return NULL;
    return block->shared + offset;
  }
  const struct ptx_region *region = &at->worker->regions[at->pc % PTX_REGION_CACHE];
  offset -= region->address;
  return offset < region->size && bytes <= region->size - offset ? region->bytes + offset : NULL;
}

#define TURNED(name, T)                                                                                      \
  static void name(unsigned char *memory, unsigned char *matrix, const struct lying *l, bool load) {         \
    for (uint32_t i = 0; i < l->runs; i++) {                                                                 \
      T *run = (T *)(void *)(memory + i * l->stride), *to = (T *)(void *)matrix + i;                         \
      if (load)                                                                                              \
        for (uint32_t j = 0; j < l->length; j++) to[j * l->runs] = run[j];                                   \
      else                                                                                                   \
        for (uint32_t j = 0; j < l->length; j++) run[j] = to[j * l->runs];                                   \
    }                                                                                                        \
  }
TURNED(turned_8, uint8_t)
TURNED(turned_16, uint16_t)
TURNED(turned_32, uint32_t)
TURNED(turned_64, uint64_t)

static void copy_all(unsigned char *memory, unsigned char *matrix, const struct lying *l, bool load) {
  if (l->turned) {
    (l->bytes == 1   ? turned_8
     : l->bytes == 2 ? turned_16
     : l->bytes == 4 ? turned_32
                     : turned_64)(memory, matrix, l, load);
    return;
  }
  uint32_t run = l->length * l->bytes;
  for (uint32_t i = 0; i < l->runs; i++) {
    unsigned char *there = memory + i * l->stride, *here = matrix + i * run;
    copy_row(load ? here : there, load ? there : here, run);
  }
}

static bool copy_run(const struct place *at, const struct lying *l, uint32_t number, bool load,
                     unsigned char *matrix) {
  uint32_t bytes = l->bytes, whole = l->length * bytes, lane = number % PTX_LANES;
  uint32_t distance = l->turned ? l->runs * bytes : bytes;
  uint64_t address = l->address + number * l->stride;
  unsigned char *here = matrix + number * (l->turned ? bytes : whole);
  bool aligned = (address & (whole - 1)) == 0;
  unsigned char *memory = aligned ? ptx_resolve(at, at->in->space, lane, address, whole) : NULL;
  if (aligned && memory == NULL) return false;
  for (uint32_t i = 0; i < l->length; i++) {
    unsigned char *one =
        aligned ? memory + i * bytes : ptx_resolve(at, at->in->space, lane, address + i * bytes, bytes);
    if (one == NULL) return false;
    memcpy(load ? here + i * distance : one, load ? one : here + i * distance, bytes);
  }
  return true;
}

bool ptx_wmma_memory(const struct place *at, const uint32_t *x, bool load) {
  const struct ptx_instruction *in = at->in;
  uint32_t rows = in->target & 0xff, columns = in->target >> 8, bytes = ptx_element_bytes(in->type), stride;
  bool by_rows = (in->m & MX_BY_ROWS) != 0, of_b = (in->m & MX_OF_B) != 0;
  memcpy(&stride, ptx_operand(at, in->b), 4);
  const struct lying l = {.address = ptx_matrix_address(at, 0),
                          .stride = (uint64_t)stride * bytes,
                          .runs = by_rows ? rows : columns,
                          .length = by_rows ? columns : rows,
                          .bytes = bytes,
                          .turned = by_rows == of_b};
  const struct whole w = whole(x, in->type, rows * columns);
  _Alignas(64) unsigned char room[MOST_BYTES];
  unsigned char *memory = in_one_range(at, &l), *there = load ? in_place(at, &w) : NULL;
  if (load) {
    if (memory != NULL && there != NULL) {
      copy_all(memory, there, &l, true);
      return true;
    }
    if (memory != NULL) copy_all(memory, room, &l, true);
    for (uint32_t i = 0; memory == NULL && i < l.runs; i++) {
      if (!copy_run(at, &l, i, true, room)) return false;
    }
    put(at, &w, room);
    return true;
  }
  unsigned char *matrix = (unsigned char *)(uintptr_t)take(at, &w, room);
  if (memory != NULL) copy_all(memory, matrix, &l, false);
  for (uint32_t i = 0; memory == NULL && i < l.runs; i++) {
    if (!copy_run(at, &l, i, false, matrix)) return false;
  }
  return true;
}
