/*
 * tensor_im2col: copies columns of images by descriptors of im2col mode and checks every byte; for
 * tensor_map.test.ts. The expected bytes are computed as a convolution does it: the number of a pixel among
 * all bounding boxes is divided into its position in each dimension.
 */
#include "check.h"

typedef uint64_t address;
enum { SHARED = 16384, HIGHEST = 5, NOTHING = 0xee };

struct map {
  _Alignas(64) unsigned char bytes[128];
};

struct image {
  const char *name;
  int type, bytes; /* of CUtensorMapDataType */
  int rank;
  uint64_t dim[HIGHEST]; /* C W (H (D)) N */
  uint32_t step[HIGHEST];
  int lower[3], upper[3];
  int channels, pixels, swizzle;
  int first[HIGHEST]; /* where the copy begins; W, H and D: how many steps from the lower corner */
  int offset[3];
};

static const struct image images[] = {
    {"3d", 2, 4, 3, {8, 20, 3}, {1, 1, 1}, {0}, {0}, 4, 17, 0, {4, 5, 1}, {0}},
    {"3d strided", 7, 4, 3, {8, 21, 3}, {1, 3, 1}, {-2}, {-1}, 8, 16, 0, {0, 3, 0}, {2}},
    {"3d past the last image", 2, 4, 3, {8, 6, 2}, {1, 1, 1}, {0}, {0}, 4, 16, 0, {0, 4, 1}, {0}},
    {"4d padded", 1, 2, 4, {16, 9, 7, 3}, {1, 1, 1, 1}, {-1, -1}, {-1, -1}, 8, 64, 0, {8, 3, 2, 0}, {0, 2}},
    {"4d last offset",
     1,
     2,
     4,
     {16, 9, 7, 3},
     {1, 1, 1, 1},
     {-1, -1},
     {-1, -1},
     8,
     64,
     0,
     {0, 8, 6, 1},
     {2, 2}},
    {"4d strided",
     6,
     2,
     4,
     {24, 11, 9, 2},
     {1, 2, 3, 1},
     {-2, -1},
     {-2, -1},
     16,
     33,
     1,
     {16, 1, 1, 0},
     {4, 1}},
    {"4d narrow box",
     0,
     1,
     4,
     {32, 12, 10, 2},
     {1, 1, 1, 1},
     {3, 2},
     {-4, -5},
     32,
     40,
     0,
     {0, 2, 1, 0},
     {1, 1}},
    {"4d swizzled",
     6,
     2,
     4,
     {64, 8, 8, 2},
     {1, 1, 1, 1},
     {-1, -1},
     {-1, -1},
     64,
     60,
     3,
     {0, 4, 4, 0},
     {1, 2}},
    {"4d beyond the channels",
     7,
     4,
     4,
     {12, 6, 6, 2},
     {1, 1, 1, 1},
     {0, 0},
     {0, 0},
     8,
     20,
     0,
     {8, 1, 1, 0},
     {0}},
    {"5d",
     2,
     4,
     5,
     {4, 6, 5, 4, 2},
     {1, 1, 1, 1, 1},
     {-1, -1, -1},
     {-1, -1, -1},
     4,
     200,
     0,
     {0, 2, 1, 3, 0},
     {2, 0, 1}},
    {"5d strided",
     7,
     4,
     5,
     {8, 7, 6, 5, 2},
     {1, 2, 2, 3, 1},
     {-1, 0, -2},
     {0, -1, 1},
     8,
     30,
     1,
     {0, 0, 1, 0, 0},
     {0, 1, 2}},
};

static uint64_t stride(const struct image *m, int d) { /* bytes; of dimension 0 those of an element */
  if (d == 0) return (uint64_t)m->bytes;
  uint64_t bytes = (m->dim[0] * (uint64_t)m->bytes + 15) / 16 * 16;
  for (int i = 1; i < d; i++) bytes *= m->dim[i];
  return bytes;
}

static uint64_t size(const struct image *m) {
  return stride(m, m->rank);
}

