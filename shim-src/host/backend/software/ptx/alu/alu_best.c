/* Chooses the tables for the processor of this machine. */
#include "host/backend/software/ptx/alu/alu.h"

#if defined(__x86_64__) && !defined(VGPU_ONE_ALU)
#include <cpuid.h>

/* Conversions of halves: a name that __builtin_cpu_supports of clang 14 does not have. */
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

/*
 * Kept, because each decoded instruction asks and `cpuid` leaves a virtual machine: it took more than half of
 * the time of decoding there. Threads that choose at once choose the same.
 */
const struct ptx_alu *ptx_alu_best(void) {
  static const struct ptx_alu *chosen;
  const struct ptx_alu *best = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (best == NULL) {
    best = choose();
    __atomic_store_n(&chosen, best, __ATOMIC_RELAXED);
  }
  return best;
}
