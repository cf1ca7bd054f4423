// Arithmetic of several widths.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

struct complex {
  float re, im;
};

extern "C" {

// 256 points, one block of 128 threads.
__global__ void fft256(const complex *in, complex *out) {
  __shared__ complex s[256];
  int t = threadIdx.x;
  for (int i = t; i < 256; i += 128) s[__brev(i) >> 24] = in[i];
  for (int half = 1; half < 256; half *= 2) {
    __syncthreads();
    int k = t & (half - 1), i = 2 * t - k;
    float angle = -3.14159265358979f * k / half, c = cosf(angle), w = sinf(angle);
    complex a = s[i], b = s[i + half];
    complex m = {b.re * c - b.im * w, b.re * w + b.im * c};
    s[i] = {a.re + m.re, a.im + m.im};
    s[i + half] = {a.re - m.re, a.im - m.im};
  }
  __syncthreads();
  for (int i = t; i < 256; i += 128) out[i] = s[i];
}

__global__ void nbody(const float4 *bodies, float3 *forces, int n) {
  __shared__ float4 tile[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  float4 me = bodies[i];
  float3 f = {0, 0, 0};
  for (int t = 0; t < n; t += 64) {
    tile[threadIdx.x] = bodies[t + threadIdx.x];
    __syncthreads();
    for (int k = 0; k < 64; k++) {
      float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
      float r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), s = tile[k].w * r * r * r;
      f.x += dx * s;
      f.y += dy * s;
      f.z += dz * s;
    }
    __syncthreads();
  }
  forces[i] = f;
}

__global__ void mandelbrot(int *out, int width, int height, int limit) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  double cr = __dadd_rn(__dmul_rn(3.0 / width, x), -2.25), ci = __dadd_rn(__dmul_rn(2.5 / height, y), -1.25);
  double zr = 0, zi = 0;
  int n = 0;
  while (n < limit) {
    double rr = __dmul_rn(zr, zr), ii = __dmul_rn(zi, zi);
    if (__dadd_rn(rr, ii) > 4.0) break;
    double next = __dadd_rn(__dadd_rn(rr, -ii), cr);
    zi = __dadd_rn(__dmul_rn(__dmul_rn(2.0, zr), zi), ci);
    zr = next;
    n++;
  }
  out[y * width + x] = n;
}

__global__ void half_dot(const __half2 *a, const __half2 *b, float *out, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 32) {
    float2 x = __half22float2(a[i]), y = __half22float2(b[i]);
    sum += x.x * y.x + x.y * y.y;
  }
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
  if (threadIdx.x == 0) *out = sum;
}

// Native half arithmetic where the target has it.
__global__ void half_axpy(const __half *a, const __half *b, __half *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __float2half(__half2float(a[i]) * 0.5f + __half2float(b[i]));
}

__global__ void bfloat_dot(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *out, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 32) sum += __bfloat162float(a[i]) * __bfloat162float(b[i]);
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
  if (threadIdx.x == 0) *out = sum;
}

#if __CUDA_ARCH__ >= 610
__global__ void dp4a_dot(const int *a, const int *b, int *out, int n) {
  int sum = 0;
  for (int i = threadIdx.x; i < n; i += 32) sum = __dp4a(a[i], b[i], sum);
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
  if (threadIdx.x == 0) *out = sum;
}
#endif

__global__ void big_multiply(const unsigned *a, const unsigned *b, unsigned *out) {
  // 128 by 128 bits, with carries in registers
  unsigned long long r[8] = {0};
  const unsigned *x = a + threadIdx.x * 4, *y = b + threadIdx.x * 4;
  for (int i = 0; i < 4; i++) {
    unsigned long long carry = 0;
    for (int j = 0; j < 4; j++) {
      unsigned long long t = (unsigned long long)x[i] * y[j] + r[i + j] + carry;
      r[i + j] = (unsigned)t;
      carry = t >> 32;
    }
    r[i + 4] = carry;
  }
  for (int i = 0; i < 8; i++) out[threadIdx.x * 8 + i] = (unsigned)r[i];
}

__global__ void multiply128(const unsigned long long *a, unsigned __int128 *out) {
  unsigned __int128 x = a[threadIdx.x];
  out[threadIdx.x] = x * x + (x << 64) + 12345;
}

__global__ void divisions(const long long *a, const long long *b, long long *q, long long *r, double *d) {
  int i = threadIdx.x;
  q[i] = a[i] / b[i];
  r[i] = a[i] % b[i];
  d[i] = (double)a[i] / (double)b[i];
}

__global__ void functions(const double *in, double *out, float *small) {
  int i = threadIdx.x;
  double x = in[i];
  out[i * 4] = exp(x);
  out[i * 4 + 1] = log(fabs(x) + 1);
  out[i * 4 + 2] = sin(x);
  out[i * 4 + 3] = pow(fabs(x), 1.5);
  float y = (float)x;
  small[i * 4] = expf(y);
  small[i * 4 + 1] = logf(fabsf(y) + 1);
  small[i * 4 + 2] = tanhf(y);
  small[i * 4 + 3] = erff(y);
}
}
