/* tensor_calls LIBRARY: makes descriptors of tensors by a libcuda and prints them, for tensor_map.test.ts. */
#include "check.h"

struct map {
  _Alignas(64) unsigned char bytes[128];
};

static void show(const char *what, int result, const struct map *map) {
  uint64_t address;
  memcpy(&address, map->bytes + 120, sizeof address);
  printf("%s %d %.96s %" PRIx64 "\n", what, result, result == 0 ? (const char *)map->bytes : "",
         result == 0 ? address : 0);
}

#define TILED                                                                                                \
  (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *,    \
   int, int, int, int)
#define IM2COL                                                                                               \
  (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const int *, const int *, uint32_t,    \
   uint32_t, const uint32_t *, int, int, int, int)
#define WIDE                                                                                                 \
  (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, int, int, uint32_t, uint32_t,          \
   const uint32_t *, int, int, int, int, int)

int main(int argc, char **argv) {
  check_library = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW);
  if (check_library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  MUST(CALL(cuInit, (unsigned), 0));
  int supported = -1;
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &supported, 127, 0));
  printf("supported %d\n", supported);
  static const uint64_t dim[5] = {64, 32, 16, 8, 4}, strides[4] = {128, 4096, 65536, 1 << 20};
  static const uint32_t box[5] = {16, 8, 4, 2, 1}, steps[5] = {1, 2, 1, 2, 1};
  static const int lower[3] = {-1, -2, -3}, upper[3] = {3, 2, 1};
  void *at = (void *)(uintptr_t)0x200000001000;
  struct map map = {0};
  for (uint32_t rank = 1; rank <= 5; rank++) {
    show("tiled",
         CALL(cuTensorMapEncodeTiled, TILED, &map, 6, rank, at, dim, strides, box, steps, 0, 2, 1, 1), &map);
  }
  show("tiled without strides",
       CALL(cuTensorMapEncodeTiled, TILED, &map, 6, 1, at, dim, strides, box, steps, 0, 0, 0, 0), &map);
  show("moved", CALL(cuTensorMapReplaceAddress, (void *, void *), &map, (char *)at + 4096), &map);
  for (uint32_t rank = 3; rank <= 5; rank++) {
    show("im2col",
         CALL(cuTensorMapEncodeIm2col, IM2COL, &map, 7, rank, at, dim, strides, lower, upper, 64, 128, steps,
              1, 3, 2, 0),
         &map);
    show("wide",
         CALL(cuTensorMapEncodeIm2colWide, WIDE, &map, 7, rank, at, dim, strides, -5, 9, 64, 128, steps, 1, 1,
              3, 2, 0),
         &map);
  }
  show("judged", CALL(cuTensorMapEncodeTiled, TILED, &map, 99, 2, at, dim, strides, box, steps, 0, 2, 1, 1),
       &map);
  if (argc > 2) { /* values that our library checks itself, before it asks the host */
    show("unaligned",
         CALL(cuTensorMapEncodeTiled, TILED, map.bytes + 8, 6, 2, at, dim, strides, box, steps, 0, 0, 0, 0),
         &map);
    show("no place",
         CALL(cuTensorMapEncodeTiled, TILED, NULL, 6, 2, at, dim, strides, box, steps, 0, 0, 0, 0), &map);
    show("rank 0", CALL(cuTensorMapEncodeTiled, TILED, &map, 6, 0, at, dim, strides, box, steps, 0, 0, 0, 0),
         &map);
    show("rank 6", CALL(cuTensorMapEncodeTiled, TILED, &map, 6, 6, at, dim, strides, box, steps, 0, 0, 0, 0),
         &map);
    show("no box", CALL(cuTensorMapEncodeTiled, TILED, &map, 6, 2, at, dim, strides, NULL, steps, 0, 0, 0, 0),
         &map);
    show("flat im2col",
         CALL(cuTensorMapEncodeIm2col, IM2COL, &map, 6, 2, at, dim, strides, lower, upper, 1, 1, steps, 0, 0,
              0, 0),
         &map);
    show("nothing moved", CALL(cuTensorMapReplaceAddress, (void *, void *), NULL, at), &map);
  }
  return 0;
}
