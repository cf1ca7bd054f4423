// Lanes that go different ways.
#include <cstdio>
#include <cassert>

__device__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

typedef float (*function)(float, float);
__device__ float plus(float a, float b) {
  return a + b;
}
__device__ float minus(float a, float b) {
  return a - b;
}
__device__ float times(float a, float b) {
  return a * b;
}
__device__ function table[3] = {plus, minus, times};

__device__ int counter = 0;
__device__ unsigned guard = 0;
__constant__ int powers[8] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
__device__ const int *const pointer = &powers[2];

extern "C" {

__global__ void collatz(int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long v = i + 1;
  int steps = 0;
  while (v != 1) {
    v = (v & 1) != 0 ? 3 * v + 1 : v / 2;
    steps++;
  }
  out[i] = steps;
}

// Loops within loops, left early by some lanes in several ways.
__global__ void nested(int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
  if (i >= n) return;
  for (int a = 0; a < 10; a++) {
    if (a == i % 11) break;
    for (int b = 0; b < a; b++) {
      if ((i + b) % 5 == 0) continue;
      if (b * a > i) {
        out[i] = sum + 100000;
        return;
      }
      sum += a * b;
    }
    if (sum > 300) goto done;
  }
  sum *= 2;
done:
  out[i] = sum;
}

__global__ void recursion(int *out) {
  out[threadIdx.x] = fibonacci(threadIdx.x % 13);
}

__global__ void pointers(const float *a, const float *b, float *out) {
  int i = threadIdx.x;
  out[i] = table[i % 3](a[i], b[i]);
}

__global__ void switches(const int *in, int *out) {
  int i = threadIdx.x, v = in[i], r;
  switch (v) {
  case 0: r = 7; break;
  case 1: r = v * 13 + i; break;
  case 2: r = i * i; break;
  case 3: r = -i;
  case 4: r = 40 + i; break;
  case 5: r = i ^ 0x55; break;
  case 6: r = i << 3; break;
  case 7: r = __popc(i); break;
  case 8: r = __clz(i); break;
  case 9: r = i % 7; break;
  default: r = -1;
  }
  out[i] = r;
}

__global__ void votes(const int *in, unsigned *out) {
  int i = threadIdx.x, v = in[i];
  unsigned all = __all_sync(0xffffffff, v > 0), any = __any_sync(0xffffffff, v > 5), ballot = __ballot_sync(0xffffffff, v & 1);
  unsigned inner = 0;
  if (v & 1) inner = __ballot_sync(ballot, v > 3);
  out[i * 4] = all << 1 | any;
  out[i * 4 + 1] = ballot;
  out[i * 4 + 2] = inner;
  out[i * 4 + 3] = __shfl_sync(0xffffffff, v, i ^ 5) + __shfl_up_sync(0xffffffff, v, 3, 16) * 1000;
}

#if __CUDA_ARCH__ >= 700
__global__ void matches(const int *in, unsigned *out) {
  int i = threadIdx.x, same;
  out[i * 2] = __match_any_sync(0xffffffff, in[i]);
  out[i * 2 + 1] = __match_all_sync(0xffffffff, in[i] / 100, &same) ^ same;
}
#endif

// A lock that every lane of a warp wants.
__global__ void spin_lock(int *value) {
  bool done = false;
  while (!done) {
    if (atomicCAS(&guard, 0, 1) == 0) {
      *(volatile int *)value = *(volatile int *)value + 1;
      __threadfence();
      atomicExch(&guard, 0);
      done = true;
    }
  }
}

__global__ void atomics(int *i, unsigned *u, unsigned long long *l, float *f, double *d) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&i[0], t);
  atomicSub(&i[1], t);
  atomicMin(&i[2], t - 500);
  atomicMax(&i[3], t - 500);
  atomicInc(&u[0], 9);
  atomicDec(&u[1], 9);
  atomicAnd(&u[2], ~(1u << (t & 31)));
  atomicOr(&u[3], 1u << (t & 31));
  atomicXor(&u[4], t);
  atomicAdd(&l[0], (unsigned long long)t << 20);
  atomicMax(&l[1], (unsigned long long)t << 40);
  atomicAdd(f, 0.5f);
#if __CUDA_ARCH__ >= 600
  atomicAdd(d, 0.25);
#endif
}

__global__ void variables(int *out) {
  int old = atomicAdd(&counter, 1);
  if (old == 0) out[0] = *pointer + powers[threadIdx.x & 7];
}

__global__ void prints(int n) {
  if (threadIdx.x < n) printf("thread %d of %u: %s %5.2f %lld %c %x%%\n", threadIdx.x, blockIdx.x, "text", threadIdx.x * 0.5, -(1ll << 40), 'a' + threadIdx.x, 255);
}

__global__ void asserts(int n) {
  assert(threadIdx.x < n);
}

__global__ void allocates(int **out) {
  int *mine = (int *)malloc(sizeof(int) * (threadIdx.x + 1));
  for (int i = 0; i <= threadIdx.x; i++) mine[i] = i * 3;
  int sum = 0;
  for (int i = 0; i <= threadIdx.x; i++) sum += mine[i];
  free(mine);
  ((int *)out)[threadIdx.x] = sum;
}

__global__ void local_array(const int *in, int *out) {
  int values[16], i = threadIdx.x;
  for (int k = 0; k < 16; k++) values[k] = in[(i + k) % 32] * k;
  int sum = 0;
  for (int k = 0; k < 16; k++) sum += values[in[i] & 15] + values[k];
  out[i] = sum;
}

struct parcel {
  char tag;
  double weight;
  int sizes[5];
};
__global__ void by_value(parcel p, short s, const parcel *others, double *out) {
  int i = threadIdx.x;
  parcel mine = i % 2 == 0 ? p : others[i];
  out[i] = mine.weight * mine.sizes[i % 5] + mine.tag + s;
}

__global__ void runs_on() {
  while (true) atomicAdd(&counter, 1);
}

__global__ void reads_beyond(const int *in, int *out) {
  out[threadIdx.x] = in[threadIdx.x * 1000000];
}

__global__ void reads_between(const char *in, int *out) {
  out[threadIdx.x] = *(const int *)(in + threadIdx.x);
}

__global__ void traps() {
  if (threadIdx.x == 3) __trap();
}

// Half of the block never comes.
__global__ void waits_in_vain() {
  if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");
}
}
