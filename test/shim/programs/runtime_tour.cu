/*
 * NVIDIA's runtime through all that a program uses of it, every result compared with the same computed here.
 * Prints "NAME ok", or what was wrong, the same lines wherever it runs; exits 0 if all was right. Built from
 * four objects (TOUR_MODULE 1..3 are the others), each of which is a module of its own to the driver.
 */
#ifndef TOUR_MODULE
#define TOUR_MODULE 0
#endif

#include <cuda_runtime.h>
#if TOUR_MODULE == 0
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>
#endif

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

#if TOUR_MODULE != 0

/* Each module has a variable of this name. */
static __device__ int mine = TOUR_MODULE * 100;
static __global__ void add_mine(int *to) {
  atomicAdd(to, mine);
  mine++;
}
cudaError_t JOIN(run_module_, TOUR_MODULE)(int *to) {
  add_mine<<<1, 1>>>(to);
  return cudaGetLastError();
}

#else

cudaError_t run_module_1(int *to);
cudaError_t run_module_2(int *to);
cudaError_t run_module_3(int *to);

static int failures;

#define NEED(call)                                                                          \
  do {                                                                                      \
    cudaError_t error_ = (call);                                                            \
    if (error_ != cudaSuccess) {                                                            \
      std::printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(error_));          \
      failures++;                                                                           \
      return false;                                                                         \
    }                                                                                       \
  } while (0)

#define WANT(condition)                                                                     \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      std::printf("line %d: not so: %s\n", __LINE__, #condition);                           \
      failures++;                                                                           \
      return false;                                                                         \
    }                                                                                       \
  } while (0)

/* ---- properties ---- */

static bool properties() {
  int count = 0, value = 0;
  cudaDeviceProp all;
  NEED(cudaGetDeviceCount(&count));
  WANT(count == 1);
  NEED(cudaGetDeviceProperties(&all, 0));
  WANT(std::strstr(all.name, "(simulated)") != nullptr);
  NEED(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
  WANT(value == all.major);
  WANT(all.managedMemory == all.canMapHostMemory);
  std::printf("%s %d.%d, %s\n", all.name, all.major, all.minor,
              all.canMapHostMemory ? "host memory can be mapped" : "host memory cannot be mapped");
  return true;
}

/* ---- parameters ---- */

template <int SIZE>
struct Bytes {
  unsigned char at[SIZE];
};
struct Mixed {
  char c;
  double d;
  short s;
  float f[3];
  long long l;
};

/* The sum of a structure that is passed by value, and of the parameters beside it. */
template <int SIZE>
__global__ void sum_bytes(short before, Bytes<SIZE> bytes, double after, unsigned long long *out) {
  unsigned long long sum = 0;
  for (int i = 0; i < SIZE; i++) sum = sum * 31 + bytes.at[i];
  *out = sum * 7 + (unsigned long long)(before + (int)(after * 4));
}
__global__ void take_all(int i, double d, short s, unsigned char c, Mixed mixed, const int *pointer, float f, double *out) {
  out[0] = i;
  out[1] = d;
  out[2] = s;
  out[3] = c;
  out[4] = mixed.c + mixed.d + mixed.s + mixed.f[0] + mixed.f[1] + mixed.f[2] + (double)mixed.l;
  out[5] = pointer[3];
  out[6] = f;
}

template <int SIZE>
static bool structure(unsigned long long *out) {
  Bytes<SIZE> bytes;
  unsigned long long sum = 0, told = 0;
  for (int i = 0; i < SIZE; i++) {
    bytes.at[i] = (unsigned char)(i * 89 + SIZE);
    sum = sum * 31 + bytes.at[i];
  }
  sum_bytes<SIZE><<<1, 1>>>(-3, bytes, 2.75, out);
  NEED(cudaGetLastError());
  NEED(cudaMemcpy(&told, out, sizeof told, cudaMemcpyDeviceToHost));
  WANT(told == sum * 7 + 8ull);
  return true;
}

static bool parameters() {
  void *memory;
  NEED(cudaMalloc(&memory, 4096));
  auto *out = static_cast<unsigned long long *>(memory);
  WANT(structure<1>(out) && structure<2>(out) && structure<3>(out) && structure<7>(out));
  WANT(structure<8>(out) && structure<100>(out) && structure<1023>(out) && structure<4000>(out));
  const int numbers[4] = {1, 2, 3, 40};
  int *four;
  NEED(cudaMalloc(&four, sizeof numbers));
  NEED(cudaMemcpy(four, numbers, sizeof numbers, cudaMemcpyHostToDevice));
  const Mixed mixed = {'a', 0.5, -7, {1.5f, 2.5f, 3.5f}, 1ll << 40};
  double told[7];
  take_all<<<1, 1>>>(-5, 1e-300, -32768, 255, mixed, four, 0.25f, static_cast<double *>(memory));
  NEED(cudaMemcpy(told, memory, sizeof told, cudaMemcpyDeviceToHost));
  WANT(told[0] == -5 && told[1] == 1e-300 && told[2] == -32768 && told[3] == 255);
  WANT(told[4] == 'a' + 0.5 - 7 + 1.5 + 2.5 + 3.5 + (double)(1ll << 40));
  WANT(told[5] == 40 && told[6] == 0.25);
  NEED(cudaFree(four));
  NEED(cudaFree(memory));
  return true;
}

/* ---- streams and events ---- */

__global__ void scale(float *data, int count, float by, float plus) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    data[i] = data[i] * by + plus;
  }
}

