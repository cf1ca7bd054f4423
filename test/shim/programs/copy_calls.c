/* Copies and fills in every form, compared with the same request in plain C. */
#include "check.h"

enum { HOST = 1, DEVICE = 2, ARRAY = 3, UNIFIED = 4 };

/* CUDA_MEMCPY2D, CUDA_MEMCPY3D (and _PEER: contexts in the reserved places) */
struct copy2 {
  size_t source_x, source_y;
  unsigned source_type;
  const void *source_host;
  devptr source_device;
  void *source_array;
  size_t source_pitch;
  size_t x, y;
  unsigned type;
  void *host;
  devptr device;
  void *array;
  size_t pitch;
  size_t width, height;
};
struct copy3 {
  size_t source_x, source_y, source_z, source_level;
  unsigned source_type;
  const void *source_host;
  devptr source_device;
  void *source_array, *source_owner;
  size_t source_pitch, source_height;
  size_t x, y, z, level;
  unsigned type;
  void *host;
  devptr device;
  void *array, *owner;
  size_t pitch, height;
  size_t width, rows, depth;
};

#define SIZE (6u << 20)

static unsigned char *make_bytes(size_t size, uint64_t seed) {
  unsigned char *bytes = check_bytes(size);
  check_pattern(bytes, size, seed);
  return bytes;
}

static void put(devptr device, const void *bytes, size_t size) {
  MUST(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device, bytes, size));
}

static void expect(devptr device, const unsigned char *expected, size_t size) {
  unsigned char *got = malloc(size);
  MUST(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), got, device, size));
  OK(memcmp(got, expected, size));
  free(got);
}

static void linear(void) {
  unsigned char *one = make_bytes(SIZE, 1), *two = check_bytes(SIZE);
  devptr a = check_alloc(SIZE), b = check_alloc(SIZE);
  OK(CALL(cuMemcpy, (devptr, devptr, size_t), a, (devptr)(uintptr_t)one, SIZE));
  OK(CALL(cuMemcpyAsync, (devptr, devptr, size_t, void *), b, a, SIZE, NULL));
  OK(CALL(cuMemcpyAsync, (devptr, devptr, size_t, void *), (devptr)(uintptr_t)two, b, SIZE, (void *)2));
  OK(CALL(cuStreamSynchronize, (void *), (void *)2));
  OK(memcmp(one, two, SIZE));
  memset(two, 0, SIZE);
  OK(CALL(cuMemcpy, (devptr, devptr, size_t), (devptr)(uintptr_t)two, (devptr)(uintptr_t)one, SIZE));
  OK(memcmp(one, two, SIZE));
  /* A copy within one allocation that overlaps. */
  OK(CALL(cuMemcpyDtoD_v2, (devptr, devptr, size_t), a + 100, a, SIZE - 100));
  expect(a + 100, one, SIZE - 100);
  OK(CALL(cuMemcpyDtoD_v2, (devptr, devptr, size_t), a, a, 0));
  IS(INVALID_VALUE, CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), a, NULL, 1));
  IS(INVALID_VALUE, CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), NULL, a, 1));
  IS(INVALID_VALUE, CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), two, a, (size_t)-1));
  IS(INVALID_VALUE, CALL(cuMemcpy, (devptr, devptr, size_t), 0, a, 1));
  IS(INVALID_HANDLE, CALL(cuMemcpyAsync, (devptr, devptr, size_t, void *), a, b, 1, (void *)0x123));
  void *context = NULL;
  OK(CALL(cuCtxGetCurrent, (void **), &context));
  put(b, one, SIZE);
  OK(CALL(cuMemcpyPeer, (devptr, void *, devptr, void *, size_t), a, context, b, context, SIZE));
  expect(a, one, SIZE);
  IS(INVALID_CONTEXT,
     CALL(cuMemcpyPeer, (devptr, void *, devptr, void *, size_t), a, NULL, b, context, SIZE));
  OK(CALL(cuMemcpyPeerAsync, (devptr, void *, devptr, void *, size_t, void *), a, context, b, context, 10,
          NULL));
  OK(CALL(cuCtxSetCurrent, (void *), NULL));
  IS(INVALID_CONTEXT, CALL(cuMemcpyDtoD_v2, (devptr, devptr, size_t), a, b, 1));
}

