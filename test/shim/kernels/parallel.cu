// Blocks that share: reductions, scans, tiles, histograms, sorts.
extern "C" {

__global__ void vector_add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void saxpy(float a, const float *x, float *y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

// A sum a block, by shared memory and then by shuffles.
__global__ void reduce_sum(const int *in, int *out, int n) {
  __shared__ int part[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  part[t] = i < n ? in[i] : 0;
  __syncthreads();
  for (int s = blockDim.x / 2; s >= 32; s >>= 1) {
    if (t < s) part[t] += part[t + s];
    __syncthreads();
  }
  if (t < 32) {
    int v = part[t];
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    if (t == 0) atomicAdd(out, v);
  }
}

__global__ void reduce_max(const float *in, float *out, int n) {
  extern __shared__ float most[];
  int t = threadIdx.x;
  float m = -1e30f;
  for (int i = t; i < n; i += blockDim.x) m = fmaxf(m, in[i]);
  most[t] = m;
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    __syncthreads();
    if (t < s) most[t] = fmaxf(most[t], most[t + s]);
  }
  if (t == 0) *out = most[0];
}

// Inclusive scan of one block, Hillis and Steele.
__global__ void scan(const unsigned *in, unsigned *out, int n) {
  __shared__ unsigned buffer[2][512];
  int t = threadIdx.x, from = 0;
  buffer[0][t] = t < n ? in[t] : 0;
  __syncthreads();
  for (int o = 1; o < blockDim.x; o <<= 1) {
    buffer[1 - from][t] = buffer[from][t] + (t >= o ? buffer[from][t - o] : 0);
    from = 1 - from;
    __syncthreads();
  }
  if (t < n) out[t] = buffer[from][t];
}

__global__ void matmul_tiled(const float *a, const float *b, float *c, int n) {
  __shared__ float sa[16][16], sb[16][17];
  int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 16 + tx, y = blockIdx.y * 16 + ty;
  float sum = 0;
  for (int t = 0; t < (n + 15) / 16; t++) {
    sa[ty][tx] = y < n && t * 16 + tx < n ? a[y * n + t * 16 + tx] : 0;
    sb[ty][tx] = x < n && t * 16 + ty < n ? b[(t * 16 + ty) * n + x] : 0;
    __syncthreads();
    for (int k = 0; k < 16; k++) sum += sa[ty][k] * sb[k][tx];
    __syncthreads();
  }
  if (x < n && y < n) c[y * n + x] = sum;
}

__global__ void transpose(const double *in, double *out, int width, int height) {
  __shared__ double tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}

__global__ void histogram(const unsigned char *in, unsigned *out, int n) {
  __shared__ unsigned bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[in[i]], 1);
  __syncthreads();
  atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

// One block sorts 1024 keys with 512 threads.
__global__ void bitonic_sort(long long *keys) {
  __shared__ long long s[1024];
  int t = threadIdx.x;
  s[t] = keys[t];
  s[t + 512] = keys[t + 512];
  for (int k = 2; k <= 1024; k <<= 1) {
    for (int j = k >> 1; j > 0; j >>= 1) {
      __syncthreads();
      int i = 2 * t - (t & (j - 1));
      bool up = (i & k) == 0;
      long long a = s[i], b = s[i + j];
      if ((a > b) == up) {
        s[i] = b;
        s[i + j] = a;
      }
    }
  }
  __syncthreads();
  keys[t] = s[t];
  keys[t + 512] = s[t + 512];
}

// Every block waits for the one before it: a chained scan with a flag a block.
__device__ volatile unsigned chain[1024];
__global__ void chained(unsigned *out) {
  if (threadIdx.x == 0) {
    unsigned before = 0;
    if (blockIdx.x > 0) {
      while ((before = chain[blockIdx.x - 1]) == 0) {
      }
    }
    out[blockIdx.x] = before + blockIdx.x;
    __threadfence();
    chain[blockIdx.x] = before + blockIdx.x + 1;
  }
}
}
