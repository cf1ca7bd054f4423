/*
 * The work of the benchmark's kernels, as loops of C on one core; compiled with -O3 and nothing else. Prints
 * the nanoseconds that the processor took.
 *
 *   compute_bench matmul N    what matmul_tiled of test/shim/kernels does: the same tiles in the same order
 *   compute_bench mads N      N integer multiply-adds, each needing the one before
 *   compute_bench collatz N   for each number from 1 to N, the steps that lead to 1
 *   compute_bench threads N   N threads made and awaited, one after the other
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TILE 16

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void multiply(const float *a, const float *b, float *c, int n) {
  static float sa[TILE][TILE], sb[TILE][TILE + 1], sum[TILE][TILE];
  for (int by = 0; by < n; by += TILE) {
    for (int bx = 0; bx < n; bx += TILE) {
      memset(sum, 0, sizeof sum);
      for (int t = 0; t < n; t += TILE) {
        for (int y = 0; y < TILE; y++) {
          for (int x = 0; x < TILE; x++) {
            sa[y][x] = a[(by + y) * n + t + x];
            sb[y][x] = b[(t + y) * n + bx + x];
          }
        }
        for (int y = 0; y < TILE; y++) {
          for (int x = 0; x < TILE; x++) {
            for (int k = 0; k < TILE; k++) sum[y][x] += sa[y][k] * sb[k][x];
          }
        }
      }
      for (int y = 0; y < TILE; y++) memcpy(&c[(by + y) * n + bx], sum[y], sizeof sum[y]);
    }
  }
}

static int matmul(int n) {
  if (n < TILE || n > 4096 || n % TILE != 0) return 2;
  size_t size = (size_t)n * (size_t)n;
  float *a = malloc(size * 4), *b = malloc(size * 4), *c = malloc(size * 4);
  if (a == NULL || b == NULL || c == NULL) return 1;
  for (size_t i = 0; i < size; i++) {
    a[i] = (float)(i % 7);
    b[i] = (float)(i % 5);
    c[i] = 0;
  }
  double begun = now();
  multiply(a, b, c, n);
  __asm__ volatile("" : : "r"(c) : "memory");
  printf("%.0f\n", now() - begun);
  free(a);
  free(b);
  free(c);
  return 0;
}

static int mads(int n) {
  uint32_t x = (uint32_t)n;
  double begun = now();
  for (int i = 0; i < n; i++) {
    x = x * 1664525u + 1013904223u;
    __asm__ volatile("" : "+r"(x)); /* each of them, as the kernel does it */
  }
  printf("%.0f\n", now() - begun);
  return 0;
}

static int collatz(int n) {
  uint32_t all = 0;
  double begun = now();
  for (uint32_t start = 1; start <= (uint32_t)n; start++) {
    for (uint32_t x = start; x != 1; all++) x = x % 2 != 0 ? x * 3 + 1 : x / 2;
  }
  __asm__ volatile("" : : "r"(all));
  printf("%.0f\n", now() - begun);
  return 0;
}

static void *nothing(void *argument) {
  return argument;
}

static int threads(int n) {
  double begun = now();
  for (int i = 0; i < n; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0) return 1;
  }
  printf("%.0f\n", now() - begun);
  return 0;
}

int main(int count, char **words) {
  int n = count == 3 ? atoi(words[2]) : 0;
  if (n < 1) return 2;
  if (strcmp(words[1], "matmul") == 0) return matmul(n);
  if (strcmp(words[1], "mads") == 0) return mads(n);
  if (strcmp(words[1], "collatz") == 0) return collatz(n);
  return strcmp(words[1], "threads") == 0 ? threads(n) : 2;
}
