/*
 * The work of test/bench/kernels/common.cu as loops of C on one thread; compiled with -O3 -march=native.
 *
 *   common_bench NAME [DIR]    prints the nanoseconds that the processor took; with DIR, writes the kernel's
 *                              inputs to DIR/NAME.1, DIR/NAME.2 and so on, and the result to DIR/NAME.want
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define INPUTS 4

static uint32_t state = 1;
static uint32_t next(void) {
  state ^= state << 13;
  state ^= state >> 17;
  return state ^= state << 5;
}
static float unit(void) {
  return (float)(next() >> 8) / 16777216.0f;
}

/* The arrays of a case: the result, and what it is made of. */
struct work {
  void *out;
  size_t out_bytes;
  void *in[INPUTS];
  size_t in_bytes[INPUTS];
};

static void *room(size_t bytes) {
  void *to = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (to == NULL) exit(1);
  return memset(to, 0, bytes);
}
static void *result(struct work *w, size_t bytes) {
  w->out_bytes = bytes;
  return w->out = room(bytes);
}
static void *input(struct work *w, int k, size_t bytes) {
  w->in_bytes[k] = bytes;
  return w->in[k] = room(bytes);
}
static float *floats(struct work *w, int k, size_t count, float low, float high) {
  float *to = input(w, k, count * 4);
  for (size_t i = 0; i < count; i++) to[i] = low + (high - low) * unit();
  return to;
}
static uint32_t *numbers(struct work *w, int k, size_t count) {
  uint32_t *to = input(w, k, count * 4);
  for (size_t i = 0; i < count; i++) to[i] = next();
  return to;
}

/* Each case is made, then timed. */
typedef void maker(struct work *w);
typedef void runner(struct work *w);

#define MANY (1u << 20)

static void make_saxpy(struct work *w) {
  result(w, MANY * 4);
  floats(w, 0, MANY, -1, 1);
}
static void saxpy(struct work *w) {
  float *restrict y = w->out;
  const float *restrict x = w->in[0];
  for (uint32_t i = 0; i < MANY; i++) y[i] = 1.5f * x[i] + y[i];
}

#define PARTS 64u
static void make_reduce(struct work *w) {
  result(w, PARTS * 4);
  floats(w, 0, MANY, 0, 1);
}
static void reduce(struct work *w) {
  float *out = w->out;
  const float *in = w->in[0];
  for (uint32_t i = 0; i < MANY; i += 256) {
    float sum = 0;
    for (uint32_t k = 0; k < 256; k++) sum += in[i + k];
    out[i / 256 % PARTS] += sum;
  }
}

#define SIDE 256u
static void make_matmul(struct work *w) {
  result(w, SIDE * SIDE * 4);
  floats(w, 0, SIDE * SIDE, -1, 1);
  floats(w, 1, SIDE * SIDE, -1, 1);
}
static void matmul(struct work *w) {
  float *restrict c = w->out;
  const float *restrict a = w->in[0], *restrict b = w->in[1];
  for (uint32_t i = 0; i < SIDE; i++) {
    for (uint32_t k = 0; k < SIDE; k++) {
      for (uint32_t j = 0; j < SIDE; j++) c[i * SIDE + j] += a[i * SIDE + k] * b[k * SIDE + j];
    }
  }
}

#define ROWS 16384u
static void make_spmv(struct work *w) {
  result(w, ROWS * 4);
  uint32_t *rows = input(w, 0, (ROWS + 1) * 4);
  for (uint32_t i = 0; i < ROWS; i++) rows[i + 1] = rows[i] + 16 + next() % 33;
  uint32_t *columns = numbers(w, 1, rows[ROWS]);
  for (uint32_t i = 0; i < rows[ROWS]; i++) columns[i] %= ROWS;
  floats(w, 2, rows[ROWS], -1, 1);
  floats(w, 3, ROWS, -1, 1);
}
static void spmv(struct work *w) {
  float *y = w->out;
  const uint32_t *rows = w->in[0], *columns = w->in[1];
  const float *values = w->in[2], *x = w->in[3];
  for (uint32_t r = 0; r < ROWS; r++) {
    float sum = 0;
    for (uint32_t i = rows[r]; i < rows[r + 1]; i++) sum += values[i] * x[columns[i]];
    y[r] = sum;
  }
}

