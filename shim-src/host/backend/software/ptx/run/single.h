/*
 * Accesses that are made as a whole. Blocks of a grid run in several threads at once. If one thread stores a
 * vector of up to 16 bytes, another must never see half of it: CUB's decoupled look-back and guests' own
 * locks depend on this. Processors promise it for an aligned access by one instruction (for 16 bytes: Intel
 * and AMD with AVX, Arm with LSE2), so each access is exactly one instruction.
 */
#ifndef VGPU_PTX_SINGLE_H
#define VGPU_PTX_SINGLE_H

#include <stdint.h>
#include <string.h>

/* Guests' threads may race for memory, which ThreadSanitizer would report as races of this code. */
#define AS_KERNELS_DO __attribute__((no_sanitize("thread")))

#define PTX_WHOLE 16u /* largest size that is accessed as a whole */

/* For memory that is not aligned, processors promise nothing, but the access is made in the same way. */
typedef uint64_t ptx_16_bytes __attribute__((vector_size(16)));
typedef uint64_t ptx_16_bytes_anywhere __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t ptx_8_bytes_anywhere __attribute__((aligned(1), may_alias));
typedef uint32_t ptx_4_bytes_anywhere __attribute__((aligned(1), may_alias));
typedef uint16_t ptx_2_bytes_anywhere __attribute__((aligned(1), may_alias));

#define PTX_COPY_ONCE(to, from, type) (*(volatile type *)(to) = *(const volatile type *)(from))

/* Copies 1, 2, 4, 8 or 16 bytes by one load and one store, and more bytes in pieces of 16. */
AS_KERNELS_DO static inline void ptx_copy_once(void *to, const void *from, uint32_t bytes) {
  switch (bytes) {
    case 1:
      PTX_COPY_ONCE(to, from, uint8_t);
      return;
    case 2:
      PTX_COPY_ONCE(to, from, ptx_2_bytes_anywhere);
      return;
    case 4:
      PTX_COPY_ONCE(to, from, ptx_4_bytes_anywhere);
      return;
    case 8:
      PTX_COPY_ONCE(to, from, ptx_8_bytes_anywhere);
      return;
    default:
      for (uint32_t k = 0; k < bytes; k += PTX_WHOLE) {
        PTX_COPY_ONCE((unsigned char *)to + k, (const unsigned char *)from + k, ptx_16_bytes_anywhere);
      }
  }
}

/* Writes `next` if `expected` is there. `old` receives the old value. Aligned memory only. */
static inline void ptx_compare_16(void *to, const uint64_t expected[2], const uint64_t next[2],
                                  uint64_t old[2]) {
  __extension__ typedef unsigned __int128 number;
#ifdef __x86_64__
  /* Compilers use the instruction only if the whole file is for processors that have it. */
  uint64_t low = expected[0], high = expected[1];
  __asm__ volatile("lock cmpxchg16b %[word]"
                   : [word] "+m"(*(number *)to), "+a"(low), "+d"(high)
                   : "b"(next[0]), "c"(next[1])
                   : "cc", "memory");
  old[0] = low;
  old[1] = high;
#else
  number e, n, found;
  memcpy(&e, expected, sizeof e);
  memcpy(&n, next, sizeof n);
  found = __sync_val_compare_and_swap((number *)to, e, n);
  memcpy(old, &found, sizeof found);
#endif
}

static inline void ptx_exchange_16(void *to, const uint64_t next[2], uint64_t old[2]) {
  uint64_t expected[2] = {0, 0};
  for (;;) {
    ptx_compare_16(to, expected, next, old);
    if (memcmp(expected, old, sizeof expected) == 0) return;
    memcpy(expected, old, sizeof expected);
  }
}

#endif
