/* How many blocks fit on a multiprocessor at once, by the rules of NVIDIA's occupancy calculator. */
#include "cuda_api.h"
#include "api/device_attributes.h"
#include "guest/cuda/module/launch.h"
#include "guest/reentry.h"

/* Units of allocation: registers of a warp, shared memory of a block. */
#define REGISTER_UNIT 256
#define SHARED_UNIT 128
#define SCHEDULERS 4 /* of a multiprocessor; warps are distributed evenly among them */

struct subject {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable;
  const int32_t *device;
  const int32_t *function;
};

static int find(void *handle, struct subject *subject) {
  int result;
  subject->driver = vgpu_cuda_driver(&result);
  if (subject->driver == NULL) return result;
  subject->callable = vgpu_callable_find(subject->driver, handle);
  if (subject->callable == NULL) return CUDA_ERROR_INVALID_HANDLE;
  int32_t ordinal = vgpu_callable_device(subject->driver, subject->callable);
  subject->device = subject->driver->facts[ordinal].attributes;
  return vgpu_callable_attributes(subject->driver, subject->callable, ordinal, &subject->function);
}

static int64_t rounded_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

static int64_t lesser(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t warps_of(const struct subject *subject, int64_t threads) {
  int64_t warp =
      subject->device[VGPU_ATTRIBUTE_WARP_SIZE] > 0 ? subject->device[VGPU_ATTRIBUTE_WARP_SIZE] : 32;
  return (threads + warp - 1) / warp;
}

/* Counts blocks by threads, block slots and registers. */
static int64_t blocks_without_shared(const struct subject *subject, int64_t threads) {
  const int32_t *device = subject->device;
  int64_t warps = warps_of(subject, threads);
  int64_t warp = device[VGPU_ATTRIBUTE_WARP_SIZE] > 0 ? device[VGPU_ATTRIBUTE_WARP_SIZE] : 32;
  int64_t blocks = device[VGPU_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] / warp / warps;
  int64_t places = device[VGPU_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR] > 0
                       ? device[VGPU_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR]
                       : 16;
  blocks = lesser(blocks, places);
  int64_t registers = rounded_up((int64_t)subject->function[VGPU_FUNCTION_REGISTERS] * warp, REGISTER_UNIT);
  if (registers > 0) {
    int64_t warps_by_registers =
        device[VGPU_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] / SCHEDULERS / registers * SCHEDULERS;
    blocks = lesser(blocks, warps_by_registers / warps);
  }
  return blocks;
}

static int64_t shared_of_block(const struct subject *subject, int64_t dynamic) {
  return rounded_up(subject->function[VGPU_FUNCTION_SHARED] + dynamic +
                        subject->device[VGPU_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK],
                    SHARED_UNIT);
}

static int64_t blocks_of(const struct subject *subject, int64_t threads, int64_t dynamic) {
  if (threads > subject->function[VGPU_FUNCTION_MAX_THREADS]) return 0;
  int64_t optin = subject->device[VGPU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN];
  if (optin > 0 && subject->function[VGPU_FUNCTION_SHARED] + dynamic > optin) return 0;
  int64_t blocks = blocks_without_shared(subject, threads);
  int64_t shared = shared_of_block(subject, dynamic);
  if (shared > 0)
    blocks = lesser(blocks, subject->device[VGPU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR] / shared);
  return blocks;
}

uint64_t vgpu_occupancy_blocks(const int32_t *device, const int32_t *function, uint64_t threads,
                               uint32_t dynamic) {
  const struct subject subject = {.device = device, .function = function};
  int64_t blocks = blocks_of(&subject, (int64_t)threads, dynamic);
  return blocks <= 0 ? 0 : (uint64_t)(blocks * device[VGPU_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
}

int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int32_t *numBlocks, void *func, int32_t blockSize,
                                                         size_t dynamicSMemSize, uint32_t flags) {
  struct subject subject;
  int result = find(func, &subject);
  if (result != CUDA_SUCCESS) return result;
  if (numBlocks == NULL || blockSize <= 0 || flags > 1 || dynamicSMemSize > INT32_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *numBlocks = (int32_t)blocks_of(&subject, blockSize, (int64_t)dynamicSMemSize);
  return CUDA_SUCCESS;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int32_t *numBlocks, void *func, int32_t blockSize,
                                                size_t dynamicSMemSize) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

static size_t ask_program(size_t (*shared_of)(int), int threads) {
  uintptr_t inside = vgpu_step_out();
  size_t bytes = shared_of(threads);
  vgpu_step_in(inside);
  return bytes;
}

int cuOccupancyMaxPotentialBlockSizeWithFlags(int32_t *minGridSize, int32_t *blockSize, void *func,
                                              void *blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                              int32_t blockSizeLimit, uint32_t flags) {
  struct subject subject;
  int result = find(func, &subject);
  if (result != CUDA_SUCCESS) return result;
  if (minGridSize == NULL || blockSize == NULL || blockSizeLimit < 0 || flags > 1 ||
      dynamicSMemSize > INT32_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t (*shared_of)(int) = NULL;
  *(void **)&shared_of = blockSizeToDynamicSMemSize;
  int64_t most = lesser(subject.device[VGPU_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
                        subject.function[VGPU_FUNCTION_MAX_THREADS]);
  int64_t warp = subject.device[VGPU_ATTRIBUTE_WARP_SIZE] > 0 ? subject.device[VGPU_ATTRIBUTE_WARP_SIZE] : 32;
  if (blockSizeLimit > 0) most = lesser(most, blockSizeLimit);
  int64_t best_threads = 0, best_blocks = 0, best_block = 0;
  /* The loop goes from the largest block down, because the largest of equally good blocks is wanted. */
  for (int64_t block = rounded_up(most, warp); block > 0; block -= warp) {
    int64_t threads = lesser(block, most);
    size_t dynamic = shared_of == NULL ? dynamicSMemSize : ask_program(shared_of, (int)threads);
    if (dynamic > INT32_MAX) continue;
    int64_t blocks = blocks_of(&subject, threads, (int64_t)dynamic);
    if (blocks * threads <= best_threads) continue;
    best_threads = blocks * threads;
    best_blocks = blocks;
    best_block = threads;
    if (best_threads >= subject.device[VGPU_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR]) break;
  }
  *minGridSize = (int32_t)(best_blocks * subject.device[VGPU_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
  *blockSize = (int32_t)best_block;
  return CUDA_SUCCESS;
}

int cuOccupancyMaxPotentialBlockSize(int32_t *minGridSize, int32_t *blockSize, void *func,
                                     void *blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                     int32_t blockSizeLimit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                   dynamicSMemSize, blockSizeLimit, 0);
}

int cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, void *func, int32_t numBlocks,
                                            int32_t blockSize) {
  struct subject subject;
  int result = find(func, &subject);
  if (result != CUDA_SUCCESS) return result;
  if (dynamicSmemSize == NULL || numBlocks <= 0 || blockSize <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (blockSize > subject.function[VGPU_FUNCTION_MAX_THREADS] ||
      blocks_without_shared(&subject, blockSize) < numBlocks) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int64_t room = subject.device[VGPU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR] / numBlocks /
                 SHARED_UNIT * SHARED_UNIT;
  room -= subject.device[VGPU_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK];
  if (subject.device[VGPU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] > 0)
    room = lesser(room, subject.device[VGPU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN]);
  room -= subject.function[VGPU_FUNCTION_SHARED];
  *dynamicSmemSize = room > 0 ? (size_t)room : 0;
  return CUDA_SUCCESS;
}

#define LAUNCH_CLUSTER 4

/*
 * Number of multiprocessors that can share a cluster. A GPC of 9.0 and later has up to 18; whole pairs are
 * used.
 */
#define MULTIPROCESSORS_PER_CLUSTER 16

static bool has_clusters(const struct subject *subject) {
  return subject->driver->facts[vgpu_callable_device(subject->driver, subject->callable)].compute_major >= 9;
}

static int64_t cluster_of(const struct subject *subject, const struct vgpu_launch_config *config) {
  int64_t blocks = 1;
  for (uint32_t i = 0; i < config->attribute_count; i++) {
    if (config->attributes[i].id != LAUNCH_CLUSTER) continue;
    uint32_t x = (uint32_t)config->attributes[i].value[0],
             y = (uint32_t)(config->attributes[i].value[0] >> 32);
    uint32_t z = (uint32_t)config->attributes[i].value[1];
    if (x > LARGEST_CLUSTER || y > LARGEST_CLUSTER || z > LARGEST_CLUSTER) return 0;
    return (int64_t)x * y * z;
  }
  for (int i = 0; i < 3; i++) {
    int32_t size = subject->function[VGPU_FUNCTION_CLUSTER_WIDTH + i];
    if (size > 0) blocks *= size;
  }
  return blocks;
}

static int64_t blocks_of_config(const struct subject *subject, const struct vgpu_launch_config *config) {
  int64_t threads = (int64_t)config->block[0] * config->block[1] * config->block[2];
  return threads <= 0 ? -1 : blocks_of(subject, threads, config->shared);
}

static bool config_sound(const struct vgpu_launch_config *config) {
  if (config == NULL || (config->attribute_count > 0 && config->attributes == NULL)) return false;
  for (int i = 0; i < 3; i++) {
    if (config->block[i] == 0 || config->block[i] > 1024 || config->grid[i] == 0) return false;
  }
  return true;
}

int cuOccupancyMaxActiveClusters(int32_t *numClusters, void *func, const void *config) {
  struct subject subject;
  int result = find(func, &subject);
  if (result != CUDA_SUCCESS) return result;
  if (numClusters == NULL || !config_sound(config)) return CUDA_ERROR_INVALID_VALUE;
  if (!has_clusters(&subject)) return CUDA_ERROR_NOT_SUPPORTED;
  int64_t cluster = cluster_of(&subject, config);
  if (cluster <= 0 || cluster > LARGEST_CLUSTER) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  int64_t groups = subject.device[VGPU_ATTRIBUTE_MULTIPROCESSOR_COUNT] / MULTIPROCESSORS_PER_CLUSTER;
  int64_t blocks = blocks_of_config(&subject, config);
  *numClusters = (int32_t)(groups * (MULTIPROCESSORS_PER_CLUSTER * blocks / cluster));
  return CUDA_SUCCESS;
}

int cuOccupancyMaxPotentialClusterSize(int32_t *clusterSize, void *func, const void *config) {
  struct subject subject;
  int result = find(func, &subject);
  if (result != CUDA_SUCCESS) return result;
  if (clusterSize == NULL || !config_sound(config)) return CUDA_ERROR_INVALID_VALUE;
  if (!has_clusters(&subject)) return CUDA_ERROR_NOT_SUPPORTED;
  bool large = subject.function[VGPU_FUNCTION_NON_PORTABLE] != 0;
  *clusterSize = blocks_of_config(&subject, config) <= 0 ? 0 : large ? LARGEST_CLUSTER : PORTABLE_CLUSTER;
  return CUDA_SUCCESS;
}
