/*
 * Textures and surfaces as a CUDA programmer uses them, through NVIDIA's runtime: each part compares what kernels
 * read and write with the same done in plain C++, and prints a line.
 */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define MUST(call)                                                                                           \
  do {                                                                                                       \
    cudaError_t error_ = (call);                                                                             \
    if (error_ != cudaSuccess) {                                                                             \
      std::printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error_));                         \
      std::exit(1);                                                                                          \
    }                                                                                                        \
  } while (0)

static int wrong;

static void same(const char *part, double got, double wanted, double tolerance = 1e-5) {
  if (std::fabs(got - wanted) <= tolerance) return;
  if (wrong++ < 10) std::printf("%s: %g is not %g\n", part, got, wanted);
}

static void say(const char *part) {
  if (wrong == 0) std::printf("%s ok\n", part);
  else std::printf("%s: %d wrong\n", part, wrong);
  wrong = 0;
}

template <typename T> static T *results(const std::vector<T> &like) {
  T *device;
  MUST(cudaMalloc(&device, like.size() * sizeof(T)));
  return device;
}

template <typename T> static std::vector<T> fetched(T *device, size_t count) {
  std::vector<T> host(count);
  MUST(cudaDeviceSynchronize());
  MUST(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  MUST(cudaFree(device));
  return host;
}

static cudaTextureObject_t texture_of(const cudaResourceDesc &resource, cudaTextureFilterMode filter,
                                      cudaTextureReadMode mode, bool normalized,
                                      cudaTextureAddressMode address = cudaAddressModeClamp) {
  cudaTextureDesc description = {};
  for (auto &axis : description.addressMode) axis = address;
  description.filterMode = filter;
  description.mipmapFilterMode = filter;
  description.readMode = mode;
  description.normalizedCoords = normalized;
  description.maxMipmapLevelClamp = 10;
  cudaTextureObject_t texture = 0;
  MUST(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  return texture;
}

static cudaResourceDesc of_array(cudaArray_t array) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  return resource;
}

/* ---- memory -------------------------------------------------------------- */

__global__ void fetch_line(cudaTextureObject_t texture, float4 *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = tex1Dfetch<float4>(texture, i);
}

static void linear_memory() {
  std::vector<float4> texels(256), out(288);
  for (int i = 0; i < 256; i++) texels[i] = make_float4(i, i * 2, -i, 0.5f);
  float4 *device;
  MUST(cudaMalloc(&device, 256 * sizeof *device));
  MUST(cudaMemcpy(device, texels.data(), 256 * sizeof *device, cudaMemcpyHostToDevice));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = device;
  resource.res.linear.desc = cudaCreateChannelDesc<float4>();
  resource.res.linear.sizeInBytes = 256 * sizeof *device;
  cudaTextureObject_t texture = texture_of(resource, cudaFilterModePoint, cudaReadModeElementType, false);
  float4 *to = results(out);
  fetch_line<<<9, 32>>>(texture, to);
  out = fetched(to, 288);
  for (int i = 0; i < 288; i++) {
    same("y", out[i].y, i < 256 ? i * 2 : 0);
    same("z", out[i].z, i < 256 ? -i : 0);
  }
  MUST(cudaDestroyTextureObject(texture));
  MUST(cudaFree(device));
  say("linear memory");
}

/* ---- two dimensions ------------------------------------------------------ */

__global__ void turn(cudaTextureObject_t texture, uchar4 *out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) out[y * width + x] = tex2D<uchar4>(texture, width - 1 - x, y);
}

__global__ void between(cudaTextureObject_t texture, float *out, int width) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  out[x] = tex2D<float>(texture, x / (float)width * 2, 0.5f);
}

