/*
 * The work of the benchmark's kernels as OpenCL C, for a peer that carries kernels out on a processor, too
 * (PoCL). Prints the nanoseconds that the processor took for one launch after the first, which compiles the
 * kernel.
 *
 *   opencl_bench matmul N    matmul_tiled of test/shim/kernels: N x N by tiles of 16 in local memory
 *   opencl_bench mads N      256 threads, each with N times eight multiply-adds that need the one before
 *   opencl_bench collatz N   N threads: how many steps lead from the thread's number to 1
 *
 * A result that is not the one of the same sums in C ends it with 1.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TILE 16
#define MADS 8
#define THREADS 256
#define A 1664525u
#define C 1013904223u

/* The factor is an argument: as a constant, eight multiply-adds would be folded into one. */
static const char source[] =
    "#define TILE 16\n"
    "kernel void matmul(global const float *a, global const float *b, global float *c, int n) {\n"
    "  local float sa[TILE][TILE], sb[TILE][TILE + 1];\n"
    "  int tx = get_local_id(0), ty = get_local_id(1);\n"
    "  int x = get_group_id(0) * TILE + tx, y = get_group_id(1) * TILE + ty;\n"
    "  float sum = 0;\n"
    "  for (int t = 0; t < n; t += TILE) {\n"
    "    sa[ty][tx] = a[y * n + t + tx];\n"
    "    sb[ty][tx] = b[(t + ty) * n + x];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    for (int k = 0; k < TILE; k++) sum = fma(sa[ty][k], sb[k][tx], sum);\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  }\n"
    "  c[y * n + x] = sum;\n"
    "}\n"
    "kernel void mads(global uint *out, uint rounds, uint a, uint c) {\n"
    "  uint x = get_local_id(0);\n"
    "  for (uint i = 0; i < rounds; i++) {\n"
    "    x = x * a + c; x = x * a + c; x = x * a + c; x = x * a + c;\n"
    "    x = x * a + c; x = x * a + c; x = x * a + c; x = x * a + c;\n"
    "  }\n"
    "  out[get_local_id(0)] = x;\n"
    "}\n"
    "kernel void collatz(global uint *out) {\n"
    "  uint n = get_global_id(0) + 1, steps = 0;\n"
    "  while (n != 1) {\n"
    "    if (n & 1) n = n * 3 + 1; else n >>= 1;\n"
    "    steps++;\n"
    "  }\n"
    "  out[get_global_id(0)] = steps;\n"
    "}\n";

static cl_context context;
static cl_command_queue queue;
static cl_program program;

static void check(cl_int status, const char *what) {
  if (status == CL_SUCCESS) return;
  fprintf(stderr, "opencl_bench: %s: %d\n", what, (int)status);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void begin(void) {
  cl_platform_id platform;
  cl_device_id device;
  cl_int status;
  const char *text = source;
  check(clGetPlatformIDs(1, &platform, NULL), "no OpenCL platform");
  check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device, NULL), "no processor as an OpenCL device");
  context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
  check(status, "clCreateContext");
  queue = clCreateCommandQueue(context, device, 0, &status);
  check(status, "clCreateCommandQueue");
  program = clCreateProgramWithSource(context, 1, &text, NULL, &status);
  check(status, "clCreateProgramWithSource");
  check(clBuildProgram(program, 1, &device, NULL, NULL, NULL), "clBuildProgram");
}

static cl_mem buffer(void *bytes, size_t size) {
  cl_int status;
  cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size, bytes, &status);
  check(status, "clCreateBuffer");
  return memory;
}

static cl_kernel kernel_of(const char *name) {
  cl_int status;
  cl_kernel kernel = clCreateKernel(program, name, &status);
  check(status, name);
  return kernel;
}

static void launch(cl_kernel kernel, cl_uint dimensions, const size_t *global, const size_t *local) {
  check(clEnqueueNDRangeKernel(queue, kernel, dimensions, NULL, global, local, 0, NULL, NULL), "launch");
  check(clFinish(queue), "clFinish");
}

