// Common kernels, for ratios to C: what test/bench/programs/common_bench.c computes. PTX: nvcc -ptx -arch=compute_80.
#include <cub/block/block_radix_sort.cuh>
#include <cuda_fp16.h>

extern "C" __global__ void saxpy(float *y, const float *x, float a, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void reduce(float *out, const float *in, unsigned n) {
  __shared__ float part[32];
  float sum = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  for (int k = 16; k > 0; k /= 2) sum += __shfl_down_sync(~0u, sum, k);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
  for (int k = 16; k > 0; k /= 2) sum += __shfl_down_sync(~0u, sum, k);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void matmul(float *c, const float *a, const float *b, unsigned n) {
  __shared__ float sa[16][16], sb[16][17];
  unsigned x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  float sum = 0;
  for (unsigned t = 0; t < n; t += 16) {
    sa[y][x] = a[row * n + t + x];
    sb[y][x] = b[(t + y) * n + column];
    __syncthreads();
    for (int k = 0; k < 16; k++) sum += sa[y][k] * sb[k][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

extern "C" __global__ void spmv(float *y, const unsigned *rows, const unsigned *columns, const float *values,
                                const float *x, unsigned n) {
  unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n) return;
  float sum = 0;
  for (unsigned i = rows[row]; i < rows[row + 1]; i++) sum += values[i] * x[columns[i]];
  y[row] = sum;
}

extern "C" __global__ void stencil(float *out, const float *in, unsigned n) {
  __shared__ float tile[18][18];
  unsigned x = threadIdx.x + 1, y = threadIdx.y + 1;
  unsigned column = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y, pitch = n + 2;
  tile[y][x] = in[row * pitch + column];
  if (x == 1) tile[y][0] = in[row * pitch + column - 1];
  if (x == 16) tile[y][17] = in[row * pitch + column + 1];
  if (y == 1) tile[0][x] = in[(row - 1) * pitch + column];
  if (y == 16) tile[17][x] = in[(row + 1) * pitch + column];
  __syncthreads();
  out[row * pitch + column] =
      0.5f * tile[y][x] + 0.125f * (tile[y][x - 1] + tile[y][x + 1] + tile[y - 1][x] + tile[y + 1][x]);
}

extern "C" __global__ void nbody(float4 *out, const float4 *bodies, unsigned n) {
  __shared__ float4 tile[256];
  unsigned i = blockIdx.x * 256 + threadIdx.x;
  float4 me = bodies[i];
  float ax = 0, ay = 0, az = 0;
  for (unsigned t = 0; t < n; t += 256) {
    tile[threadIdx.x] = bodies[t + threadIdx.x];
    __syncthreads();
    for (int k = 0; k < 256; k++) {
      float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
      float r = 1.0f / sqrtf(dx * dx + dy * dy + dz * dz + 0.01f), s = tile[k].w * r * r * r;
      ax += dx * s;
      ay += dy * s;
      az += dz * s;
    }
    __syncthreads();
  }
  out[i] = make_float4(ax, ay, az, 0);
}

static __device__ float normal(float d) {
  float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
  float p = 0.39894228f * expf(-0.5f * d * d) *
            (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
  return d > 0 ? 1.0f - p : p;
}
extern "C" __global__ void blackscholes(float *call, float *put, const float *price, const float *strike,
                                        const float *years, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float rate = 0.02f, volatility = 0.3f;
  float s = price[i], x = strike[i], t = years[i], root = sqrtf(t);
  float d1 = (logf(s / x) + (rate + 0.5f * volatility * volatility) * t) / (volatility * root);
  float d2 = d1 - volatility * root, c1 = normal(d1), c2 = normal(d2), e = expf(-rate * t);
  call[i] = s * c1 - x * e * c2;
  put[i] = x * e * (1.0f - c2) - s * (1.0f - c1);
}

extern "C" __global__ void mandelbrot(unsigned *out, unsigned n, unsigned most) {
  unsigned column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  float cx = -2.0f + 3.0f * column / n, cy = -1.5f + 3.0f * row / n, x = 0, y = 0;
  unsigned k = 0;
  while (k < most && x * x + y * y < 4.0f) {
    float next = x * x - y * y + cx;
    y = 2.0f * x * y + cy;
    x = next;
    k++;
  }
  out[row * n + column] = k;
}

static __constant__ unsigned words[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
#define ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))
extern "C" __global__ void sha256(unsigned *out, const unsigned *in, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned w[16], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  unsigned a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], z = h[7];
  for (int k = 0; k < 16; k++) w[k] = in[i * 16 + k];
#pragma unroll
  for (int k = 0; k < 64; k++) {
    if (k >= 16) {
      unsigned p = w[(k + 1) % 16], q = w[(k + 14) % 16];
      w[k % 16] += (ROTATE(p, 7) ^ ROTATE(p, 18) ^ p >> 3) + w[(k + 9) % 16] + (ROTATE(q, 17) ^ ROTATE(q, 19) ^ q >> 10);
    }
    unsigned t = z + (ROTATE(e, 6) ^ ROTATE(e, 11) ^ ROTATE(e, 25)) + ((e & f) ^ (~e & g)) + words[k] + w[k % 16];
    unsigned u = (ROTATE(a, 2) ^ ROTATE(a, 13) ^ ROTATE(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    z = g, g = f, f = e, e = d + t, d = c, c = b, b = a, a = t + u;
  }
  unsigned r[8] = {a, b, c, d, e, f, g, z};
  for (int k = 0; k < 8; k++) out[i * 8 + k] = h[k] + r[k];
}

extern "C" __global__ void histogram(unsigned *out, const unsigned char *in, unsigned n) {
  __shared__ unsigned bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (unsigned i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&bins[in[i]], 1);
  __syncthreads();
  atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

// The inclusive sums of each block's 1024 numbers.
extern "C" __global__ void scan(unsigned *out, const unsigned *in) {
  __shared__ unsigned ends[32];
  unsigned i = blockIdx.x * 1024 + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = in[i];
  for (int k = 1; k < 32; k *= 2) {
    unsigned other = __shfl_up_sync(~0u, sum, k);
    if (lane >= k) sum += other;
  }
  if (lane == 31) ends[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    unsigned end = ends[lane];
    for (int k = 1; k < 32; k *= 2) {
      unsigned other = __shfl_up_sync(~0u, end, k);
      if (lane >= k) end += other;
    }
    ends[lane] = end;
  }
  __syncthreads();
  out[i] = sum + (warp > 0 ? ends[warp - 1] : 0);
}

extern "C" __global__ void sort(unsigned *out, const unsigned *in) {
  using Sort = cub::BlockRadixSort<unsigned, 256, 4>;
  __shared__ typename Sort::TempStorage room;
  unsigned keys[4];
  for (int k = 0; k < 4; k++) keys[k] = in[blockIdx.x * 1024 + threadIdx.x * 4 + k];
  Sort(room).Sort(keys);
  for (int k = 0; k < 4; k++) out[blockIdx.x * 1024 + threadIdx.x * 4 + k] = keys[k];
}

// Products of a matrix and a vector, a row a block of 128 threads, in the layouts of ggml.
struct block8 {
  __half d;
  signed char q[32];
};
struct block4 {
  __half d;
  unsigned char q[16];
};

static __device__ void finish(float *y, float sum) {
  __shared__ float part[4];
  for (int k = 16; k > 0; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = part[0] + part[1] + part[2] + part[3];
}

static __device__ int four(const void *q, int i) {
  const unsigned short *h = (const unsigned short *)q;
  return h[2 * i] | h[2 * i + 1] << 16;
}

extern "C" __global__ void matvec_q8(float *y, const block8 *w, const block8 *x, unsigned blocks) {
  const block8 *row = w + (size_t)blockIdx.x * blocks;
  unsigned part = threadIdx.x % 4 * 2;
  float sum = 0;
  for (unsigned b = threadIdx.x / 4; b < blocks; b += 32) {
    int s = 0;
    for (int k = 0; k < 2; k++) s = __dp4a(four(row[b].q, part + k), four(x[b].q, part + k), s);
    sum += __half2float(row[b].d) * __half2float(x[b].d) * s;
  }
  finish(y, sum);
}

extern "C" __global__ void matvec_q4(float *y, const block4 *w, const block8 *x, unsigned blocks) {
  const block4 *row = w + (size_t)blockIdx.x * blocks;
  unsigned part = threadIdx.x % 2 * 2;
  float sum = 0;
  for (unsigned b = threadIdx.x / 2; b < blocks; b += 64) {
    int s = 0;
    for (int k = 0; k < 2; k++) {
      int q = four(row[b].q, part + k);
      s = __dp4a(q & 0x0f0f0f0f, four(x[b].q, part + k), s);
      s = __dp4a(q >> 4 & 0x0f0f0f0f, four(x[b].q, part + k + 4), s);
      s -= __dp4a(0x08080808, four(x[b].q, part + k), 0);
      s -= __dp4a(0x08080808, four(x[b].q, part + k + 4), 0);
    }
    sum += __half2float(row[b].d) * __half2float(x[b].d) * s;
  }
  finish(y, sum);
}

extern "C" __global__ void matvec_f16(float *y, const __half2 *w, const float2 *x, unsigned n) {
  const __half2 *row = w + (size_t)blockIdx.x * (n / 2);
  float sum = 0;
  for (unsigned i = threadIdx.x; i < n / 2; i += 128) {
    float2 a = __half22float2(row[i]), b = x[i];
    sum += a.x * b.x + a.y * b.y;
  }
  finish(y, sum);
}