static void images() {
  const int width = 37, height = 21;
  std::vector<uchar4> texels(width * height), out(width * height);
  for (int i = 0; i < width * height; i++) texels[i] = make_uchar4(i, i >> 3, 255 - i, 7);
  cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>(), told;
  cudaExtent extent;
  unsigned flags;
  cudaArray_t array;
  MUST(cudaMallocArray(&array, &format, width, height));
  MUST(cudaArrayGetInfo(&told, &extent, &flags, array));
  same("width", extent.width, width);
  same("bits", told.w, 8);
  MUST(cudaMemcpy2DToArray(array, 0, 0, texels.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
  cudaTextureObject_t texture = texture_of(of_array(array), cudaFilterModePoint, cudaReadModeElementType, false);
  uchar4 *to = results(out);
  turn<<<dim3(5, 3), dim3(8, 8)>>>(texture, to, width, height);
  out = fetched(to, out.size());
  for (int i = 0; i < width * height; i++) {
    const uchar4 &wanted = texels[i / width * width + width - 1 - i % width];
    same("red", out[i].x, wanted.x);
    same("blue", out[i].z, wanted.z);
  }
  std::vector<uchar4> back(width * height);
  MUST(cudaMemcpy2DFromArray(back.data(), width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
  same("back", std::memcmp(back.data(), texels.data(), back.size() * 4), 0);
  MUST(cudaDestroyTextureObject(texture));

  /* The same as floats from 0 to 1, filtered, around the edge and again. */
  texture = texture_of(of_array(array), cudaFilterModeLinear, cudaReadModeNormalizedFloat, true, cudaAddressModeWrap);
  std::vector<float> line(256);
  float *lines = results(line);
  between<<<8, 32>>>(texture, lines, 256);
  line = fetched(lines, line.size());
  for (int i = 0; i < 256; i++) {
    double place = std::fmod(i / 256.0 * 2, 1.0) * width - 0.5, row = 0.5 * height - 0.5;
    double first = std::floor(place), weight = std::floor((place - first) * 256 + 0.5) / 256;
    auto texel = [&](int x) { return texels[(int)row * width + (x + width) % width].x / 255.0; };
    same("filtered", line[i], texel((int)first) * (1 - weight) + texel((int)first + 1) * weight, 1e-3);
  }
  MUST(cudaDestroyTextureObject(texture));
  MUST(cudaFreeArray(array));
  say("images");
}

/* ---- more dimensions ----------------------------------------------------- */

__global__ void volume(cudaTextureObject_t solid, cudaTextureObject_t layers, float *out) {
  int x = threadIdx.x, y = threadIdx.y, z = blockIdx.x, i = (z * 8 + y) * 8 + x;
  out[i] = tex3D<float>(solid, x + 0.5f, y + 0.5f, z + 0.5f);
  out[512 + i] = tex2DLayered<float>(layers, x + 0.5f, y + 0.5f, z);
}

static void volumes() {
  std::vector<float> texels(512), out(1024);
  for (int i = 0; i < 512; i++) texels[i] = i * 1.25f;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t solid, layers;
  MUST(cudaMalloc3DArray(&solid, &format, make_cudaExtent(8, 8, 8)));
  MUST(cudaMalloc3DArray(&layers, &format, make_cudaExtent(8, 8, 8), cudaArrayLayered));
  for (cudaArray_t array : {solid, layers}) {
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(texels.data(), 8 * sizeof(float), 8, 8);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(8, 8, 8);
    copy.kind = cudaMemcpyHostToDevice;
    MUST(cudaMemcpy3D(&copy));
  }
  float *to = results(out);
  volume<<<8, dim3(8, 8)>>>(texture_of(of_array(solid), cudaFilterModeLinear, cudaReadModeElementType, false),
                            texture_of(of_array(layers), cudaFilterModePoint, cudaReadModeElementType, false), to);
  out = fetched(to, out.size());
  for (int i = 0; i < 1024; i++) same("texel", out[i], texels[i % 512]);
  MUST(cudaFreeArray(solid));
  MUST(cudaFreeArray(layers));
  say("volumes and layers");
}

__global__ void faces(cudaTextureObject_t cube, float *out) {
  const float directions[6][3] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}};
  const float *d = directions[threadIdx.x];
  out[threadIdx.x] = texCubemap<float>(cube, d[0], d[1], d[2]);
}

__global__ void levels(cudaTextureObject_t mipmap, float *out) {
  out[threadIdx.x] = tex2DLod<float>(mipmap, 0.5f, 0.5f, threadIdx.x * 0.5f);
}

static void cubes_and_mipmaps() {
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  std::vector<float> texels(6 * 16), out(6);
  for (int i = 0; i < 96; i++) texels[i] = i / 16;
  cudaArray_t cube;
  MUST(cudaMalloc3DArray(&cube, &format, make_cudaExtent(4, 4, 6), cudaArrayCubemap));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(texels.data(), 4 * sizeof(float), 4, 4);
  copy.dstArray = cube;
  copy.extent = make_cudaExtent(4, 4, 6);
  copy.kind = cudaMemcpyHostToDevice;
  MUST(cudaMemcpy3D(&copy));
  float *to = results(out);
  faces<<<1, 6>>>(texture_of(of_array(cube), cudaFilterModeLinear, cudaReadModeElementType, true), to);
  out = fetched(to, 6);
  for (int i = 0; i < 6; i++) same("face", out[i], i);

  cudaMipmappedArray_t mipmap;
  MUST(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(8, 8, 0), 4));
  for (int level = 0; level < 4; level++) {
    cudaArray_t array;
    int size = 8 >> level;
    std::vector<float> same_all(size * size, level * 10.0f);
    MUST(cudaGetMipmappedArrayLevel(&array, mipmap, level));
    MUST(cudaMemcpy2DToArray(array, 0, 0, same_all.data(), size * 4, size * 4, size, cudaMemcpyHostToDevice));
  }
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeMipmappedArray;
  resource.res.mipmap.mipmap = mipmap;
  to = results(out);
  levels<<<1, 6>>>(texture_of(resource, cudaFilterModeLinear, cudaReadModeElementType, true), to);
  out = fetched(to, 6);
  for (int i = 0; i < 6; i++) same("level", out[i], i * 5);
  MUST(cudaFreeMipmappedArray(mipmap));
  say("cubes and mipmaps");
}

/* ---- surfaces ------------------------------------------------------------ */

__global__ void draw(cudaSurfaceObject_t surface, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) surf2Dwrite(make_float2(x, y * 100), surface, x * (int)sizeof(float2), y);
}