static bool streams() {
  const int count = 20001;
  std::vector<float> in(count), out(count);
  for (int i = 0; i < count; i++) in[i] = (float)(i % 1000);
  float *data, milliseconds = -1;
  cudaStream_t first, second;
  cudaEvent_t begin, between, end;
  NEED(cudaMalloc(&data, count * sizeof *data));
  NEED(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  NEED(cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, -1));
  NEED(cudaEventCreate(&begin));
  NEED(cudaEventCreateWithFlags(&between, cudaEventDisableTiming));
  NEED(cudaEventCreate(&end));
  NEED(cudaEventRecord(begin, first));
  NEED(cudaMemcpyAsync(data, in.data(), count * sizeof *data, cudaMemcpyHostToDevice, first));
  scale<<<8, 128, 0, first>>>(data, count, 2.0f, 1.0f);
  NEED(cudaEventRecord(between, first));
  NEED(cudaStreamWaitEvent(second, between, 0));
  scale<<<8, 128, 0, second>>>(data, count, 0.5f, 3.0f);
  NEED(cudaMemcpyAsync(out.data(), data, count * sizeof *data, cudaMemcpyDeviceToHost, second));
  NEED(cudaEventRecord(end, second));
  NEED(cudaEventSynchronize(end));
  NEED(cudaStreamQuery(second));
  NEED(cudaEventElapsedTime(&milliseconds, begin, end));
  WANT(milliseconds >= 0);
  for (int i = 0; i < count; i++) WANT(out[i] == (in[i] * 2.0f + 1.0f) * 0.5f + 3.0f);
  WANT(cudaEventElapsedTime(&milliseconds, begin, between) == cudaErrorInvalidResourceHandle);
  WANT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  NEED(cudaEventDestroy(begin));
  NEED(cudaEventDestroy(between));
  NEED(cudaEventDestroy(end));
  NEED(cudaStreamDestroy(first));
  NEED(cudaStreamDestroy(second));
  NEED(cudaFree(data));
  return true;
}

/* ---- graphs ---- */

