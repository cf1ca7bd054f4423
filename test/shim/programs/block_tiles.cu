// Cooperative groups' tiles of more than a warp. From 8.0 on they keep their data in the reserved part of shared
// memory, which must not be a variable of the program.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cstdio>

namespace cg = cooperative_groups;
enum { THREADS = 512, TILE = 128, BLOCKS = 3, LEFT = 5 };

__global__ void work(int *out) {
  __shared__ cg::block_tile_memory<THREADS> memory;
  __shared__ int own[THREADS];
  extern __shared__ int more[];
  int t = (int)threadIdx.x;
  own[t] = t * 7;
  more[t] = t * 9;
  cg::thread_block block = cg::this_thread_block(memory);
  auto tile = cg::tiled_partition<TILE>(block);
  int *mine = out + (blockIdx.x * THREADS + t) * LEFT;
  mine[0] = cg::reduce(tile, t, cg::plus<int>());
  mine[1] = tile.shfl(t * 3, 77);
  mine[2] = tile.any(t == 130);
  mine[3] = cg::exclusive_scan(tile, t);
  block.sync();
  mine[4] = own[THREADS - 1 - t] + more[t ^ 64];
}

int main() {
  static int all[BLOCKS * THREADS * LEFT];
  int *out, wrong = 0;
  cudaMalloc(&out, sizeof all);
  work<<<BLOCKS, THREADS, THREADS * sizeof(int)>>>(out);
  cudaError_t result = cudaMemcpy(all, out, sizeof all, cudaMemcpyDeviceToHost);
  if (result != cudaSuccess) printf("%s\n", cudaGetErrorString(result));
  for (int i = 0; i < BLOCKS * THREADS; i++) {
    int t = i % THREADS, first = t / TILE * TILE, before = 0;
    for (int k = first; k < t; k++) before += k;
    int right[LEFT] = {TILE * first + TILE * (TILE - 1) / 2, (first + 77) * 3, first == TILE, before,
                       (THREADS - 1 - t) * 7 + (t ^ 64) * 9};
    for (int k = 0; k < LEFT; k++) {
      if (all[i * LEFT + k] == right[k]) continue;
      if (wrong++ < 10) printf("thread %d, result %d: %d, not %d\n", i, k, all[i * LEFT + k], right[k]);
    }
  }
  wrong |= result != cudaSuccess;
  puts(wrong ? "wrong" : "right");
  return wrong != 0;
}
