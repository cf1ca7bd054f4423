// __managed__ variables: the program and kernels use them by name, in both files' modules. Prints what is wrong.
#include <cstdio>
#include <cstring>

struct pair {
  int key;
  double value;
};

__managed__ int counter = 5;
__managed__ float table[1000];
__managed__ pair pairs[2] = {{1, 2.5}, {3, 4.5}};
__managed__ int *to_counter;
__device__ int plain = 11;
__device__ int *kept; // an address that a kernel keeps before the program asks for any
__constant__ int factor = 3;

__global__ void keep() {
  kept = &plain;
  plain += 1;
  counter += 1;
}

__global__ void work(int n) {
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    *to_counter += factor * n;
    *kept += 100;
    pairs[1].value += pairs[0].key;
  }
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < 1000; i += gridDim.x * blockDim.x)
    table[i] = table[i] * 2 + i;
}

static int wrong;
static void is(const char *what, double value, double wanted) {
  if (value == wanted) return;
  printf("%s is %g, not %g\n", what, value, wanted);
  wrong = 1;
}

int main() {
#ifdef KERNEL_FIRST
  keep<<<1, 1>>>();
  is("the first kernel", cudaDeviceSynchronize(), 0);
  is("counter", counter, 6);
#else
  is("counter", counter, 5);
  counter++;
  keep<<<1, 1>>>();
  is("the first kernel", cudaDeviceSynchronize(), 0);
  is("counter", counter, 7);
  counter--;
#endif
  to_counter = &counter; // one address on both sides
  is("pairs[0].value", pairs[0].value, 2.5);
  for (int i = 0; i < 1000; i++) table[i] = 0.5f * i;
  work<<<4, 64>>>(7);
  is("work", cudaDeviceSynchronize(), 0);
  is("counter", counter, 6 + 21);
  is("*to_counter", *to_counter, 6 + 21);
  is("pairs[1].value", pairs[1].value, 5.5);
  for (int i = 0; i < 1000; i++) is("an element", table[i], 2.0 * i);
  int copied = 0;
  is("cudaMemcpyFromSymbol", cudaMemcpyFromSymbol(&copied, plain, sizeof copied), 0);
  is("plain", copied, 112);
  // Copies from and to them are those of device memory.
  float half[500];
  is("a copy from it", cudaMemcpy(half, table + 500, sizeof half, cudaMemcpyDefault), 0);
  is("what was copied", half[499], 2.0 * 999);
  memset(half, 0, sizeof half);
  is("a copy to it", cudaMemcpy(table, half, sizeof half, cudaMemcpyHostToDevice), 0);
  is("what it wrote", table[499], 0);
  is("cudaMemset", cudaMemset(table, 0xff, 4), 0);
  is("cudaDeviceSynchronize", cudaDeviceSynchronize(), 0);
  unsigned bits;
  memcpy(&bits, table, 4);
  is("what it set", bits, 0xffffffffu);
  cudaPointerAttributes attributes;
  is("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, &counter), 0);
  is("its type", attributes.type, cudaMemoryTypeManaged);
  is("cudaFree of a variable", cudaFree(&counter) != cudaSuccess, 1);
  cudaGetLastError();
  void *address = nullptr;
  is("cudaGetSymbolAddress", cudaGetSymbolAddress(&address, counter), 0);
  is("the symbol's address", address == &counter, 1);
  is("at the end", cudaGetLastError(), 0);
  puts(wrong ? "wrong" : "right");
  return wrong;
}