static void batch(void) {
  unsigned char *one = make_bytes(3000, 3), two[1000];
  devptr a = check_alloc(3000);
  devptr to[3] = {a, a + 2000, (devptr)(uintptr_t)two};
  devptr from[3] = {(devptr)(uintptr_t)one, (devptr)(uintptr_t)one + 2000, a + 2000};
  size_t sizes[3] = {2000, 1000, 1000}, indices[1] = {0}, failed = 7;
  int attributes[16] = {1};
  OK(CALL(cuMemcpyBatchAsync_v2, (devptr *, devptr *, size_t *, size_t, void *, size_t *, size_t, void *), to,
          from, sizes, 3, attributes, indices, 1, (void *)2));
  OK(CALL(cuStreamSynchronize, (void *), (void *)2));
  expect(a, one, 3000);
  OK(memcmp(two, one + 2000, 1000));
  IS(INVALID_VALUE, CALL(cuMemcpyBatchAsync,
                         (devptr *, devptr *, size_t *, size_t, void *, size_t *, size_t, size_t *, void *),
                         to, from, sizes, 3, attributes, indices, 1, &failed, NULL));
#define WITH_ATTRIBUTES(source, attribute)                                                                   \
  CALL(cuMemcpyWithAttributesAsync, (devptr, devptr, size_t, void *, void *), a, source, 1000, attribute,    \
       NULL)
  OK(WITH_ATTRIBUTES(from[1], attributes));
  OK(CALL(cuCtxSynchronize, (void), ));
  expect(a, one + 2000, 1000);
  IS(INVALID_VALUE, WITH_ATTRIBUTES(from[1], NULL));
  IS(INVALID_VALUE, WITH_ATTRIBUTES(0, attributes));
}

static unsigned char *side(unsigned type, devptr device, unsigned char *host, struct copy2 *copy,
                           bool source) {
  if (source) {
    copy->source_type = type;
    if (type == HOST) copy->source_host = host;
    else copy->source_device = type == DEVICE ? device : device;
  } else {
    copy->type = type;
    if (type == HOST) copy->host = host;
    else copy->device = device;
  }
  return host;
}

/*
 * Every pair of memories, widths around the longest frame, and odd offsets. Bytes outside the box must not
 * change.
 */
static void two_dimensions(void) {
  static const struct {
    size_t width, height, source_pitch, pitch, x, y, source_x, source_y;
  } shapes[] = {{1, 1, 1, 1, 0, 0, 0, 0},
                {7, 5, 16, 9, 1, 2, 3, 1},
                {512, 100, 512, 512, 0, 0, 0, 0},
                {1000, 2000, 1024, 1500, 17, 3, 5, 2},
                {(1u << 20), 2, (1u << 20) + 3, (1u << 20) + 8, 8, 1, 2, 1},
                {(1u << 20) + 5, 2, (1u << 20) + 64, (1u << 20) + 32, 1, 1, 3, 0}};
  devptr from = check_alloc(SIZE), to = check_alloc(SIZE);
  unsigned char *source = make_bytes(SIZE, 10), *before = make_bytes(SIZE, 11), *expected = check_bytes(SIZE),
                *target = check_bytes(SIZE);
  put(from, source, SIZE);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    for (int pair = 0; pair < 8; pair++) {
      struct copy2 copy = {.source_x = shapes[i].source_x,
                           .source_y = shapes[i].source_y,
                           .source_pitch = shapes[i].source_pitch,
                           .x = shapes[i].x,
                           .y = shapes[i].y,
                           .pitch = shapes[i].pitch,
                           .width = shapes[i].width,
                           .height = shapes[i].height};
      bool from_host = (pair & 1) != 0, to_host = (pair & 2) != 0, unified = (pair & 4) != 0;
      memcpy(expected, before, SIZE);
      for (size_t y = 0; y < copy.height; y++) {
        memcpy(expected + (copy.y + y) * copy.pitch + copy.x,
               source + (copy.source_y + y) * copy.source_pitch + copy.source_x, copy.width);
      }
      memcpy(target, before, SIZE);
      put(to, before, SIZE);
      if (unified) {
        side(UNIFIED, from_host ? (devptr)(uintptr_t)source : from, NULL, &copy, true);
        side(UNIFIED, to_host ? (devptr)(uintptr_t)target : to, NULL, &copy, false);
        OK(CALL(cuMemcpy2DAsync_v2, (const void *, void *), &copy, (void *)2));
        OK(CALL(cuStreamSynchronize, (void *), (void *)2));
      } else {
        side(from_host ? HOST : DEVICE, from, source, &copy, true);
        side(to_host ? HOST : DEVICE, to, target, &copy, false);
        OK(pair == 1 ? CALL(cuMemcpy2D_v2, (const void *), &copy)
                     : CALL(cuMemcpy2DUnaligned_v2, (const void *), &copy));
      }
      if (to_host) OK(memcmp(target, expected, SIZE));
      else expect(to, expected, SIZE);
    }
  }
  struct copy2 bad = {.source_type = HOST,
                      .source_host = source,
                      .source_pitch = 8,
                      .type = DEVICE,
                      .device = to,
                      .pitch = 8,
                      .width = 9,
                      .height = 2};
  IS(INVALID_VALUE, CALL(cuMemcpy2D_v2, (const void *), &bad));
  bad.width = 8;
  bad.height = SIZE / 8 + 1;
  IS(INVALID_VALUE, CALL(cuMemcpy2D_v2, (const void *), &bad));
  bad.height = (size_t)-1;
  bad.pitch = bad.source_pitch = (size_t)-8;
  IS(INVALID_VALUE, CALL(cuMemcpy2D_v2, (const void *), &bad));
  bad = (struct copy2){.source_type = 9, .type = DEVICE, .device = to, .width = 1, .height = 1};
  IS(INVALID_VALUE, CALL(cuMemcpy2D_v2, (const void *), &bad));
  bad.source_type = ARRAY;
  IS(INVALID_HANDLE, CALL(cuMemcpy2D_v2, (const void *), &bad));
  bad.source_type = HOST;
  IS(INVALID_VALUE, CALL(cuMemcpy2D_v2, (const void *), &bad));
  IS(INVALID_VALUE, CALL(cuMemcpy2D_v2, (const void *), NULL));
  bad.width = 0;
  OK(CALL(cuMemcpy2D_v2, (const void *), &bad));
}

