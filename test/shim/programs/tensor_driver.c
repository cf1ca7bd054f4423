/*
 * A stand-in for the part of a GPU's driver that needs a GPU: makes descriptors of tensors that contain the
 * values they were made of, for tensor_map.test.ts. For all other functions it is linked to a real libcuda.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* A reference, so that the linker keeps the library that has all other functions. */
extern int cuInit(unsigned flags);
EXPORT int (*const tensor_driver_needs)(unsigned) = cuInit;

static uint64_t hash;

static void take(const void *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ull;
}
#define TAKE(value) take(&(value), sizeof(value))

static int give(unsigned char *map, const char *form, uint64_t address) {
  if ((uintptr_t)map % 64 != 0) return 1;
  memset(map, 0, 128);
  snprintf((char *)map, 96, "%s %016llx", form, (unsigned long long)hash);
  memcpy(map + 120, &address, sizeof address);
  return 0;
}

EXPORT int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                  int interleave, int swizzle, int promotion, int fill);
EXPORT int cuTensorMapEncodeIm2col(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                                   const uint64_t *strides, const int *lower, const int *upper,
                                   uint32_t channels, uint32_t pixels, const uint32_t *steps, int interleave,
                                   int swizzle, int promotion, int fill);
EXPORT int cuTensorMapEncodeIm2colWide(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                                       const uint64_t *strides, int lower, int upper, uint32_t channels,
                                       uint32_t pixels, const uint32_t *steps, int interleave, int mode,
                                       int swizzle, int promotion, int fill);
EXPORT int cuTensorMapReplaceAddress(void *map, void *address);

int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                           int interleave, int swizzle, int promotion, int fill) {
  if (type == 99) return 1; /* the driver checks values, and its error is returned */
  hash = 1;
  TAKE(type), TAKE(rank), TAKE(interleave), TAKE(swizzle), TAKE(promotion), TAKE(fill);
  take(dim, rank * sizeof *dim), take(strides, (rank - 1) * sizeof *strides);
  take(box, rank * sizeof *box), take(steps, rank * sizeof *steps);
  return give(map, "tiled", (uintptr_t)address);
}

int cuTensorMapEncodeIm2col(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                            const uint64_t *strides, const int *lower, const int *upper, uint32_t channels,
                            uint32_t pixels, const uint32_t *steps, int interleave, int swizzle,
                            int promotion, int fill) {
  hash = 2;
  TAKE(type), TAKE(rank), TAKE(interleave), TAKE(swizzle), TAKE(promotion), TAKE(fill);
  TAKE(channels), TAKE(pixels);
  take(dim, rank * sizeof *dim), take(strides, (rank - 1) * sizeof *strides);
  take(lower, (rank - 2) * sizeof *lower), take(upper, (rank - 2) * sizeof *upper);
  take(steps, rank * sizeof *steps);
  return give(map, "im2col", (uintptr_t)address);
}

int cuTensorMapEncodeIm2colWide(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                                const uint64_t *strides, int lower, int upper, uint32_t channels,
                                uint32_t pixels, const uint32_t *steps, int interleave, int mode, int swizzle,
                                int promotion, int fill) {
  hash = 3;
  TAKE(type), TAKE(rank), TAKE(interleave), TAKE(swizzle), TAKE(promotion), TAKE(fill), TAKE(mode);
  TAKE(channels), TAKE(pixels), TAKE(lower), TAKE(upper);
  take(dim, rank * sizeof *dim), take(strides, (rank - 1) * sizeof *strides),
      take(steps, rank * sizeof *steps);
  return give(map, "wide", (uintptr_t)address);
}

int cuTensorMapReplaceAddress(void *map, void *address) {
  uint64_t moved = (uintptr_t)address;
  memcpy((unsigned char *)map + 120, &moved, sizeof moved);
  return 0;
}
