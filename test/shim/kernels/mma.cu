// Tensor cores: one warp, one tile. Fragments are gathered as the PTX ISA's tables say, or by ldmatrix.
#include <cuda_fp16.h>
#include <mma.h>

__device__ unsigned pair(const unsigned short *m, int at, int next) {
  return m[at] | (unsigned)m[next] << 16;
}

extern "C" {

// a 16x8 by rows, b 8x8 by rows, c and d 16x8 floats
__global__ void half_k8(const unsigned short *a, const unsigned short *b, const float *c, float *d) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned a0 = pair(a, g * 8 + t * 2, g * 8 + t * 2 + 1), a1 = pair(a, (g + 8) * 8 + t * 2, (g + 8) * 8 + t * 2 + 1);
  unsigned b0 = pair(b, t * 2 * 8 + g, (t * 2 + 1) * 8 + g);
  float r[4] = {c[g * 8 + t * 2], c[g * 8 + t * 2 + 1], c[(g + 8) * 8 + t * 2], c[(g + 8) * 8 + t * 2 + 1]};
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(a0), "r"(a1), "r"(b0));
  d[g * 8 + t * 2] = r[0];
  d[g * 8 + t * 2 + 1] = r[1];
  d[(g + 8) * 8 + t * 2] = r[2];
  d[(g + 8) * 8 + t * 2 + 1] = r[3];
}

// by nvcc's own library, whatever its fragments are: 16x16x16 and 8x32x16
__global__ void library_tile(const __half *a, const __half *b, float *d) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
  fragment<accumulator, 16, 16, 16, float> fc;
  fill_fragment(fc, 1.0f);
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 16);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(d, fc, 16, mem_row_major);
}

__global__ void eights_k16(const signed char *a, const signed char *b, int *d) {
  // a 8x16 by rows, b 16x8 by columns: four bytes of k in a register
  int g = threadIdx.x / 4, t = threadIdx.x % 4, r0 = 5, r1 = -5;
  int a0 = *(const int *)(a + g * 16 + t * 4), b0 = *(const int *)(b + g * 16 + t * 4);
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+r"(r0), "+r"(r1) : "r"(a0), "r"(b0));
  d[g * 8 + t * 2] = r0;
  d[g * 8 + t * 2 + 1] = r1;
}

// a and b through ldmatrix: b is stored by rows and transposed on the way; movmatrix turns a tile
__global__ void by_ldmatrix(const unsigned short *a, const unsigned short *b, unsigned short *d, unsigned *turned) {
  __shared__ unsigned short sa[16 * 8], sb[8 * 8];
  for (int i = threadIdx.x; i < 128; i += 32) sa[i] = a[i];
  for (int i = threadIdx.x; i < 64; i += 32) sb[i] = b[i];
  __syncwarp();
  unsigned a0, a1, b0, d0 = 0, d1 = 0;
  unsigned pa = (unsigned)__cvta_generic_to_shared(&sa[threadIdx.x % 16 * 8]);
  unsigned pb = (unsigned)__cvta_generic_to_shared(&sb[threadIdx.x % 8 * 8]);
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(a0), "=r"(a1) : "r"(pa));
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(b0) : "r"(pb));
  asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%0,%1};" : "+r"(d0), "+r"(d1) : "r"(a0), "r"(a1), "r"(b0));
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  *(unsigned *)(d + g * 8 + t * 2) = d0;
  *(unsigned *)(d + (g + 8) * 8 + t * 2) = d1;
  unsigned m;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(m) : "r"(a0));
  turned[threadIdx.x] = m;
}

#if __CUDA_ARCH__ >= 800
// a 16x16 by rows, b 16x8 by rows
__global__ void half_k16(const unsigned short *a, const unsigned short *b, float *d, int bfloat) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned x[4], y[2];
  for (int i = 0; i < 4; i++) {
    int row = g + (i % 2) * 8, k = t * 2 + i / 2 * 8;
    x[i] = pair(a, row * 16 + k, row * 16 + k + 1);
  }
  for (int i = 0; i < 2; i++) y[i] = pair(b, (t * 2 + i * 8) * 8 + g, (t * 2 + i * 8 + 1) * 8 + g);
  float r[4] = {0, 0, 0, 0};
  if (bfloat)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = r[i];
}

// a 16x8 by rows, b 8x8 by rows, both floats
__global__ void tf32_k8(const unsigned *a, const unsigned *b, float *d) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned x[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
  unsigned y[2] = {b[t * 8 + g], b[(t + 4) * 8 + g]};
  float r[4] = {0, 0, 0, 0};
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = r[i];
}

// a 16x32 by rows, b 32x8 by columns
__global__ void eights_k32(const signed char *a, const signed char *b, int *d) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4, r[4] = {0, 0, 0, 0}, x[4], y[2];
  for (int i = 0; i < 4; i++) x[i] = *(const int *)(a + (g + i % 2 * 8) * 32 + t * 4 + i / 2 * 16);
  for (int i = 0; i < 2; i++) y[i] = *(const int *)(b + g * 32 + t * 4 + i * 16);
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = r[i];
}

// a copy through shared memory that waits for its group, some of it filled with zeros
__global__ void copies(const int4 *in, int4 *out) {
  __shared__ int4 s[64];
  unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
  int bytes = threadIdx.x % 3 == 0 ? 8 : 16;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(in + threadIdx.x), "r"(bytes));
  asm volatile("cp.async.commit_group;");
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void reduces(const int *in, int *out) {
  out[threadIdx.x] = __reduce_add_sync(0xffffffff, in[threadIdx.x]) + 1000 * __reduce_max_sync(0xffffffff, in[threadIdx.x]);
}
#endif
}