static void three_dimensions(void) {
  devptr from = check_alloc(SIZE), to = check_alloc(SIZE);
  unsigned char *source = make_bytes(SIZE, 20), *before = make_bytes(SIZE, 21), *expected = check_bytes(SIZE),
                *target = check_bytes(SIZE);
  put(from, source, SIZE);
  void *context = NULL;
  OK(CALL(cuCtxGetCurrent, (void **), &context));
  for (int pair = 0; pair < 8; pair++) {
    bool from_host = (pair & 1) != 0, to_host = (pair & 2) != 0, peer = (pair & 4) != 0;
    struct copy3 copy = {.source_x = 3,
                         .source_y = 2,
                         .source_z = 1,
                         .source_pitch = 100,
                         .source_height = 40,
                         .source_type = from_host ? HOST : DEVICE,
                         .source_host = source,
                         .source_device = from,
                         .source_owner = context,
                         .owner = context,
                         .x = 1,
                         .y = 4,
                         .z = 2,
                         .pitch = 128,
                         .height = 33,
                         .type = to_host ? HOST : DEVICE,
                         .host = target,
                         .device = to,
                         .width = 90,
                         .rows = 29,
                         .depth = 50};
    memcpy(expected, before, SIZE);
    for (size_t z = 0; z < copy.depth; z++) {
      for (size_t y = 0; y < copy.rows; y++) {
        memcpy(expected + ((z + 2) * 33 + y + 4) * 128 + 1, source + ((z + 1) * 40 + y + 2) * 100 + 3, 90);
      }
    }
    memcpy(target, before, SIZE);
    put(to, before, SIZE);
    if (peer) OK(CALL(cuMemcpy3DPeerAsync, (const void *, void *), &copy, NULL));
    else OK(CALL(cuMemcpy3D_v2, (const void *), &copy));
    OK(CALL(cuCtxSynchronize, (void), ));
    if (to_host) OK(memcmp(target, expected, SIZE));
    else expect(to, expected, SIZE);
    copy.height = 32;
    IS(INVALID_VALUE, CALL(cuMemcpy3DAsync_v2, (const void *, void *), &copy, NULL));
    copy.height = 33;
    if (from_host && to_host) continue; /* the size of the two sides is unknown */
    copy.depth = SIZE;
    IS(INVALID_VALUE, CALL(cuMemcpy3DAsync_v2, (const void *, void *), &copy, NULL));
    copy.depth = 1;
    copy.level = 1;
    IS(INVALID_VALUE, CALL(cuMemcpy3DAsync_v2, (const void *, void *), &copy, NULL));
  }
  struct copy3 stranger = {.source_type = DEVICE,
                           .source_device = from,
                           .type = DEVICE,
                           .device = to,
                           .width = 1,
                           .rows = 1,
                           .depth = 1};
  IS(INVALID_CONTEXT, CALL(cuMemcpy3DPeer, (const void *), &stranger));
}

