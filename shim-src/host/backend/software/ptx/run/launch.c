#include <stdio.h>
#include <string.h>

#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/run/grid.h"
#include "host/backend/software/ptx/run/region.h"

#define SHARED_LIMIT (227u << 10)
#define STACK_LIMIT 1024u
#define FRAME_BYTES (256ull << 20) /* of a thread, in addition to those of a cooperative grid */
#define MAX_COOPERATIVE 8192u      /* 256 multiprocessors with 32 blocks each */
#define MOST_EXTENT (1ull << 30)

static enum ptx_status refuse(struct ptx_fault *fault, const char *format, uint64_t have, uint64_t may) {
  fault->status = PTX_BAD_LAUNCH;
  snprintf(fault->text, sizeof fault->text, format, (unsigned long long)have, (unsigned long long)may);
  return PTX_BAD_LAUNCH;
}

/* Gives the launch's cluster size, else the one that the kernel requires. */
static void cluster_of(const struct ptx_launch *launch, const struct ptx_kernel_info *info, uint32_t to[3]) {
  for (int i = 0; i < 3; i++)
    to[i] = launch->cluster[0] != 0 ? launch->cluster[i] : info->cluster[0] != 0 ? info->cluster[i] : 1;
}

/*
 * Returns the offset of the dynamic shared memory, behind the static. Tensor maps and wgmma need alignments
 * of up to 1024.
 */
static uint32_t dynamic_offset(const struct ptx_kernel_info *info) {
  return (info->shared_extent + info->dynamic_align - 1) / info->dynamic_align * info->dynamic_align;
}

static enum ptx_status check(const struct ptx_launch *launch, const struct ptx_kernel_info *info,
                             struct ptx_fault *fault) {
  uint64_t threads = 1, blocks = 1;
  static const uint32_t most_grid[3] = {0x7fffffff, 65535, 65535}, most_block[3] = {1024, 1024, 64};
  for (int i = 0; i < 3; i++) {
    if (launch->grid[i] == 0 || launch->grid[i] > most_grid[i])
      return refuse(fault, "a grid of %llu, 1 to %llu allowed", launch->grid[i], most_grid[i]);
    if (launch->block[i] == 0 || launch->block[i] > most_block[i])
      return refuse(fault, "a block of %llu, 1 to %llu allowed", launch->block[i], most_block[i]);
    threads *= launch->block[i];
    blocks *= launch->grid[i];
    if (info->required_threads[0] != 0 && launch->block[i] != info->required_threads[i])
      return refuse(fault, "a block of %llu, the kernel requires %llu", launch->block[i],
                    info->required_threads[i]);
  }
  if (threads > info->max_threads)
    return refuse(fault, "%llu threads a block, %llu allowed", threads, info->max_threads);
  uint32_t cluster[3];
  cluster_of(launch, info, cluster);
  for (int i = 0; i < 3; i++) {
    if (cluster[i] == 0 || cluster[i] > PTX_CLUSTER_MOST || launch->grid[i] % cluster[i] != 0)
      return refuse(fault, "a grid of %llu in clusters of %llu", launch->grid[i], cluster[i]);
    if (info->cluster[0] != 0 && cluster[i] != info->cluster[i])
      return refuse(fault, "a cluster of %llu, the kernel requires %llu", cluster[i], info->cluster[i]);
  }
  if (cluster[0] * cluster[1] * cluster[2] > PTX_CLUSTER_MOST)
    return refuse(fault, "%llu blocks in a cluster, %llu allowed", cluster[0] * cluster[1] * cluster[2],
                  PTX_CLUSTER_MOST);
  if (launch->cooperative && blocks > MAX_COOPERATIVE)
    return refuse(fault, "%llu blocks at once, %llu allowed", blocks, MAX_COOPERATIVE);
  if (launch->parameter_bytes < info->parameter_bytes ||
      (launch->parameters == NULL && info->parameter_bytes > 0))
    return refuse(fault, "%llu bytes of parameters, the kernel has %llu", launch->parameter_bytes,
                  info->parameter_bytes);
  uint64_t limit = launch->shared_limit == 0 ? SHARED_LIMIT : launch->shared_limit;
  uint64_t shared = ((uint64_t)info->static_shared + 15) / 16 * 16 + launch->dynamic_shared;
  if (shared > limit)
    return refuse(fault, "%llu bytes of shared memory a block, %llu allowed", shared, limit);
  /* Other kernels' variables are in between; a kernel that writes there makes pages cost memory. */
  if (launch->cooperative && blocks * dynamic_offset(info) > MOST_EXTENT)
    return refuse(fault, "shared variables that %llu bytes of all blocks lie among, %llu allowed",
                  blocks * dynamic_offset(info), MOST_EXTENT);
  return PTX_OK;
}