static double measure(cl_kernel kernel, cl_uint dimensions, const size_t *global, const size_t *local) {
  launch(kernel, dimensions, global, local);
  double begun = now();
  launch(kernel, dimensions, global, local);
  return now() - begun;
}

static void read_back(cl_mem memory, void *bytes, size_t size) {
  check(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, size, bytes, 0, NULL, NULL), "clEnqueueReadBuffer");
}

static int matmul(cl_uint n) {
  if (n < TILE || n > 4096 || n % TILE != 0) return 2;
  size_t count = (size_t)n * n, global[] = {n, n}, local[] = {TILE, TILE};
  float *a = malloc(count * 4), *b = malloc(count * 4), *c = calloc(count, 4);
  if (a == NULL || b == NULL || c == NULL) return 1;
  for (size_t i = 0; i < count; i++) {
    a[i] = (float)(i % 7);
    b[i] = (float)(i % 5);
  }
  cl_mem memories[] = {buffer(a, count * 4), buffer(b, count * 4), buffer(c, count * 4)};
  cl_kernel kernel = kernel_of("matmul");
  for (cl_uint i = 0; i < 3; i++)
    check(clSetKernelArg(kernel, i, sizeof memories[i], &memories[i]), "argument");
  check(clSetKernelArg(kernel, 3, sizeof n, &n), "argument");
  double took = measure(kernel, 2, global, local);
  read_back(memories[2], c, count * 4);
  for (size_t row = 0; row < n; row += n / TILE) {
    for (size_t column = 0; column < n; column++) {
      float sum = 0; /* small integers: exact in any order */
      for (size_t k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
      if (c[row * n + column] != sum) return 1;
    }
  }
  printf("%.0f\n", took);
  return 0;
}

static int mads(cl_uint rounds) {
  uint32_t out[THREADS] = {0}, a = A, c = C;
  size_t threads = THREADS;
  cl_mem memory = buffer(out, sizeof out);
  cl_kernel kernel = kernel_of("mads");
  check(clSetKernelArg(kernel, 0, sizeof memory, &memory), "argument");
  check(clSetKernelArg(kernel, 1, sizeof rounds, &rounds), "argument");
  check(clSetKernelArg(kernel, 2, sizeof a, &a), "argument");
  check(clSetKernelArg(kernel, 3, sizeof c, &c), "argument");
  double took = measure(kernel, 1, &threads, &threads);
  read_back(memory, out, sizeof out);
  for (uint32_t t = 0; t < THREADS; t++) {
    uint32_t x = t;
    for (uint64_t i = 0; i < (uint64_t)rounds * MADS; i++) x = x * A + C;
    if (out[t] != x) return 1;
  }
  printf("%.0f\n", took);
  return 0;
}

static int collatz(cl_uint n) {
  if (n % THREADS != 0 || n > 100000) return 2; /* more would leave 32 bits on the way */
  size_t threads = n, local = THREADS;
  uint32_t *out = calloc(n, 4);
  if (out == NULL) return 1;
  cl_mem memory = buffer(out, (size_t)n * 4);
  cl_kernel kernel = kernel_of("collatz");
  check(clSetKernelArg(kernel, 0, sizeof memory, &memory), "argument");
  double took = measure(kernel, 1, &threads, &local);
  read_back(memory, out, (size_t)n * 4);
  for (uint32_t t = 0; t < n; t++) {
    uint32_t steps = 0;
    for (uint32_t x = t + 1; x != 1; steps++) x = x % 2 != 0 ? x * 3 + 1 : x / 2;
    if (out[t] != steps) return 1;
  }
  printf("%.0f\n", took);
  return 0;
}

int main(int count, char **words) {
  int n = count == 3 ? atoi(words[2]) : 0;
  if (n < 1) return 2;
  begin();
  if (strcmp(words[1], "matmul") == 0) return matmul((cl_uint)n);
  if (strcmp(words[1], "mads") == 0) return mads((cl_uint)n);
  return strcmp(words[1], "collatz") == 0 ? collatz((cl_uint)n) : 2;
}