static void fills(void) {
  devptr device = check_alloc(SIZE);
  unsigned char *expected = check_bytes(SIZE);
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), device, 0, SIZE));
  for (unsigned element = 1; element <= 4; element *= 2) {
    for (int async = 0; async < 2; async++) {
      size_t pitch = 1024 * element, width = 100 + element, height = 300, start = element * 3;
      unsigned value = 0xa1b2c3d4u + element + (unsigned)async;
      for (size_t y = 0; y < height; y++) {
        for (size_t x = 0; x < width; x++)
          memcpy(expected + start + y * pitch + x * element, &value, element);
      }
      int result = -1;
      void *stream = (void *)2;
      devptr at = device + start;
      if (element == 1) {
        result = async ? CALL(cuMemsetD2D8Async, (devptr, size_t, unsigned char, size_t, size_t, void *), at,
                              pitch, (unsigned char)value, width, height, stream)
                       : CALL(cuMemsetD2D8_v2, (devptr, size_t, unsigned char, size_t, size_t), at, pitch,
                              (unsigned char)value, width, height);
      } else if (element == 2) {
        result = async ? CALL(cuMemsetD2D16Async, (devptr, size_t, unsigned short, size_t, size_t, void *),
                              at, pitch, (unsigned short)value, width, height, stream)
                       : CALL(cuMemsetD2D16_v2, (devptr, size_t, unsigned short, size_t, size_t), at, pitch,
                              (unsigned short)value, width, height);
      } else {
        result = async ? CALL(cuMemsetD2D32Async, (devptr, size_t, unsigned, size_t, size_t, void *), at,
                              pitch, value, width, height, stream)
                       : CALL(cuMemsetD2D32_v2, (devptr, size_t, unsigned, size_t, size_t), at, pitch, value,
                              width, height);
      }
      OK(result);
      OK(CALL(cuCtxSynchronize, (void), ));
      expect(device, expected, SIZE);
    }
  }
  OK(CALL(cuMemsetD16Async, (devptr, unsigned short, size_t, void *), device, 0x4241, 1000, NULL));
  for (size_t i = 0; i < 1000; i++) memcpy(expected + 2 * i, "AB", 2);
  expect(device, expected, SIZE);
  IS(INVALID_VALUE,
     CALL(cuMemsetD2D8_v2, (devptr, size_t, unsigned char, size_t, size_t), device, 5, 1, 6, 2));
  IS(INVALID_VALUE,
     CALL(cuMemsetD2D8_v2, (devptr, size_t, unsigned char, size_t, size_t), device, 4096, 1, 6, SIZE));
  IS(INVALID_VALUE,
     CALL(cuMemsetD2D32_v2, (devptr, size_t, unsigned, size_t, size_t), device + 1, 64, 1, 6, 2));
  IS(INVALID_VALUE,
     CALL(cuMemsetD2D32_v2, (devptr, size_t, unsigned, size_t, size_t), device, 64, 1, (size_t)1 << 62, 2));
  IS(INVALID_VALUE, CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), device, 1, (size_t)1 << 62));
  IS(INVALID_HANDLE,
     CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), device, 1, 1, (void *)0x99));
  OK(CALL(cuMemsetD2D8_v2, (devptr, size_t, unsigned char, size_t, size_t), device, 0, 1, 6, 0));
}

static void pointers(void) {
  devptr device = check_alloc(100);
  int on = 1, got = 9, other[2] = {0};
  void *context = NULL, *second = NULL;
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &got, 6, device + 50));
  IS(0, got);
  OK(CALL(cuPointerSetAttribute, (const void *, int, devptr), &on, 6, device + 50));
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &got, 6, device));
  IS(1, got);
  IS(INVALID_VALUE, CALL(cuPointerSetAttribute, (const void *, int, devptr), &on, 2, device));
  IS(INVALID_VALUE, CALL(cuPointerSetAttribute, (const void *, int, devptr), NULL, 6, device));
  IS(INVALID_VALUE, CALL(cuPointerSetAttribute, (const void *, int, devptr), &on, 6, 0x1000));
  IS(INVALID_VALUE,
     CALL(cuPointerSetAttribute, (const void *, int, devptr), &on, 6, (devptr)(uintptr_t)other));
  OK(CALL(cuCtxGetCurrent, (void **), &context));
  OK(CALL(cuCtxCreate_v2, (void **, unsigned, int), &second, 0, 0));
  IS(217, CALL(cuCtxEnablePeerAccess, (void *, unsigned), context, 0));
  IS(INVALID_VALUE, CALL(cuCtxEnablePeerAccess, (void *, unsigned), context, 1));
  IS(705, CALL(cuCtxDisablePeerAccess, (void *), context));
  IS(217, CALL(cuCtxEnablePeerAccess, (void *, unsigned), second, 0));
  IS(INVALID_CONTEXT, CALL(cuCtxEnablePeerAccess, (void *, unsigned), NULL, 0));
}