__global__ void add_up(cudaSurfaceObject_t surface, float *out, int width, int height) {
  float sum = 0;
  for (int y = 0; y < height; y++) {
    for (int x = 0; x < width; x++) sum += surf2Dread<float2>(surface, x * (int)sizeof(float2), y).x;
  }
  *out = sum + surf2Dread<float2>(surface, width * (int)sizeof(float2), 0, cudaBoundaryModeZero).x;
}

static void surfaces() {
  const int width = 24, height = 10;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float2>();
  cudaArray_t array;
  MUST(cudaMallocArray(&array, &format, width, height, cudaArraySurfaceLoadStore));
  cudaResourceDesc resource = of_array(array);
  cudaSurfaceObject_t surface;
  MUST(cudaCreateSurfaceObject(&surface, &resource));
  draw<<<dim3(3, 2), dim3(8, 8)>>>(surface, width, height);
  std::vector<float> sum(1);
  float *to = results(sum);
  add_up<<<1, 1>>>(surface, to, width, height);
  sum = fetched(to, 1);
  same("sum", sum[0], width * (width - 1) / 2 * height);
  std::vector<float2> out(width * height);
  MUST(cudaMemcpy2DFromArray(out.data(), width * 8, array, 0, 0, width * 8, height, cudaMemcpyDeviceToHost));
  for (int i = 0; i < width * height; i++) {
    same("x", out[i].x, i % width);
    same("y", out[i].y, i / width * 100);
  }
  MUST(cudaDestroySurfaceObject(surface));
  MUST(cudaFreeArray(array));
  say("surfaces");
}

int main() {
  linear_memory();
  images();
  volumes();
  cubes_and_mipmaps();
  surfaces();
  return 0;
}
