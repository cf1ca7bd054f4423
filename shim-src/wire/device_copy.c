#include "wire/device_copy.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

/*
 * memcpy is too slow here: for some sizes the C library uses `rep movsb`, which moves uncached memory, and
 * under an emulated processor all memory, byte by byte. Under TCG: memcpy 0.34 GB/s for 64 KiB and 2.1 GB/s
 * for 1 MiB, where the C library uses vectors; this code 1.5 GB/s with vectors of 16 bytes and 2.1 GB/s with
 * 32.
 */
#define BLOCK 128u
#define LINE 64u

typedef uint64_t narrow __attribute__((vector_size(16), aligned(1), may_alias));

static void narrow_blocks(unsigned char *to, const unsigned char *from, size_t bytes) {
  for (size_t done = 0; done < bytes; done += BLOCK) {
    const narrow *read = (const narrow *)(const void *)(from + done);
    narrow *write = (narrow *)(void *)(to + done);
    for (unsigned half = 0; half < 2; half++, read += 4, write += 4) {
      narrow first = read[0], second = read[1], third = read[2], fourth = read[3];
      write[0] = first;
      write[1] = second;
      write[2] = third;
      write[3] = fourth;
      __asm__ volatile("" : : : "memory"); /* keeps the compiler from making the loop a memcpy */
    }
  }
}

#ifdef __x86_64__
typedef uint64_t wide __attribute__((vector_size(32), aligned(1), may_alias));

__attribute__((target("avx2"))) static void wide_blocks(unsigned char *to, const unsigned char *from,
                                                        size_t bytes) {
  for (size_t done = 0; done < bytes; done += BLOCK) {
    const wide *read = (const wide *)(const void *)(from + done);
    wide *write = (wide *)(void *)(to + done);
    wide first = read[0], second = read[1], third = read[2], fourth = read[3];
    write[0] = first;
    write[1] = second;
    write[2] = third;
    write[3] = fourth;
    __asm__ volatile("" : : : "memory"); /* as above */
  }
}

/* Not __builtin_cpu_supports: it adds a constructor, and the libraries do nothing when they are loaded. */
static bool has_wide_vectors(void) {
  uint32_t a, b, c, d, state;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0 || (c & bit_AVX) == 0) return false;
  __asm__ volatile("xgetbv" : "=a"(state), "=d"(d) : "c"(0)); /* the registers that the kernel saves */
  if ((state & 6) != 6) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_AVX2) != 0;
}

/* Cached: in a VM `cpuid` exits to the host. */
static bool use_wide(void) {
  static atomic_int known; /* 0: not tested yet */
  int now = atomic_load_explicit(&known, memory_order_relaxed);
  if (now == 0) {
    now = has_wide_vectors() ? 1 : -1;
    atomic_store_explicit(&known, now, memory_order_relaxed);
  }
  return now > 0;
}

static void copy_blocks(unsigned char *to, const unsigned char *from, size_t bytes) {
  if (use_wide()) wide_blocks(to, from, bytes);
  else narrow_blocks(to, from, bytes);
}
#else
static void copy_blocks(unsigned char *to, const unsigned char *from, size_t bytes) {
  narrow_blocks(to, from, bytes);
}
#endif

void vgpu_device_copy(void *to, const void *from, size_t bytes, const void *device) {
  unsigned char *target = to;
  const unsigned char *source = from;
  if (bytes < BLOCK) {
    memcpy(to, from, bytes);
    return;
  }
  size_t head = -(uintptr_t)device % LINE;
  if (head > 0) memcpy(target, source, head);
  size_t body = (bytes - head) / BLOCK * BLOCK;
  copy_blocks(target + head, source + head, body);
  size_t done = head + body;
  if (done < bytes) memcpy(target + done, source + done, bytes - done);
}