#define GRID 1024u
static void make_stencil(struct work *w) {
  result(w, (GRID + 2) * (GRID + 2) * 4);
  floats(w, 0, (GRID + 2) * (GRID + 2), 0, 1);
}
static void stencil(struct work *w) {
  const uint32_t pitch = GRID + 2;
  for (uint32_t y = 1; y <= GRID; y++) {
    float *restrict to = (float *)w->out + y * pitch;
    const float *restrict at = (const float *)w->in[0] + y * pitch;
    for (uint32_t x = 1; x <= GRID; x++)
      to[x] = 0.5f * at[x] + 0.125f * (at[x - 1] + at[x + 1] + at[(int)(x - pitch)] + at[x + pitch]);
  }
}

#define BODIES 2048u
static void make_nbody(struct work *w) {
  result(w, BODIES * 16);
  floats(w, 0, BODIES * 4, -1, 1);
}
static void nbody(struct work *w) {
  static float x[BODIES], y[BODIES], z[BODIES], m[BODIES];
  const float *b = w->in[0];
  float *out = w->out;
  for (uint32_t i = 0; i < BODIES; i++)
    x[i] = b[i * 4], y[i] = b[i * 4 + 1], z[i] = b[i * 4 + 2], m[i] = b[i * 4 + 3];
  for (uint32_t k = 0; k < BODIES; k++) {
    for (uint32_t i = 0; i < BODIES; i++) {
      float dx = x[k] - x[i], dy = y[k] - y[i], dz = z[k] - z[i];
      float r = 1.0f / sqrtf(dx * dx + dy * dy + dz * dz + 0.01f), s = m[k] * r * r * r;
      out[i * 4] += dx * s;
      out[i * 4 + 1] += dy * s;
      out[i * 4 + 2] += dz * s;
    }
  }
}