bool ptx_launch_possible(const struct ptx_launch *launch, const struct ptx_kernel_info *info,
                         struct ptx_fault *fault) {
  return check(launch, info, fault) == PTX_OK;
}

/* Returns the bytes of one thread, with the stack for calls that cannot be counted. */
static uint32_t local_bytes(const struct ptx_function *f, const struct ptx_launch *launch) {
  uint32_t bytes = f->local_total;
  if (f->recursive || f->grows) bytes += launch->stack_limit == 0 ? STACK_LIMIT : launch->stack_limit;
  return (bytes + 15) / 16 * 16;
}

uint64_t ptx_launch_local_bytes(const struct ptx_module *module, uint32_t kernel,
                                const struct ptx_launch *launch, const struct ptx_pool *pool) {
  struct ptx_fault fault;
  if (kernel >= module->kernel_count || check(launch, &module->kernels[kernel], &fault) != PTX_OK) return 0;
  uint32_t local = local_bytes(module->functions[module->kernel_function[kernel]], launch);
  uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
  uint32_t cluster[3];
  cluster_of(launch, &module->kernels[kernel], cluster);
  /* A thread runs all blocks of a cluster. */
  uint64_t at_once = (ptx_pool_count(pool) + 1u) * ((uint64_t)cluster[0] * cluster[1] * cluster[2]);
  if (launch->cooperative || blocks < at_once) at_once = blocks;
  uint64_t warps = (threads + PTX_LANES - 1) / PTX_LANES;
  /* All blocks of a cooperative grid hold their registers at once. */
  const struct ptx_function *f = module->functions[module->kernel_function[kernel]];
  uint64_t frames = launch->cooperative ? blocks * warps * f->frame_bytes : 0;
  return at_once * warps * PTX_LANES * local + frames;
}

enum ptx_status ptx_launch(struct ptx_module *module, uint32_t kernel, const struct ptx_launch *launch,
                           struct ptx_pool *pool, struct ptx_fault *fault) {
  struct ptx_fault unused;
  if (fault == NULL) fault = &unused;
  memset(fault, 0, sizeof *fault);
  if (kernel >= module->kernel_count)
    return refuse(fault, "kernel %llu of %llu", kernel, module->kernel_count);
  const struct ptx_kernel_info *info = &module->kernels[kernel];
  const char *refused = ptx_module_prepare(module, kernel, &fault->status);
  if (refused != NULL) {
    snprintf(fault->text, sizeof fault->text, "%s", refused);
    return fault->status;
  }
  if (check(launch, info, fault) != PTX_OK) return PTX_BAD_LAUNCH;
  const struct ptx_function *f = module->functions[module->kernel_function[kernel]];
  struct launch_state l = {.module = module,
                           .rows = launch->block[0] % 16 == 0,
                           .function = module->kernel_function[kernel],
                           .info = info,
                           .launch = launch,
                           .findings = &module->findings[kernel]};
  cluster_of(launch, info, l.cluster);
  l.cluster_blocks = l.cluster[0] * l.cluster[1] * l.cluster[2];
  l.blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2] / l.cluster_blocks;
  l.dynamic_offset = dynamic_offset(info);
  l.own_shared = l.shared_bytes = l.dynamic_offset + launch->dynamic_shared;
  if (info->reserved_shared > 0) {
    l.reserved_offset = (l.own_shared + 127) / 128 * 128;
    l.shared_bytes = l.reserved_offset + info->reserved_shared;
  }
  l.local_bytes = local_bytes(f, launch);
  l.threads = ptx_pool_count(pool) + 1;
  l.frame_limit = FRAME_BYTES;
  if (launch->cooperative) {
    uint64_t warps =
        ((uint64_t)launch->block[0] * launch->block[1] * launch->block[2] + PTX_LANES - 1) / PTX_LANES;
    l.frame_limit += l.blocks * l.cluster_blocks * warps * (f->frame_bytes + 256ull);
  }
  ptx_region_prepare(&l);
  l.begun = ptx_now();
  l.deadline = launch->timeout == 0 ? 0 : l.begun + launch->timeout;
  pthread_mutex_init(&l.lock, NULL);
  /* A comparison takes back what it has written, which only works if no other thread writes. */
  bool alone = launch->compiler != NULL && launch->compiler->mode == PTX_COMPILE_CHECK;
  bool helped = ptx_pool_count(pool) > 0 && l.blocks > 1 && !alone;
  if (helped) ptx_pool_begin(pool, &l);
  ptx_grid_work(&l, false);
  if (helped) ptx_pool_end(pool);
  pthread_mutex_destroy(&l.lock);
  if (launch->checks != 0) ptx_check_end(&l);
  *fault = l.fault;
  return l.fault.status;
}
