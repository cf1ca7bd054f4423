/* What one session leaves in the memory of its VM, and what the next one finds there. */
#include <unistd.h>

#include "check.h"

enum { SIZE = 1 << 20 };

static unsigned char *pinned(void) {
  void *memory = NULL;
  MUST(CALL(cuMemHostAlloc, (void **, size_t, unsigned), &memory, SIZE, 0));
  return memory;
}

/* Waits until it is killed, with a secret in pinned memory. */
static void holds(void) {
  memset(pinned(), 0x5a, SIZE);
  puts("holds");
  for (;;) pause();
}

static void finds_nothing(void) {
  const unsigned char *memory = pinned();
  size_t first = 0;
  while (first < SIZE && memory[first] == 0) first++;
  IS(SIZE, first);
}

static const struct check_case cases[] = {{"holds", holds}, {"finds_nothing", finds_nothing}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
