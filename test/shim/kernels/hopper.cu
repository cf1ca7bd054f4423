/* Clusters, barriers in memory and bulk copies as CUDA C++ has them; for compute capability 9.0. */
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/ptx>

namespace groups = cooperative_groups;
namespace ptx = cuda::ptx;

/* How often each of 4 * of_block values is in the list: each block of a cluster counts a quarter of them. */
extern "C" __global__ void __cluster_dims__(4, 1, 1)
    count(int *counts, int of_block, const int *list, int length) {
  extern __shared__ int part[];
  groups::cluster_group cluster = groups::this_cluster();
  for (int i = threadIdx.x; i < of_block; i += blockDim.x) part[i] = 0;
  cluster.sync();
  for (int i = groups::this_grid().thread_rank(); i < length; i += blockDim.x * gridDim.x) {
    int *of = cluster.map_shared_rank(part, list[i] / of_block);
    atomicAdd(of + list[i] % of_block, 1);
  }
  cluster.sync();
  int *mine = counts + cluster.block_rank() * of_block;
  for (int i = threadIdx.x; i < of_block; i += blockDim.x) atomicAdd(mine + i, part[i]);
}

/* data[from .. from + 1023] += 1, by bulk copies to shared memory and back. */
extern "C" __global__ void add_one(int *data, unsigned long long from) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(16) int part[1024];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier here;
  if (threadIdx.x == 0) {
    init(&here, blockDim.x);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  if (threadIdx.x == 0) cuda::memcpy_async(part, data + from, cuda::aligned_size_t<16>(sizeof part), here);
  here.wait(here.arrive());
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) part[i] += 1;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, data + from, part, sizeof part);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
  }
}

/* Each block of a pair sends the other one a word. */
extern "C" __global__ void __cluster_dims__(2, 1, 1) exchange(int *out) {
  __shared__ int word;
  __shared__ uint64_t here;
  groups::cluster_group pair = groups::this_cluster();
  if (threadIdx.x == 0) {
    word = -1;
    ptx::mbarrier_init(&here, 1);
  }
  pair.sync();
  if (threadIdx.x == 0) {
    unsigned other = pair.block_rank() ^ 1;
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, &here, 4);
    ptx::st_async(pair.map_shared_rank(&word, other), 100 + (int)blockIdx.x,
                  pair.map_shared_rank(&here, other));
  }
  while (!ptx::mbarrier_try_wait_parity(&here, 0)) {
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = word;
  pair.sync();
}