static bool graphs() {
  const int count = 1000;
  std::vector<float> in(count, 4.0f), out(count);
  float *data;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  NEED(cudaMalloc(&data, count * sizeof *data));
  NEED(cudaStreamCreate(&stream));
  NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  NEED(cudaMemcpyAsync(data, in.data(), count * sizeof *data, cudaMemcpyHostToDevice, stream));
  scale<<<4, 64, 0, stream>>>(data, count, 3.0f, 1.0f);
  NEED(cudaMemsetAsync(data, 0, 4, stream));
  scale<<<4, 64, 0, stream>>>(data, count, 1.0f, 1.0f);
  NEED(cudaMemcpyAsync(out.data(), data, count * sizeof *data, cudaMemcpyDeviceToHost, stream));
  NEED(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  NEED(cudaGraphGetNodes(graph, nullptr, &nodes));
  WANT(nodes == 5);
  NEED(cudaGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 10; round++) {
    in.assign(count, (float)round);
    NEED(cudaGraphLaunch(exec, stream));
    NEED(cudaStreamSynchronize(stream));
    WANT(out[0] == 1.0f && out[1] == round * 3.0f + 2.0f && out[count - 1] == out[1]);
  }
  std::vector<cudaGraphNode_t> all(nodes);
  NEED(cudaGraphGetNodes(graph, all.data(), &nodes));
  for (cudaGraphNode_t node : all) {
    cudaGraphNodeType type;
    NEED(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams params;
    NEED(cudaGraphKernelNodeGetParams(node, &params));
    float by = 10.0f, plus = 5.0f;
    int length = count;
    void *values[] = {&data, &length, &by, &plus};
    params.kernelParams = values;
    NEED(cudaGraphExecKernelNodeSetParams(exec, node, &params));
  }
  in.assign(count, 2.0f);
  NEED(cudaGraphLaunch(exec, stream));
  NEED(cudaStreamSynchronize(stream));
  WANT(out[0] == 5.0f && out[7] == (2.0f * 10 + 5) * 10 + 5);
  NEED(cudaGraphExecDestroy(exec));
  NEED(cudaGraphDestroy(graph));
  NEED(cudaStreamDestroy(stream));
  NEED(cudaFree(data));
  return true;
}

/* ---- pools, pinned memory ---- */

static bool pools() {
  cudaStream_t stream;
  cudaMemPool_t pool;
  NEED(cudaStreamCreate(&stream));
  NEED(cudaDeviceGetDefaultMemPool(&pool, 0));
  uint64_t keep = ~0ull, used = 0;
  NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  std::vector<float> out(1 << 16);
  for (int round = 0; round < 5; round++) {
    float *data;
    NEED(cudaMallocAsync(&data, out.size() * sizeof *data, stream));
    NEED(cudaMemsetAsync(data, 0, out.size() * sizeof *data, stream));
    scale<<<16, 128, 0, stream>>>(data, (int)out.size(), 1.0f, (float)round);
    NEED(cudaMemcpyAsync(out.data(), data, out.size() * sizeof *data, cudaMemcpyDeviceToHost, stream));
    NEED(cudaFreeAsync(data, stream));
    NEED(cudaStreamSynchronize(stream));
    for (float value : out) WANT(value == (float)round);
  }
  NEED(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  WANT(used == 0);
  NEED(cudaStreamDestroy(stream));
  return true;
}

static bool pinned() {
  const size_t size = 3 << 20;
  void *in, *device;
  std::vector<unsigned char> out(size, 1);
  NEED(cudaMallocHost(&in, size));
  NEED(cudaHostRegister(out.data(), size, cudaHostRegisterDefault));
  NEED(cudaMalloc(&device, size));
  for (size_t i = 0; i < size; i++) static_cast<unsigned char *>(in)[i] = (unsigned char)(i * 7 + i / 4096);
  NEED(cudaMemcpyAsync(device, in, size, cudaMemcpyHostToDevice, nullptr));
  NEED(cudaMemcpyAsync(out.data(), device, size, cudaMemcpyDeviceToHost, nullptr));
  NEED(cudaStreamSynchronize(nullptr));
  WANT(std::memcmp(in, out.data(), size) == 0);
  cudaPointerAttributes attributes;
  NEED(cudaPointerGetAttributes(&attributes, in));
  WANT(attributes.type == cudaMemoryTypeHost);
  NEED(cudaPointerGetAttributes(&attributes, device));
  WANT(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
  NEED(cudaHostUnregister(out.data()));
  NEED(cudaFreeHost(in));
  NEED(cudaFree(device));
  return true;
}

static bool boxes() {
  const size_t width = 100, height = 37;
  std::vector<unsigned char> in(width * height), out(width * height, 0);
  for (size_t i = 0; i < in.size(); i++) in[i] = (unsigned char)(i * 3);
  void *memory;
  size_t pitch;
  NEED(cudaMallocPitch(&memory, &pitch, width, height));
  WANT(pitch >= width && pitch % 32 == 0);
  NEED(cudaMemset2D(memory, pitch, 9, width, height));
  NEED(cudaMemcpy2D(memory, pitch, in.data(), width, width, height - 1, cudaMemcpyHostToDevice));
  NEED(cudaMemcpy2D(out.data(), width, memory, pitch, width, height, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < in.size(); i++) WANT(out[i] == (i / width == height - 1 ? 9 : in[i]));
  NEED(cudaFree(memory));
  return true;
}

/* ---- globals, modules ---- */

__device__ int table[64];
__constant__ float factors[4];
__global__ void use_globals(float *out) {
  out[threadIdx.x] = (float)table[threadIdx.x] * factors[threadIdx.x % 4];
  table[threadIdx.x]++;
}

static bool globals() {
  int numbers[64];
  float *device, out[64];
  const float four[4] = {1, 10, 100, 1000};
  for (int i = 0; i < 64; i++) numbers[i] = i * i;
  NEED(cudaMemcpyToSymbol(table, numbers, sizeof numbers));
  NEED(cudaMemcpyToSymbol(factors, four, sizeof four));
  NEED(cudaMalloc(&device, sizeof out));
  for (int round = 0; round < 3; round++) use_globals<<<1, 64>>>(device);
  NEED(cudaMemcpy(out, device, sizeof out, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; i++) WANT(out[i] == (float)(i * i + 2) * four[i % 4]);
  NEED(cudaMemcpyFromSymbol(numbers, table, sizeof numbers));
  WANT(numbers[5] == 28);
  void *address;
  size_t size;
  NEED(cudaGetSymbolAddress(&address, table));
  NEED(cudaGetSymbolSize(&size, table));
  WANT(size == sizeof numbers);
  NEED(cudaFree(device));
  return true;
}

static bool modules() {
  int *sum, told = 0;
  NEED(cudaMalloc(&sum, sizeof *sum));
  NEED(cudaMemset(sum, 0, sizeof *sum));
  for (int round = 0; round < 3; round++) {
    NEED(run_module_1(sum));
    NEED(run_module_2(sum));
    NEED(run_module_3(sum));
  }
  NEED(cudaMemcpy(&told, sum, sizeof told, cudaMemcpyDeviceToHost));
  WANT(told == 3 * 600 + 3 * 3); /* each variable went up by one a launch: 0 + 1 + 2 three times */
  NEED(cudaFree(sum));
  return true;
}

/* ---- threads, occupancy, errors ---- */

__global__ void total(const float *data, int count, float *out) {
  extern __shared__ float parts[];
  float sum = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) sum += data[i];
  parts[threadIdx.x] = sum;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *out = parts[0];
}

static bool one_thread(int number) {
  const int count = 4096;
  std::vector<float> in(count, (float)(number + 1));
  float *data, *out, told = 0;
  cudaStream_t stream;
  NEED(cudaSetDevice(0));
  NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  NEED(cudaMalloc(&data, count * sizeof *data));
  NEED(cudaMalloc(&out, sizeof *out));
  for (int round = 0; round < 10; round++) {
    NEED(cudaMemcpyAsync(data, in.data(), count * sizeof *data, cudaMemcpyHostToDevice, stream));
    total<<<1, 128, 128 * sizeof(float), stream>>>(data, count, out);
    NEED(cudaMemcpyAsync(&told, out, sizeof told, cudaMemcpyDeviceToHost, stream));
    NEED(cudaStreamSynchronize(stream));
    WANT(told == (float)count * (float)(number + 1));
  }
  NEED(cudaFree(data));
  NEED(cudaFree(out));
  NEED(cudaStreamDestroy(stream));
  return true;
}

static bool threads() {
  bool right[12] = {};
  std::vector<std::thread> all;
  for (int i = 0; i < 12; i++) all.emplace_back([&right, i] { right[i] = one_thread(i); });
  for (std::thread &thread : all) thread.join();
  for (bool one : right) WANT(one);
  return true;
}

static bool occupancy() {
  int blocks = 0, least = 0, size = 0;
  cudaFuncAttributes attributes;
  NEED(cudaFuncGetAttributes(&attributes, total));
  WANT(attributes.maxThreadsPerBlock >= 128);
  NEED(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, total, 128, 512));
  WANT(blocks >= 1);
  NEED(cudaOccupancyMaxPotentialBlockSize(&least, &size, total, 0, 0));
  WANT(size >= 32 && least >= 1);
  return true;
}

static bool errors() {
  void *memory = nullptr;
  WANT(cudaMalloc(&memory, ~0ull / 2) == cudaErrorMemoryAllocation);
  WANT(cudaGetLastError() == cudaErrorMemoryAllocation);
  scale<<<1, 2048>>>(nullptr, 0, 0, 0);
  /* The driver's error is CUDA_ERROR_INVALID_VALUE. On NVIDIA's driver the runtime converts it to 9. */
  WANT(cudaGetLastError() == cudaErrorInvalidValue);
  WANT(cudaGetLastError() == cudaSuccess);
  WANT(cudaSetDevice(7) == cudaErrorInvalidDevice);
  WANT(cudaGetLastError() == cudaErrorInvalidDevice);
  NEED(cudaSetDevice(0));
  NEED(cudaDeviceSynchronize());
  return true;
}

int main() {
  const struct {
    const char *name;
    bool (*run)();
  } parts[] = {{"properties", properties}, {"parameters", parameters}, {"streams", streams},
               {"graphs", graphs},         {"pools", pools},           {"pinned", pinned},
               {"boxes", boxes},           {"globals", globals},       {"modules", modules},
               {"threads", threads},       {"occupancy", occupancy},   {"errors", errors}};
  for (const auto &part : parts) {
    bool right = part.run();
    std::printf("%s %s\n", part.name, right ? "ok" : "WRONG");
  }
  if (cudaDeviceReset() != cudaSuccess) failures++;
  return failures == 0 ? 0 : 1;
}

#endif