static int encode(const struct image *m, address at, int interleave, struct map *map) {
  uint64_t strides[HIGHEST - 1] = {0};
  for (int d = 1; d < m->rank; d++) strides[d - 1] = stride(m, d);
  return CALL(cuTensorMapEncodeIm2col,
              (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const int *, const int *,
               uint32_t, uint32_t, const uint32_t *, int, int, int, int),
              map, m->type, (uint32_t)m->rank, (void *)(uintptr_t)at, m->dim, strides, m->lower, m->upper,
              (uint32_t)m->channels, (uint32_t)m->pixels, m->step, interleave, m->swizzle, 0, 0);
}

/* Returns which byte of the image is byte `b` of pixel `i`; -1: none. */
static int64_t source(const struct image *m, int i, int b, bool with_offsets) {
  int64_t number = 0, at = 0;
  int64_t counts[HIGHEST];
  for (int d = 1; d < m->rank - 1; d++)
    counts[d] = ((int64_t)m->dim[d] - 1 + m->upper[d - 1] - m->lower[d - 1]) / m->step[d] + 1;
  for (int d = m->rank - 1; d > 0; d--) number = (d == m->rank - 1 ? 0 : number * counts[d]) + m->first[d];
  number += i;
  for (int d = 1; d < m->rank; d++) {
    int64_t x = number;
    if (d < m->rank - 1) {
      x = m->lower[d - 1] + number % counts[d] * m->step[d] + (with_offsets ? m->offset[d - 1] : 0);
      number /= counts[d];
    }
    if (x < 0 || x >= (int64_t)m->dim[d]) return -1;
    at += x * (int64_t)stride(m, d);
  }
  int64_t channel = m->first[0] + b / m->bytes;
  return channel >= (int64_t)m->dim[0] ? -1 : at + m->first[0] * m->bytes + b;
}

/* Returns the place of the byte in shared memory: the swizzle exchanges pieces of 16 bytes. */
static int place(const struct image *m, int i, int b) {
  int pitch = m->swizzle == 0 ? m->channels * m->bytes : 16 << m->swizzle, at = i * pitch + b;
  return at ^ (at / 128 % (1 << m->swizzle)) * 16;
}

/*
 * "load", "store" or "reduce". The kernel sets `done` if the number of bytes that arrived is that of a
 * column.
 */
