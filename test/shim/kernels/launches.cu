// Kernels that launch kernels (CUDA dynamic parallelism): their order, their parameters, what goes wrong.

__device__ int order[16];
__device__ int places;
__device__ int sum;

__device__ void note(int what) {
  int place = atomicAdd(&places, 1);
  if (place < 16) order[place] = what;
}

extern "C" __global__ void leaf(int what) { note(what); }

extern "C" __global__ void nested(int what, int depth) {
  note(what);
  if (depth == 0) return;
  nested<<<1, 1>>>(what * 10 + 1, depth - 1);
  nested<<<1, 1>>>(what * 10 + 2, depth - 1);
}

// A tail launch comes last although it is the first one; a grid is over when its children are.
extern "C" __global__ void in_order() {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  leaf<<<1, 1, 0, cudaStreamTailLaunch>>>(9);
  leaf<<<1, 1>>>(1);
  nested<<<1, 1>>>(2, 2);
  leaf<<<1, 1, 0, stream>>>(3);
  leaf<<<1, 1, 0, cudaStreamFireAndForget>>>(4);
  cudaStreamDestroy(stream);
  note(7);
}

struct Mixed {
  char c;
  double d;
  short s[3];
};

extern "C" __global__ void takes(char c, Mixed m, const int *from, float f) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = threadIdx.x;
  __syncthreads();
  int other = shared[blockDim.x - 1 - threadIdx.x];
  atomicAdd(&sum, c + (int)m.d + m.s[2] + *from + (int)f + other + blockIdx.x + 10 * blockIdx.y);
}

__device__ int five = 5;

// Every odd thread of several blocks launches 2 x 3 blocks of 32.
extern "C" __global__ void parameters() {
  if (threadIdx.x % 2 == 0) return;
  Mixed m = {'m', 1000.5, {7, 8, (short)threadIdx.x}};
  takes<<<dim3(2, 3), 32, 32 * sizeof(int)>>>(-3, m, &five, 2.5f);
}

extern "C" __global__ void chain(int left) {
  atomicAdd(&sum, 1);
  if (left > 0) chain<<<1, 1, 0, cudaStreamTailLaunch>>>(left - 1);
}

__device__ int values[8] = {1, 2, 3, 4, 5, 6, 7, 8};

extern "C" __global__ void add_up() {
  for (int i = 0; i < 8; i++) sum += values[i];
}

// All in one stream: what is copied and filled is there when the kernel behind it begins.
extern "C" __global__ void copies() {
  cudaMemcpyAsync(values, values + 4, 4 * sizeof(int), cudaMemcpyDeviceToDevice, 0);
  cudaMemsetAsync(values + 4, 1, 2 * sizeof(int), 0);
  add_up<<<1, 1>>>();
  int *piece;
  if (cudaMalloc(&piece, 64) == cudaSuccess) {
    *piece = 1000;
    sum = *piece;
    cudaFree(piece);
  }
}

extern "C" __global__ void errors() {
  leaf<<<1, 2048>>>(1);
  order[0] = cudaPeekAtLastError();
  order[1] = cudaGetLastError();
  order[2] = cudaGetLastError();
  const char *text = cudaGetErrorString(cudaErrorInvalidConfiguration);
  for (int i = 0; text[i] != 0; i++) order[3]++;
  leaf<<<dim3(1, 70000), 1>>>(1);
  order[4] = cudaGetLastError();
  if (threadIdx.x == 0) places = 5;
  leaf<<<1, 1>>>(6);
}

extern "C" __global__ void writes_nowhere(int *to) { *to = 1; }

extern "C" __global__ void child_fails() {
  leaf<<<1, 1>>>(1);
  writes_nowhere<<<1, 1>>>((int *)16);
  leaf<<<1, 1>>>(2);
}

extern "C" __global__ void asks() {
  int value = -1;
  size_t heap = 0;
  cudaFuncAttributes attributes;
  order[0] = cudaGetDevice(&value) * 100 + value;
  order[1] = cudaGetDeviceCount(&value) * 100 + value;
  cudaDeviceGetAttribute(&order[2], cudaDevAttrMultiProcessorCount, 0);
  cudaDeviceGetAttribute(&order[3], cudaDevAttrWarpSize, 0);
  cudaRuntimeGetVersion(&order[4]);
  cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize);
  order[5] = (int)(heap >> 20);
  order[6] = cudaGetLastError();
  order[7] = cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 9);
  order[8] = cudaDeviceGetAttribute(&value, (cudaDeviceAttr)5000, 0);
  order[9] = cudaFuncGetAttributes(&attributes, leaf);
  order[10] = cudaGetLastError();
}

__device__ int square[16], cube[16];

extern "C" __global__ void rows() {
  cudaMemset2DAsync(square, 16, 1, 8, 2, 0);
  cudaMemcpy2DAsync(square + 10, 16, values, 16, 8, 2, cudaMemcpyDeviceToDevice, 0);
  cudaPitchedPtr all;
  all.ptr = cube, all.pitch = 8, all.xsize = 8, all.ysize = 4;
  cudaExtent extent;
  extent.width = 4, extent.height = 2, extent.depth = 2;
  cudaMemset3DAsync(all, 2, extent, 0);
  cudaMemcpy3DParms copy = {0};
  copy.srcPtr.ptr = values, copy.srcPtr.pitch = 8, copy.srcPtr.xsize = 8, copy.srcPtr.ysize = 2;
  copy.dstPtr = all;
  copy.dstPos.y = 2;
  extent.width = 8;
  copy.extent = extent;
  copy.kind = cudaMemcpyDeviceToDevice;
  cudaMemcpy3DAsync(&copy, 0);
  order[0] = cudaGetLastError();
  order[1] = cudaMemcpy2DAsync(square, 4, values, 16, 8, 2, cudaMemcpyDeviceToDevice, 0);
  order[2] = cudaMemset2DAsync(square, 4, 1, 8, 2, 0);
  all.pitch = all.ysize = 1ull << 32; // a slice of 2 to the power of 64
  order[3] = cudaMemset3DAsync(all, 2, extent, 0);
}
