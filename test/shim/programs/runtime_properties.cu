/* NVIDIA's own runtime on our driver: what every CUDA program does before its first kernel, and one launch. */
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
#include <dlfcn.h>

__global__ void kernel(int *p) {
  *p = 1;
}

static int failures;

static void step(const char *name, cudaError_t error) {
  std::printf("%s %d\n", name, (int)error);
  if (error != cudaSuccess) failures++;
}

int main() {
  int count = 0, runtime = 0, driver = 0;
  step("count", cudaGetDeviceCount(&count));
  step("runtime", cudaRuntimeGetVersion(&runtime));
  step("driver", cudaDriverGetVersion(&driver));
  cudaDeviceProp properties;
  std::memset(&properties, 0, sizeof properties);
  step("properties", cudaGetDeviceProperties(&properties, 0));
  std::printf("device %d %d.%d %zu %d %s\n", count, properties.major, properties.minor, properties.totalGlobalMem,
              driver, properties.name);
  const size_t size = 3000001;
  unsigned char *device = nullptr, *out = new unsigned char[size], *in = new unsigned char[size];
  for (size_t i = 0; i < size; i++) out[i] = (unsigned char)(i * 31 + i / 257);
  step("malloc", cudaMalloc(&device, size));
  step("memcpy_to", cudaMemcpy(device, out, size, cudaMemcpyHostToDevice));
  step("memcpy_from", cudaMemcpy(in, device, size, cudaMemcpyDefault));
  std::printf("same %d\n", std::memcmp(in, out, size));
  step("memset", cudaMemset(device, 0x5a, size));
  step("memcpy_from", cudaMemcpy(in, device, size, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (size_t i = 0; i < size; i++) wrong += in[i] != 0x5a;
  std::printf("same %d\n", wrong);
  size_t unused = 0, total = 0;
  step("info", cudaMemGetInfo(&unused, &total));
  cudaStream_t stream;
  cudaEvent_t first, last;
  float milliseconds = -1;
  step("stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  step("event", cudaEventCreate(&first));
  step("event", cudaEventCreate(&last));
  step("record", cudaEventRecord(first, stream));
  step("async", cudaMemcpyAsync(device, out, size, cudaMemcpyHostToDevice, stream));
  step("record", cudaEventRecord(last, stream));
  step("synchronize", cudaStreamSynchronize(stream));
  step("elapsed", cudaEventElapsedTime(&milliseconds, first, last));
  void *pinned = nullptr;
  step("pinned", cudaMallocHost(&pinned, 100000));
  step("pinned", cudaFreeHost(pinned));
  cudaPointerAttributes attributes;
  step("pointer", cudaPointerGetAttributes(&attributes, device));
  std::printf("type %d\n", (int)attributes.type);
  step("free", cudaFree(device));
  void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
  for (const char *end : {"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"}) {
    step(end, (cudaError_t)((int (*)(int))dlsym(libcuda, end))(0));
    step("malloc", cudaMalloc(&device, size));
    step("free", cudaFree(device));
  }
  std::printf("failures %d\n", failures);
  /* No kernel runs on a software device, and the program must be told. */
  kernel<<<1, 1>>>(nullptr);
  cudaError_t launch = cudaGetLastError();
  std::printf("launch %d\n", (int)launch);
  std::printf("executed %d\n", (int)cudaDeviceSynchronize());
  step("reset", cudaDeviceReset());
  delete[] in;
  delete[] out;
  return 0;
}