struct batch_side {
  int type;
  devptr start;
  size_t row, height;
  int hint[2];
};
struct batch_box {
  struct batch_side source, destination;
  size_t width, height, depth;
  int order;
  unsigned flags;
};
_Static_assert(sizeof(struct batch_box) == 112, "CUDA_MEMCPY3D_BATCH_OP");

static void batch_boxes(void) {
  enum { BYTES = 4096 };
  unsigned char *in = check_bytes(BYTES), *out = check_bytes(BYTES);
  devptr a = check_alloc(BYTES), b = check_alloc(BYTES);
  void *stream = NULL;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  check_pattern(in, BYTES, 3);
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), b, 0, BYTES));
  OK(CALL(cuCtxSynchronize, (void), ));
  /* Copies all bytes to the device, a box of them to another place, and that box back. */
  struct batch_box boxes[3] = {
      {{1, (devptr)(uintptr_t)in, 0, 0, {0}}, {1, a, 0, 0, {0}}, BYTES, 1, 1, 1, 0},
      {{1, a, 64, 8, {0}}, {1, b, 32, 4, {0}}, 16, 3, 2, 1, 0},
      {{1, b, 0, 0, {0}}, {1, (devptr)(uintptr_t)out, 0, 0, {0}}, BYTES, 1, 1, 3, 1}};
  size_t failed = 77;
#define BOXES(count, list, flags, on)                                                                        \
  CALL(cuMemcpy3DBatchAsync, (size_t, void *, size_t *, uint64_t, void *), count, list, &failed, flags, on)
  OK(BOXES(3, boxes, 0, stream));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  unsigned char *wanted = check_bytes(BYTES);
  for (int z = 0; z < 2; z++) {
    for (int y = 0; y < 3; y++) memcpy(wanted + z * 32 * 4 + y * 32, in + z * 64 * 8 + y * 64, 16);
  }
  IS(0, memcmp(wanted, out, BYTES));
  boxes[1].width = 15;
  OK(CALL(cuMemcpy3DBatchAsync_v2, (size_t, void *, uint64_t, void *), 2, boxes, 0, stream));
  boxes[1].width = 65; /* longer than its row */
  IS(INVALID_VALUE, BOXES(3, boxes, 0, stream));
  IS(1, failed);
  boxes[1].width = 16;
  boxes[2].destination.type = 2;
  IS(INVALID_HANDLE, BOXES(3, boxes, 0, stream));
  IS(2, failed);
  boxes[2].destination.type = 1;
  boxes[0].order = 0;
  IS(INVALID_VALUE, BOXES(3, boxes, 0, stream));
  IS(0, failed);
  boxes[0].order = 1;
  boxes[0].depth = 0;
  IS(INVALID_VALUE, BOXES(3, boxes, 0, stream));
  boxes[0].depth = 1;
  IS(INVALID_VALUE, BOXES(0, boxes, 0, stream));
  IS(INVALID_VALUE, BOXES(3, NULL, 0, stream));
  IS(INVALID_VALUE, BOXES(3, boxes, 1, stream));
  IS(INVALID_VALUE, BOXES(3, boxes, 0, NULL));
  TRUE(failed == SIZE_MAX);
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), b, 0, BYTES));
  OK(CALL(cuMemcpy3DWithAttributesAsync, (void *, uint64_t, void *), &boxes[1], 0, NULL));
  OK(CALL(cuMemcpy3DWithAttributesAsync, (void *, uint64_t, void *), &boxes[2], 0, NULL));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(0, memcmp(wanted, out, BYTES));
  IS(INVALID_VALUE, CALL(cuMemcpy3DWithAttributesAsync, (void *, uint64_t, void *), &boxes[1], 1, NULL));
  IS(INVALID_VALUE, CALL(cuMemcpy3DWithAttributesAsync, (void *, uint64_t, void *), NULL, 0, NULL));
}

static const struct check_case cases[] = {
    {"pointers", pointers},
    {"linear", linear},
    {"batch", batch},
    {"batch_boxes", batch_boxes},
    {"two_dimensions", two_dimensions},
    {"three_dimensions", three_dimensions},
    {"fills", fills},
};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
