/*
 * Accesses that happen as a whole. Blocks of a grid run in several threads at once, and a vector of up to 16
 * bytes that one of them stores is never seen in halves by another: CUB's decoupled look-back and locks of
 * guests' own making depend on it. Processors promise this of an aligned access by one instruction (of 16
 * bytes: Intel and AMD for those with AVX, Arm with LSE2), so each is written as exactly one.
 */
#ifndef VGPU_PTX_SINGLE_H
#define VGPU_PTX_SINGLE_H

#include <stdint.h>
#include <string.h>

/*
 * Kernels whose threads race for memory are guests' programs that we run as they are: locks and barriers of
 * their own making among them, which ThreadSanitizer would take for ours. It sees all else that this
 * machine's threads do.
 */
#define AS_KERNELS_DO __attribute__((no_sanitize("thread")))

#define PTX_WHOLE 16u /* the largest piece that is accessed as a whole */

/* Where the memory is not aligned the access is none of those that are promised, and is carried out all the
 * same. */
typedef uint64_t ptx_16_bytes __attribute__((vector_size(16)));
typedef uint64_t ptx_16_bytes_anywhere __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t ptx_8_bytes_anywhere __attribute__((aligned(1), may_alias));
typedef uint32_t ptx_4_bytes_anywhere __attribute__((aligned(1), may_alias));
typedef uint16_t ptx_2_bytes_anywhere __attribute__((aligned(1), may_alias));

#define PTX_COPY_ONCE(to, from, type) (*(volatile type *)(to) = *(const volatile type *)(from))

/* Copies 1, 2, 4, 8 or 16 bytes by one load and one store, more by pieces of 16. */
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

/* Writes `next` if `expected` is there; `old` is what was there. Aligned memory only. */
static inline void ptx_compare_16(void *to, const uint64_t expected[2], const uint64_t next[2],
                                  uint64_t old[2]) {
  __extension__ typedef unsigned __int128 number;
#ifdef __x86_64__
  /* Compilers know the instruction only where the whole file is for processors that have it: all of today's.
   */
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