static void *kernel(const struct image *m, const char *what, bool tile) {
  static char text[8192];
  char at[64] = "", from[64] = "";
  int length = 0;
  for (int d = 0; d < m->rank; d++)
    length += snprintf(at + length, sizeof at - (size_t)length, "%s%%r%d", d == 0 ? "" : ", ", 10 + d);
  length = 0;
  for (int d = 0; d < m->rank - 2; d++)
    length += snprintf(from + length, sizeof from - (size_t)length, "%s%%h%d", d == 0 ? "" : ", ", d);
  char copy[512];
  if (tile)
    snprintf(copy, sizeof copy,
             "cp.async.bulk.tensor.%dd.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
             " [%%r2], [%%rd1, {%s}], [%%r3];\n",
             m->rank, at);
  else if (strcmp(what, "load") == 0)
    snprintf(copy, sizeof copy,
             "cp.async.bulk.tensor.%dd.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
             " [%%r2], [%%rd1, {%s}], [%%r3], {%s};\n",
             m->rank, at, from);
  else
    snprintf(copy, sizeof copy,
             "cp.%sasync.bulk.tensor.%dd.global.shared::cta%s.im2col_no_offs.bulk_group"
             " [%%rd1, {%s}], [%%r2];\n"
             "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n",
             strcmp(what, "reduce") == 0 ? "reduce." : "", m->rank, strcmp(what, "reduce") == 0 ? ".add" : "",
             at);
  length =
      snprintf(text, sizeof text,
               ".version 8.4\n.target sm_90a\n.address_size 64\n"
               ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 memory, .param .u64 done)\n{\n"
               "  .shared .align 1024 .b8 tile[%d];\n  .shared .align 8 .b64 barrier;\n"
               "  .reg .b32 %%r<20>; .reg .b64 %%rd<8>; .reg .b16 %%h<3>; .reg .pred %%p<4>;\n"
               "  mov.b64 %%rd1, map;\n  cvta.param.u64 %%rd1, %%rd1;\n"
               "  ld.param.u64 %%rd2, [memory];\n  ld.param.u64 %%rd3, [done];\n"
               "  mov.u32 %%r2, tile;\n  mov.u32 %%r3, barrier;\n"
               "  mbarrier.init.shared::cta.b64 [%%r3], 1;\n  fence.mbarrier_init.release.cluster;\n"
               "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%r3], %d;\n"
               "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%%r2], [%%rd2], %d, "
               "[%%r3];\n"
               "first:\n  mbarrier.try_wait.parity.shared::cta.b64 %%p1, [%%r3], 0;\n  @!%%p1 bra first;\n"
               "  mov.u32 %%r4, 0;\n",
               SHARED, SHARED, SHARED);
  for (int d = 0; d < m->rank; d++) {
    bool spatial = d > 0 && d < m->rank - 1;
    int x = spatial ? m->lower[d - 1] + m->first[d] * (int)m->step[d] : m->first[d];
    length += snprintf(text + length, sizeof text - (size_t)length, "  mov.u32 %%r%d, %d;\n", 10 + d, x);
    if (spatial)
      length += snprintf(text + length, sizeof text - (size_t)length, "  mov.u16 %%h%d, %d;\n", d - 1,
                         m->offset[d - 1]);
  }
  snprintf(text + length, sizeof text - (size_t)length,
           "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%r3], %d;\n  %s"
           "again:\n  add.u32 %%r4, %%r4, 1;\n"
           "  mbarrier.try_wait.parity.shared::cta.b64 %%p1, [%%r3], 1;\n"
           "  setp.lt.u32 %%p2, %%r4, 1000;\n  not.pred %%p3, %%p1;\n  and.pred %%p2, %%p2, %%p3;\n"
           "  @%%p2 bra again;\n  selp.u32 %%r5, 1, 0, %%p1;\n  st.global.u32 [%%rd3], %%r5;\n"
           "  cp.async.bulk.global.shared::cta.bulk_group [%%rd2], [%%r2], %d;\n"
           "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\n  ret;\n}\n",
           strcmp(what, "load") == 0 ? m->channels * m->bytes * m->pixels : 0, copy, SHARED);
  void *module, *function;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "k"));
  return function;
}

