#include "host/backend/software/ptx/alu/alu.h"

#if defined(__x86_64__) && !defined(VGPU_ONE_ALU)
#include <cpuid.h>

/* clang 14's __builtin_cpu_supports does not have this name. */
static bool has_f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

static const struct ptx_alu *choose(void) {
#if defined(__x86_64__) && !defined(VGPU_ONE_ALU)
  if (!has_f16c()) return &ptx_alu_base;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512cd")) {
    return &ptx_alu_v4;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    return &ptx_alu_v3;
#endif
  return &ptx_alu_base;
}

/* Each decoded instruction asks, and `cpuid` leaves a VM. Threads that choose at once agree. */
const struct ptx_alu *ptx_alu_best(void) {
  static const struct ptx_alu *chosen;
  const struct ptx_alu *best = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (best == NULL) {
    best = choose();
    __atomic_store_n(&chosen, best, __ATOMIC_RELAXED);
  }
  return best;
}
