// All blocks of a grid wait for each other; groups within a block.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" {

__global__ void grid_steps(unsigned *values, int rounds) {
  cg::grid_group grid = cg::this_grid();
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  for (int r = 0; r < rounds; r++) {
    unsigned next = values[(i + 1) % n];
    grid.sync();
    values[i] = values[i] + next;
    grid.sync();
  }
}

__global__ void tiles(const int *in, int *out) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  int v = in[threadIdx.x];
  for (int o = tile.size() / 2; o > 0; o /= 2) v += tile.shfl_down(v, o);
  out[threadIdx.x] = tile.shfl(v, 0);
  cg::coalesced_group some = cg::coalesced_threads();
  if (threadIdx.x % 3 == 0) {
    cg::coalesced_group third = cg::coalesced_threads();
    out[threadIdx.x] += 1000 * third.thread_rank();
  }
}
}
