/* Compares with the CPU: finds devices that do nothing, leave blocks out, or compute wrong results. */
#include "probe/driver.h"

#include <stdlib.h>
#include <string.h>

enum {
  THREADS = 256, /* of a block; the hash kernel combines as many values */
  BLOCKS = 128,
  VALUES = THREADS * BLOCKS,
  ROUNDS = 32,
};

extern const char vgpu_probe_ptx[]; /* text of compute.ptx, included by the build */

struct kernels {
  void *module, *add, *hash;
  int (*load)(void **module, const void *image);
  int (*unload)(void *module);
  int (*function)(void **function, void *module, const char *name);
  int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **arguments,
                void **extra);
  int (*synchronize)(void);
};

struct numbers {
  float a[VALUES], b[VALUES], sum[VALUES];
  uint32_t hashes[VALUES], sums[BLOCKS], total;
};

static bool find_functions(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver,
                           struct kernels *kernels) {
  void *library = driver->library;

  vgpu_probe_begin(report, "dlsym");
  return vgpu_probe_find(report, library, &kernels->load, NULL, "cuModuleLoadData") &&
         vgpu_probe_find(report, library, &kernels->unload, NULL, "cuModuleUnload") &&
         vgpu_probe_find(report, library, &kernels->function, NULL, "cuModuleGetFunction") &&
         vgpu_probe_find(report, library, &kernels->launch, NULL, "cuLaunchKernel") &&
         vgpu_probe_find(report, library, &kernels->synchronize, NULL, "cuCtxSynchronize");
}

static bool load(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver,
                 struct kernels *kernels) {
  vgpu_probe_begin(report, "cuModuleLoadData");
  if (!vgpu_probe_good(report, driver, kernels->load(&kernels->module, vgpu_probe_ptx))) return false;
  vgpu_probe_begin(report, "cuModuleGetFunction");
  return vgpu_probe_good(report, driver,
                         kernels->function(&kernels->add, kernels->module, "vgpu_probe_add")) &&
         vgpu_probe_good(report, driver,
                         kernels->function(&kernels->hash, kernels->module, "vgpu_probe_hash"));
}

/* Outputs begin with unlikely results. */
static bool prepare(struct vgpu_probe_report *report, struct numbers *numbers, uint32_t *seed) {
  if (!vgpu_probe_random(report, seed, sizeof *seed) || !vgpu_probe_random(report, numbers, sizeof *numbers))
    return false;
  for (int i = 0; i < VALUES; i++) {
    uint32_t bits;
    /* Normal numbers: devices may treat NaN and denormals differently. */
    memcpy(&bits, &numbers->a[i], sizeof bits);
    numbers->a[i] = (float)(int32_t)bits / 1024.0f;
    memcpy(&bits, &numbers->b[i], sizeof bits);
    numbers->b[i] = (float)(int32_t)bits / 65536.0f;
  }
  numbers->total = 0;
  return true;
}

static uint32_t hash(uint32_t index, uint32_t seed) {
  uint32_t value = index * 0x9e3779b1u ^ seed;

  for (uint32_t round = 0; round < ROUNDS; round++) {
    value ^= value >> 16;
    value *= 0x85ebca6bu;
    value ^= value >> 13;
    if (value & 1) value = value << 7 | value >> 25;
    else value = value * 0xc2b2ae35u + index;
    value ^= round;
  }
  return value;
}

static uint64_t wrong(const struct numbers *sent, const struct numbers *got, uint32_t seed) {
  uint64_t count = 0;
  uint32_t total = 0;

  for (int block = 0; block < BLOCKS; block++) {
    uint32_t sum = 0;
    for (int i = block * THREADS; i < (block + 1) * THREADS; i++) {
      float expected = sent->a[i] + sent->b[i];
      uint32_t hashed = hash((uint32_t)i, seed);
      count += memcmp(&expected, &got->sum[i], sizeof expected) != 0;
      count += hashed != got->hashes[i];
      sum += hashed;
    }
    count += sum != got->sums[block];
    total += sum;
  }
  return count + (total != got->total);
}

static bool launch(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver,
                   const struct kernels *kernels, uint64_t memory, uint32_t seed) {
  uint64_t a = memory + offsetof(struct numbers, a), b = memory + offsetof(struct numbers, b);
  uint64_t sum = memory + offsetof(struct numbers, sum), hashes = memory + offsetof(struct numbers, hashes);
  uint64_t sums = memory + offsetof(struct numbers, sums), total = memory + offsetof(struct numbers, total);
  uint32_t count = VALUES, rounds = ROUNDS;
  void *for_add[] = {&a, &b, &sum, &count};
  void *for_hash[] = {&hashes, &sums, &total, &seed, &rounds};

  vgpu_probe_begin(report, "cuLaunchKernel");
  if (!vgpu_probe_good(report, driver,
                       kernels->launch(kernels->add, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, for_add, NULL)) ||
      !vgpu_probe_good(report, driver,
                       kernels->launch(kernels->hash, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, for_hash, NULL)))
    return false;
  vgpu_probe_begin(report, "cuCtxSynchronize");
  return vgpu_probe_good(report, driver, kernels->synchronize());
}

static bool run(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver,
                const struct kernels *kernels, struct numbers *sent, struct numbers *got) {
  uint64_t memory = 0;
  uint32_t seed = 0;

  if (!prepare(report, sent, &seed)) return false;
  vgpu_probe_begin(report, "cuMemAlloc");
  if (!vgpu_probe_good(report, driver, driver->allocate(&memory, sizeof *sent))) return false;
  uint64_t start = vgpu_probe_now();
  vgpu_probe_begin(report, "cuMemcpyHtoD");
  bool right = vgpu_probe_good(report, driver, driver->to_device(memory, sent, sizeof *sent)) &&
               launch(report, driver, kernels, memory, seed);
  if (right) {
    vgpu_probe_begin(report, "cuMemcpyDtoH");
    right = vgpu_probe_good(report, driver, driver->from_device(got, memory, sizeof *got));
  }
  if (right) {
    report->compute_microseconds = vgpu_probe_now() - start;
    report->compute_values = 2 * VALUES + BLOCKS + 1;
    report->compute_wrong = wrong(sent, got, seed);
    vgpu_probe_begin(report, "compare");
    right = report->compute_wrong == 0 ||
            vgpu_probe_fail(report, VGPU_PROBE_FAILURE_COMPUTE,
                            "%llu of %llu numbers that the kernels computed are wrong",
                            (unsigned long long)report->compute_wrong,
                            (unsigned long long)report->compute_values);
  }
  if (right) vgpu_probe_begin(report, "cuMemFree");
  int code = driver->give_back(memory);
  return right && vgpu_probe_good(report, driver, code);
}

void vgpu_probe_compute(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver) {
  struct numbers *sent = malloc(sizeof *sent), *got = malloc(sizeof *got);
  struct kernels kernels = {0};

  report->compute_begun = true;
  if (!sent || !got) {
    vgpu_probe_fail(report, VGPU_PROBE_FAILURE_OTHER, "out of memory");
  } else if (find_functions(report, driver, &kernels) && load(report, driver, &kernels)) {
    bool right = run(report, driver, &kernels, sent, got);
    if (right) vgpu_probe_begin(report, "cuModuleUnload");
    int code = kernels.unload(kernels.module);
    report->compute_ok = right && vgpu_probe_good(report, driver, code);
  }
  free(sent);
  free(got);
}
