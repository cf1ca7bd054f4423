/* Copies to and from the device's memory. */
#include <stdio.h>
#include <string.h>

#include "sides.h"

#define PIECE ((size_t)VGPU_BULK_MAX)

/* Small copies are repeated until so many bytes have gone: one alone is below what a clock can
 * tell. */
#define ENOUGH ((size_t)8 << 20)

static double rate(size_t bytes, int times, double microseconds) {
  return (double)bytes * times / microseconds / 1e3;
}

static void pinned_copy(int round, const struct side *side, size_t size, const char *name, int times) {
  char to[32], from[32];
  snprintf(to, sizeof to, "pinned-to:%s", name);
  snprintf(from, sizeof from, "pinned-from:%s", name);
  double begun = now_us();
  for (int i = 0; i < times; i++) check(cuda.to(side->address, side->pinned, size), "cuMemcpyHtoD");
  check(cuda.synchronize(), "cuCtxSynchronize");
  sample(round, to, side->series, rate(size, times, now_us() - begun));
  begun = now_us();
  for (int i = 0; i < times; i++) check(cuda.from(side->pinned, side->address, size), "cuMemcpyDtoH");
  sample(round, from, side->series, rate(size, times, now_us() - begun));
}

static void plain_copy(int round, const struct side *side, size_t size, const char *name, int times) {
  char to[32], from[32];
  snprintf(to, sizeof to, "to:%s", name);
  snprintf(from, sizeof from, "from:%s", name);
  double begun = now_us();
  for (int i = 0; i < times; i++) check(cuda.to(side->address, source, size), "cuMemcpyHtoD");
  check(cuda.synchronize(), "cuCtxSynchronize");
  sample(round, to, side->series, rate(size, times, now_us() - begun));

  begun = now_us();
  for (int i = 0; i < times; i++) check(cuda.from(target, side->address, size), "cuMemcpyDtoH");
  sample(round, from, side->series, rate(size, times, now_us() - begun));
  if (memcmp(source, target, size) != 0) fail("other bytes came back", (long)size);
}

static void copy(int round, size_t size, const char *name) {
  int times = size >= ENOUGH ? 1 : (int)(ENOUGH / size);
  size_t piece = size < PIECE ? size : PIECE;
  char to[32], from[32];
  snprintf(to, sizeof to, "to:%s", name);
  snprintf(from, sizeof from, "from:%s", name);
  for (size_t side = 0; side < side_count; side++) plain_copy(round, turn(side), size, name, times);

  double begun;
  order_peer((struct order){.times = 1, .read = size * (size_t)times, .piece = piece, .answer = DONE});
  begun = now_us();
  for (size_t left = size * (size_t)times; left > 0; left -= piece) raw_put(source, piece);
  raw_get(target, DONE);
  double raw = rate(size, times, now_us() - begun);
  sample(round, to, "socket", raw);

  /* One request, one piece: as a program that waits for its bytes has to do it. */
  uint64_t pieces = size * (size_t)times / piece;
  order_peer((struct order){.times = pieces, .read = DONE, .piece = DONE, .answer = piece});
  begun = now_us();
  for (uint64_t i = 0; i < pieces; i++) {
    raw_put(source, DONE);
    raw_get(target + (i * piece) % size, piece);
  }
  sample(round, from, "socket", rate(size, times, now_us() - begun));

  begun = now_us();
  for (int i = 0; i < times; i++) {
    memcpy(target, source, size);
    __asm__ volatile("" : : "r"(target) : "memory"); /* every copy counts */
  }
  double plain = rate(size, times, now_us() - begun);
  sample(round, to, "memcpy", plain);
  sample(round, from, "memcpy", plain);
  for (size_t side = 0; side < side_count; side++) pinned_copy(round, turn(side), size, name, times);
  snprintf(to, sizeof to, "pinned-to:%s", name);
  snprintf(from, sizeof from, "pinned-from:%s", name);
  sample(round, to, "memcpy", plain);
  sample(round, from, "memcpy", plain);
}

void copies(int rounds) {
  static const struct {
    const char *name;
    size_t size;
  } sizes[] = {{"4KiB", 4u << 10},
               {"64KiB", 64u << 10},
               {"1MiB", 1u << 20},
               {"16MiB", 16u << 20},
               {"256MiB", LARGEST}};
  for (size_t side = 0; side < side_count; side++) {
    struct side *now = turn(side);
    void *memory;
    check(cuda.pin(&memory, LARGEST, 0), "cuMemHostAlloc");
    now->pinned = memory;
    memset(memory, 4, LARGEST);
  }
  for (int round = 0; round <= rounds; round++) {
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
      for (size_t side = 0; side < side_count; side++) {
        struct side *now = turn(side);
        check(cuda.allocate(&now->address, sizes[i].size), "cuMemAlloc");
        /* the device's pages, before the clock runs */
        check(cuda.set(now->address, 9, sizes[i].size), "cuMemsetD8");
        check(cuda.synchronize(), "cuCtxSynchronize");
      }
      copy(round, sizes[i].size, sizes[i].name);
      for (size_t side = 0; side < side_count; side++) check(cuda.release(turn(side)->address), "cuMemFree");
    }
  }
}