static int launch(void *function, struct map *map, address memory, address done) {
  void *parameters[] = {map, &memory, &done};
  MUST(CALL(cuLaunchKernel,
            (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
             void **),
            function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  return CALL(cuCtxSynchronize, (void));
}

static void put(address to, const void *from, size_t bytes) {
  MUST(CALL(cuMemcpyHtoD_v2, (address, const void *, size_t), to, from, bytes));
}

static void get(void *to, address from, size_t bytes) {
  MUST(CALL(cuMemcpyDtoH_v2, (void *, address, size_t), to, from, bytes));
}

/* Small numbers, also as floats, because their sums are exact. */
static void number(const struct image *m, unsigned char *to, size_t bytes, unsigned seed) {
  for (size_t i = 0; i + (size_t)m->bytes <= bytes; i += (size_t)m->bytes) {
    seed = seed * 1664525 + 1013904223;
    uint32_t value = seed >> 20 & 127;
    float as_float = (float)value;
    memcpy(to + i, m->type == 7 ? (void *)&as_float : (void *)&value, (size_t)m->bytes);
  }
}

static void add(const struct image *m, unsigned char *to, const unsigned char *from) {
  float a, b;
  uint32_t x, y;
  memcpy(&a, to, 4);
  memcpy(&b, from, 4);
  memcpy(&x, to, 4);
  memcpy(&y, from, 4);
  a += b;
  x += y;
  memcpy(to, m->type == 7 ? (void *)&a : (void *)&x, 4);
}

static void check(const struct image *m, const char *what, address image, address memory, address done) {
  static unsigned char in[1 << 20], shared[SHARED], have[1 << 20], want[1 << 20];
  bool load = strcmp(what, "load") == 0;
  size_t bytes = size(m), row = (size_t)(m->channels * m->bytes);
  number(m, in, bytes, 1);
  number(m, shared, SHARED, 2);
  if (load) memset(shared, NOTHING, SHARED);
  memcpy(want, load ? shared : in, load ? SHARED : bytes);
  for (int i = 0; i < m->pixels; i++) {
    for (size_t b = 0; b < row; b += (size_t)m->bytes) {
      int64_t from = source(m, i, (int)b, load);
      unsigned char *at = shared + place(m, i, (int)b);
      if (load && from < 0) memset(want + place(m, i, (int)b), 0, (size_t)m->bytes);
      else if (load) memcpy(want + place(m, i, (int)b), in + from, (size_t)m->bytes);
      else if (from >= 0 && what[0] == 's') memcpy(want + from, at, (size_t)m->bytes);
      else if (from >= 0) add(m, want + from, at);
    }
  }
  struct map map;
  MUST(encode(m, image, 0, &map));
  put(image, in, bytes);
  put(memory, shared, SHARED);
  int result = launch(kernel(m, what, false), &map, memory, done);
  uint32_t complete = 0;
  if (result == 0) {
    get(&complete, done, sizeof complete);
    get(have, load ? memory : image, load ? SHARED : bytes);
  }
  int wrong = 0;
  for (size_t i = 0; i < (load ? SHARED : bytes); i++) wrong += have[i] != want[i];
  printf("%s %s %d complete %u wrong %d\n", m->name, what, result, complete, wrong);
}

static void refusals(address image) {
  struct map map;
  static const struct {
    const char *what;
    int channels, pixels, lower, upper, rank, interleave;
  } cases[] = {{"as it is", 8, 64, -1, -1, 4, 0},           {"no channels", 0, 64, -1, -1, 4, 0},
               {"12 bytes", 6, 64, -1, -1, 4, 0},           {"257 channels", 257, 64, -1, -1, 4, 0},
               {"no pixels", 8, 0, -1, -1, 4, 0},           {"1024 pixels", 8, 1024, -1, -1, 4, 0},
               {"1025 pixels", 8, 1025, -1, -1, 4, 0},      {"corner -128", 8, 64, -128, 127, 4, 0},
               {"corner -129", 8, 64, -129, -1, 4, 0},      {"corner 128", 8, 64, -1, 128, 4, 0},
               {"corner -129 of 3", 8, 64, -129, -1, 3, 0}, {"corner 16 of 5", 8, 64, -1, 16, 5, 0},
               {"interleaved", 8, 64, -1, -1, 4, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct image m = {.type = 1,
                      .bytes = 2,
                      .rank = cases[i].rank,
                      .dim = {16, 9, 7, 3, 2},
                      .step = {1, 1, 1, 1, 1},
                      .lower = {cases[i].lower},
                      .upper = {cases[i].upper},
                      .channels = cases[i].channels,
                      .pixels = cases[i].pixels};
    printf("%s %d\n", cases[i].what, encode(&m, image, cases[i].interleave, &map));
  }
}

int main(void) {
  check_library = dlopen("libcuda.so.1", RTLD_NOW);
  if (check_library == NULL) return 3;
  void *context;
  MUST(CALL(cuInit, (unsigned), 0));
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
  address image, memory, done;
  MUST(CALL(cuMemAlloc_v2, (address *, size_t), &image, 1 << 20));
  MUST(CALL(cuMemAlloc_v2, (address *, size_t), &memory, SHARED));
  MUST(CALL(cuMemAlloc_v2, (address *, size_t), &done, 4));
  for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
    check(&images[i], "load", image, memory, done);
    check(&images[i], "store", image, memory, done);
    if (images[i].bytes == 4) check(&images[i], "reduce", image, memory, done);
  }
  refusals(image);
  struct map map;
  MUST(encode(&images[3], image, 0, &map));
  printf("as a tile %d\n", launch(kernel(&images[3], "load", true), &map, memory, done));
  return 0;
}