#define OPTIONS (1u << 17)
static void make_blackscholes(struct work *w) {
  result(w, OPTIONS * 8);
  floats(w, 0, OPTIONS, 5, 30);
  floats(w, 1, OPTIONS, 1, 100);
  floats(w, 2, OPTIONS, 0.25f, 10);
}
static float normal(float d) {
  float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
  float p =
      0.39894228f * expf(-0.5f * d * d) *
      (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
  return d > 0 ? 1.0f - p : p;
}
static void blackscholes(struct work *w) {
  float *call = w->out, *put = call + OPTIONS;
  const float *price = w->in[0], *strike = w->in[1], *years = w->in[2], rate = 0.02f, volatility = 0.3f;
  for (uint32_t i = 0; i < OPTIONS; i++) {
    float s = price[i], x = strike[i], t = years[i], root = sqrtf(t);
    float d1 = (logf(s / x) + (rate + 0.5f * volatility * volatility) * t) / (volatility * root);
    float d2 = d1 - volatility * root, c1 = normal(d1), c2 = normal(d2), e = expf(-rate * t);
    call[i] = s * c1 - x * e * c2;
    put[i] = x * e * (1.0f - c2) - s * (1.0f - c1);
  }
}

#define PICTURE 256u
#define MOST 256u
static void make_mandelbrot(struct work *w) {
  result(w, PICTURE * PICTURE * 4);
}
static void mandelbrot(struct work *w) {
  uint32_t *out = w->out;
  for (uint32_t row = 0; row < PICTURE; row++) {
    for (uint32_t column = 0; column < PICTURE; column++) {
      float cx = -2.0f + 3.0f * (float)column / PICTURE, cy = -1.5f + 3.0f * (float)row / PICTURE, x = 0,
            y = 0;
      uint32_t k = 0;
      for (; k < MOST && x * x + y * y < 4.0f; k++) {
        float to = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = to;
      }
      out[row * PICTURE + column] = k;
    }
  }
}

#define MESSAGES 16384u
static uint32_t words[64];
/* The fraction of the root of the n-th prime, as the standard makes them. */
static void make_sha256(struct work *w) {
  result(w, MESSAGES * 32);
  numbers(w, 0, MESSAGES * 16);
  for (uint32_t n = 2, k = 0; k < 64; n++) {
    uint32_t d = 2;
    while (d * d <= n && n % d != 0) d++;
    if (d * d > n) {
      long double root = cbrtl((long double)n);
      words[k++] = (uint32_t)((root - floorl(root)) * 4294967296.0L);
    }
  }
}
#define ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))
static void sha256(struct work *w) {
  static const uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  for (uint32_t i = 0; i < MESSAGES; i++) {
    uint32_t s[16], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], z = h[7];
    memcpy(s, (const uint32_t *)w->in[0] + i * 16, sizeof s);
    for (uint32_t k = 0; k < 64; k++) {
      if (k >= 16) {
        uint32_t p = s[(k + 1) % 16], q = s[(k + 14) % 16];
        s[k % 16] += (ROTATE(p, 7) ^ ROTATE(p, 18) ^ p >> 3) + s[(k + 9) % 16] +
                     (ROTATE(q, 17) ^ ROTATE(q, 19) ^ q >> 10);
      }
      uint32_t t =
          z + (ROTATE(e, 6) ^ ROTATE(e, 11) ^ ROTATE(e, 25)) + ((e & f) ^ (~e & g)) + words[k] + s[k % 16];
      uint32_t u = (ROTATE(a, 2) ^ ROTATE(a, 13) ^ ROTATE(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      z = g, g = f, f = e, e = d + t, d = c, c = b, b = a, a = t + u;
    }
    const uint32_t r[8] = {a, b, c, d, e, f, g, z};
    for (uint32_t k = 0; k < 8; k++) ((uint32_t *)w->out)[i * 8 + k] = h[k] + r[k];
  }
}

static void make_histogram(struct work *w) {
  result(w, 256 * 4);
  numbers(w, 0, MANY / 4);
}
static void histogram(struct work *w) {
  uint32_t *out = w->out;
  const unsigned char *in = w->in[0];
  for (uint32_t i = 0; i < MANY; i++) out[in[i]]++;
}

static void make_scan(struct work *w) {
  result(w, MANY * 4);
  numbers(w, 0, MANY);
}
static void scan(struct work *w) {
  uint32_t *out = w->out, sum = 0;
  const uint32_t *in = w->in[0];
  for (uint32_t i = 0; i < MANY; i++) {
    if (i % 1024 == 0) sum = 0;
    out[i] = sum += in[i];
  }
}

#define KEYS (1u << 17)
static void make_sort(struct work *w) {
  result(w, KEYS * 4);
  numbers(w, 0, KEYS);
}
static void sort(struct work *w) {
  uint32_t a[1024], b[1024];
  for (uint32_t from = 0; from < KEYS; from += 1024) {
    memcpy(a, (const uint32_t *)w->in[0] + from, sizeof a);
    for (uint32_t shift = 0; shift < 32; shift += 8) {
      uint32_t at[256] = {0}, sum = 0;
      for (uint32_t i = 0; i < 1024; i++) at[a[i] >> shift & 255]++;
      for (uint32_t k = 0; k < 256; k++) {
        uint32_t count = at[k];
        at[k] = sum;
        sum += count;
      }
      for (uint32_t i = 0; i < 1024; i++) b[at[a[i] >> shift & 255]++] = a[i];
      memcpy(a, b, sizeof a);
    }
    memcpy((uint32_t *)w->out + from, a, sizeof a);
  }
}

/* Matrix times vector, in the blocks of ggml. */
#define WEIGHT_ROWS 512u
#define WIDTH 4096u
struct block8 {
  _Float16 d;
  int8_t q[32];
};
struct block4 {
  _Float16 d;
  uint8_t q[16];
};
static void make_blocks8(struct work *w, int k, uint32_t count) {
  struct block8 *to = input(w, k, count * sizeof *to);
  for (uint32_t i = 0; i < count; i++) {
    to[i].d = (_Float16)unit();
    for (uint32_t n = 0; n < 32; n++) to[i].q[n] = (int8_t)next();
  }
}
static void make_matvec_q8(struct work *w) {
  result(w, WEIGHT_ROWS * 4);
  make_blocks8(w, 0, WEIGHT_ROWS * (WIDTH / 32));
  make_blocks8(w, 1, WIDTH / 32);
}
static void matvec_q8(struct work *w) {
  const struct block8 *row = w->in[0], *x = w->in[1];
  for (uint32_t r = 0; r < WEIGHT_ROWS; r++, row += WIDTH / 32) {
    float sum = 0;
    for (uint32_t b = 0; b < WIDTH / 32; b++) {
      int32_t s = 0;
      for (uint32_t n = 0; n < 32; n++) s += row[b].q[n] * x[b].q[n];
      sum += (float)row[b].d * (float)x[b].d * (float)s;
    }
    ((float *)w->out)[r] = sum;
  }
}
static void make_matvec_q4(struct work *w) {
  result(w, WEIGHT_ROWS * 4);
  struct block4 *to = input(w, 0, WEIGHT_ROWS * (WIDTH / 32) * sizeof *to);
  for (uint32_t i = 0; i < WEIGHT_ROWS * (WIDTH / 32); i++) {
    to[i].d = (_Float16)unit();
    for (uint32_t n = 0; n < 16; n++) to[i].q[n] = (uint8_t)next();
  }
  make_blocks8(w, 1, WIDTH / 32);
}
static void matvec_q4(struct work *w) {
  const struct block4 *row = w->in[0];
  const struct block8 *x = w->in[1];
  for (uint32_t r = 0; r < WEIGHT_ROWS; r++, row += WIDTH / 32) {
    float sum = 0;
    for (uint32_t b = 0; b < WIDTH / 32; b++) {
      int32_t s = 0;
      for (uint32_t n = 0; n < 16; n++)
        s += ((row[b].q[n] & 15) - 8) * x[b].q[n] + ((row[b].q[n] >> 4) - 8) * x[b].q[n + 16];
      sum += (float)row[b].d * (float)x[b].d * (float)s;
    }
    ((float *)w->out)[r] = sum;
  }
}
static void make_matvec_f16(struct work *w) {
  result(w, WEIGHT_ROWS * 4);
  _Float16 *to = input(w, 0, WEIGHT_ROWS * WIDTH * 2);
  for (uint32_t i = 0; i < WEIGHT_ROWS * WIDTH; i++) to[i] = (_Float16)unit();
  floats(w, 1, WIDTH, 0, 1);
}
static void matvec_f16(struct work *w) {
  const _Float16 *row = w->in[0];
  const float *x = w->in[1];
  for (uint32_t r = 0; r < WEIGHT_ROWS; r++, row += WIDTH) {
    float sums[16] = {0}, sum = 0;
    for (uint32_t i = 0; i < WIDTH; i += 16) {
      for (uint32_t k = 0; k < 16; k++) sums[k] += (float)row[i + k] * x[i + k];
    }
    for (uint32_t k = 0; k < 16; k++) sum += sums[k];
    ((float *)w->out)[r] = sum;
  }
}

static const struct {
  const char *name;
  maker *make;
  runner *run;
} cases[] = {
#define CASE(name)                                                                                           \
  { #name, make_##name, name }
    CASE(saxpy), CASE(reduce),       CASE(matmul),     CASE(spmv),      CASE(stencil),
    CASE(nbody), CASE(blackscholes), CASE(mandelbrot), CASE(sha256),    CASE(histogram),
    CASE(scan),  CASE(sort),         CASE(matvec_q8),  CASE(matvec_q4), CASE(matvec_f16),
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int save(const char *directory, const char *name, const char *end, const void *from, size_t bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.%s", directory, name, end);
  FILE *file = fopen(path, "wb");
  if (file == NULL) return 1;
  size_t wrote = fwrite(from, 1, bytes, file);
  return (fclose(file) != 0 || wrote != bytes) ? 1 : 0;
}

int main(int count, char **arguments) {
  size_t k = 0, most = sizeof cases / sizeof *cases;
  while (count > 1 && k < most && strcmp(cases[k].name, arguments[1]) != 0) k++;
  if (count < 2 || count > 3 || k == most) return 2;
  struct work w = {0};
  cases[k].make(&w);
  double begun = now();
  cases[k].run(&w);
  __asm__ volatile("" : : "r"(w.out) : "memory");
  printf("%.0f\n", now() - begun);
  if (count == 2) return 0;
  int failed = save(arguments[2], cases[k].name, "want", w.out, w.out_bytes);
  for (int i = 0; i < INPUTS; i++) {
    char end[] = {(char)('1' + i), 0};
    if (w.in[i] != NULL) failed |= save(arguments[2], cases[k].name, end, w.in[i], w.in_bytes[i]);
  }
  return failed;
}
