/*
 * Copies memory of every length and alignment with each loop that copies memory of a PCI device: the bytes
 * arrive, and the bytes around them stay. Includes the source file, because a processor uses only one of the
 * loops.
 */
#include "wire/device_copy.c"

#include <stdio.h>
#include <stdlib.h>

#define LONGEST 700u
#define OFFSETS 66u
#define GUARD 0xA5

static unsigned char source[LONGEST + OFFSETS];

static void fail(const char *what, size_t length, size_t from, size_t to) {
  fprintf(stderr, "%s: %zu bytes from %zu to %zu are wrong\n", what, length, from, to);
  exit(1);
}

static void compare(const char *what, const unsigned char *got, size_t length, size_t from, size_t to) {
  for (size_t i = 0; i < LONGEST + 2 * OFFSETS; i++) {
    unsigned char expected = i >= to && i < to + length ? source[from + i - to] : GUARD;
    if (got[i] != expected) fail(what, length, from, to);
  }
}

static void loop(const char *what, void (*blocks)(unsigned char *, const unsigned char *, size_t)) {
  for (size_t length = 0; length <= 5u * BLOCK; length += BLOCK) {
    for (size_t offset = 0; offset < OFFSETS; offset++) {
      unsigned char target[LONGEST + 2 * OFFSETS];
      memset(target, GUARD, sizeof target);
      blocks(target + offset, source + OFFSETS - 1 - offset, length);
      compare(what, target, length, OFFSETS - 1 - offset, offset);
    }
  }
}

int main(void) {
  for (size_t i = 0; i < sizeof source; i++) source[i] = (unsigned char)(i * 7 + i / 251);
  loop("narrow", narrow_blocks);
#ifdef __x86_64__
  if (use_wide()) loop("wide", wide_blocks);
  else puts("no AVX2: one loop");
#endif
  for (size_t length = 0; length <= LONGEST; length++) {
    for (size_t offset = 0; offset < OFFSETS; offset += 5) {
      unsigned char target[LONGEST + 2 * OFFSETS];
      for (unsigned aligned = 0; aligned < 2; aligned++) {
        memset(target, GUARD, sizeof target);
        const unsigned char *from = source + OFFSETS - 1 - offset;
        vgpu_device_copy(target + offset, from, length, aligned ? target + offset : from);
        compare("whole", target, length, OFFSETS - 1 - offset, offset);
      }
    }
  }
  return 0;
}
