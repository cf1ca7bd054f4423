// alloca: memory on a thread's stack of a size that is known when it runs, in functions that call themselves.
#include <alloca.h>
#include <cstdio>

__host__ __device__ inline int add_up(const int *numbers, int count) {
  int sum = 0;
  for (int i = 0; i < count; i++) sum = sum * 3 + numbers[i];
  return sum;
}

__device__ __noinline__ int deep(int count, int depth) {
  int *numbers = (int *)alloca(count * sizeof(int));
  for (int i = 0; i < count; i++) numbers[i] = i * depth + count;
  int more = depth > 1 ? deep(count + 1, depth - 1) : 0;
  char *last = (char *)alloca(depth * 3);
  for (int i = 0; i < depth * 3; i++) last[i] = (char)i;
  return add_up(numbers, count) + more * 7 + last[depth * 3 - 1];
}

static int wanted(int count, int depth) {
  int numbers[64];
  for (int i = 0; i < count; i++) numbers[i] = i * depth + count;
  int more = depth > 1 ? wanted(count + 1, depth - 1) : 0;
  return add_up(numbers, count) + more * 7 + depth * 3 - 1;
}

__global__ void work(int *out, int count) {
  // Lanes that part take different sizes, also while others have theirs.
  out[threadIdx.x] = threadIdx.x % 7 == 0 ? -1 : deep(count + threadIdx.x % 5, 1 + threadIdx.x % 3);
}

__global__ void large(int *out, int bytes) {
  volatile char *memory = (volatile char *)alloca(bytes);
  memory[0] = 1;
  memory[bytes - 1] = 41;
  *out = memory[0] + memory[bytes - 1];
}

int main() {
  int *out, all[64], wrong = 0;
  cudaMalloc(&out, sizeof all);
  work<<<1, 64>>>(out, 9);
  cudaMemcpy(all, out, sizeof all, cudaMemcpyDeviceToHost);
  for (int i = 0; i < 64; i++) {
    int right = i % 7 == 0 ? -1 : wanted(9 + i % 5, 1 + i % 3);
    if (all[i] == right) continue;
    printf("thread %d: %d, not %d\n", i, all[i], right);
    wrong = 1;
  }
  if (cudaDeviceSetLimit(cudaLimitStackSize, 64 << 10) != cudaSuccess) wrong = 1;
  large<<<1, 1>>>(out, 50000);
  cudaError_t result = cudaMemcpy(all, out, 4, cudaMemcpyDeviceToHost);
  if (result != cudaSuccess || all[0] != 42) {
    printf("a large one: %s, %d\n", cudaGetErrorString(result), all[0]);
    wrong = 1;
  }
  large<<<1, 1>>>(out, 1 << 20);
  result = cudaDeviceSynchronize();
  if (result == cudaSuccess) {
    puts("more than the stack has");
    wrong = 1;
  }
  puts(wrong ? "wrong" : "right");
  return wrong;
}
