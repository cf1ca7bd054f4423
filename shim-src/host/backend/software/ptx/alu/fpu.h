/*
 * Sets the processor's rounding mode and its handling of subnormals, if the next instruction needs other
 * ones.
 */
#ifndef VGPU_PTX_FPU_H
#define VGPU_PTX_FPU_H

#include <stdint.h>

/* control = 1 + 2 * rounding + flush; rounding 0 nearest, 1 zero, 2 down, 3 up. */
#define PTX_CONTROL(rounding, flush) (1 + 2 * (rounding) + ((flush) ? 1 : 0))
/*
 * Used only while a function is decoded: the result does not depend on subnormal handling. The instruction
 * gets the setting of most others in its function, because changing the mode costs more than the instruction.
 */
#define PTX_CONTROL_EITHER 16u

#if defined(__x86_64__)
#include <xmmintrin.h>
typedef uint32_t ptx_fpu;
static inline ptx_fpu ptx_fpu_get(void) {
  return _mm_getcsr();
}
static inline void ptx_fpu_put(ptx_fpu saved) {
  _mm_setcsr(saved);
}
static inline void ptx_fpu_set(uint32_t control) {
  static const uint16_t rounding[4] = {0x0000, 0x6000, 0x2000, 0x4000};
  uint32_t flush = ((control - 1) & 1) != 0 ? 0x8040 : 0; /* flush results, and operands */
  _mm_setcsr(0x1f80 | rounding[(control - 1) / 2] | flush);
}
#elif defined(__aarch64__)
typedef uint64_t ptx_fpu;
static inline ptx_fpu ptx_fpu_get(void) {
  uint64_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
static inline void ptx_fpu_put(ptx_fpu saved) {
  __asm__ volatile("msr fpcr, %0" : : "r"(saved));
}
static inline void ptx_fpu_set(uint32_t control) {
  static const uint32_t rounding[4] = {0, 3u << 22, 2u << 22, 1u << 22};
  ptx_fpu_put(rounding[(control - 1) / 2] | (((control - 1) & 1) != 0 ? 1u << 24 : 0));
}
#else
#error "rounding modes of this processor are not known here"
#endif

#endif
