/* Registered memory that lies in one page with other registered memory. */
#include <sys/wait.h>
#include <unistd.h>

#include "registered.h"

#define NUMBERS 64u /* numbers that the kernel changes */
#define SIZE (NUMBERS * sizeof(unsigned))

static void fill(void *at, unsigned first) {
  unsigned *numbers = at;
  for (unsigned i = 0; i < NUMBERS; i++) numbers[i] = first + i;
}

static void holds(const void *at, unsigned first) {
  const unsigned *numbers = at;
  for (unsigned i = 0; i < NUMBERS; i++) IS(first + i, numbers[i]);
}

static void share(unsigned char *memory, size_t bytes) {
  devptr at = 0;
  MUST(attach(memory, bytes, DEVICEMAP));
  MUST(device_pointer(&at, memory));
  TRUE(at == (devptr)(uintptr_t)memory);
}

/* A kernel adds to numbers of the program. */
static void used(unsigned char *at) {
  fill(at, 100);
  add((devptr)(uintptr_t)at, 5);
  holds(at, 105);
}

static void one_page(void) {
  unsigned char *page = pages(PAGE);
  memset(page, 7, PAGE);
  share(page + 64, SIZE);
  share(page + 1024, SIZE);
  used(page + 64);
  used(page + 1024);
  holds(page + 64, 105);
  OK(detach(page + 64));
  used(page + 1024);
  fill(page + 64, 1);
  share(page + 64, SIZE);
  holds(page + 64, 1);
  used(page + 64);
  OK(detach(page + 1024));
  used(page + 64);
  OK(detach(page + 64));
  holds(page + 64, 105);
  holds(page + 1024, 105);
  for (unsigned i = 2048; i < PAGE; i++) IS(7, page[i]);
}

/* A copy of the host's would cross the pieces in which it has the pages. */
static void copied(unsigned char *memory, size_t bytes) {
  devptr device = check_alloc(bytes);
  unsigned char *expected = malloc(bytes);
  check_pattern(memory, bytes, 3);
  memcpy(expected, memory, bytes);
  OK(CALL(cuMemcpyHtoDAsync_v2, (devptr, const void *, size_t, void *), device, memory, bytes, NULL));
  OK(CALL(cuCtxSynchronize, (void), ));
  memset(memory, 0, bytes);
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), memory, device, bytes, NULL));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(0, memcmp(expected, memory, bytes));
  memset(memory, 0, bytes);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), memory, device, bytes));
  IS(0, memcmp(expected, memory, bytes));
  /* cuMemcpy finds out by itself that the memory is also the program's. */
  OK(CALL(cuMemcpy, (devptr, devptr, size_t), device, (devptr)(uintptr_t)memory, bytes));
  memset(memory, 0, bytes);
  OK(CALL(cuMemcpy, (devptr, devptr, size_t), (devptr)(uintptr_t)memory, device, bytes));
  IS(0, memcmp(expected, memory, bytes));
  OK(CALL(cuMemFree_v2, (devptr), device));
  free(expected);
}

static void neighbours(void) {
  unsigned char *first = pages(8 * PAGE), *second = first + 2 * PAGE + 1024;
  size_t first_size = 2 * PAGE + 512, second_size = 4 * PAGE;
  share(first, first_size);
  share(second, second_size);
  used(first + first_size - SIZE);
  used(second);
  used(second + second_size - SIZE);
  copied(second, second_size);
  copied(first, first_size);
  OK(detach(first));
  used(second);
  used(second + second_size - SIZE);
  copied(second, second_size);
  copies(first, first_size);
  fill(second, 9);
  OK(detach(second));
  holds(second, 9);
  copies(second, second_size);
}

static void between(void) {
  for (unsigned order = 0; order < 6; order++) {
    unsigned char *all = pages(8 * PAGE);
    unsigned char *parts[] = {all + 512, all + 4 * PAGE + 512, all + 2048};
    size_t sizes[] = {1024, 1024, 4 * PAGE - 2048 + 256};
    for (unsigned i = 0; i < 3; i++) share(parts[i], sizes[i]);
    for (unsigned i = 0; i < 3; i++) used(parts[i]);
    used(parts[2] + sizes[2] - SIZE);
    unsigned first = order % 3, second = (first + 1 + order / 3) % 3, third = 3 - first - second;
    OK(detach(parts[first]));
    used(parts[second]);
    used(parts[third]);
    OK(detach(parts[second]));
    used(parts[third]);
    OK(detach(parts[third]));
    for (unsigned i = 0; i < 3; i++) holds(parts[i], 105);
    munmap(all, 8 * PAGE);
  }
}

/* The shared page of the second range keeps the first range alive, whose other pages are gone. */
static void mapped_over(void) {
  unsigned char *first = pages(3 * PAGE), *second = first + 2 * PAGE + 1024;
  devptr at = 0;
  share(first, 2 * PAGE + 512);
  share(second, SIZE);
  OK(detach(first));
  void *fresh = mmap(first, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  TRUE(fresh == first);
  fill(first, 1);
  OK(attach(first, PAGE, DEVICEMAP));
  IS(NOT_SUPPORTED, device_pointer(&at, first));
  copies(first, PAGE);
  OK(detach(first));
  used(second);
  OK(detach(second));
  share(first, PAGE);
  used(first);
  OK(detach(first));
}

static void forked(void) {
  unsigned char *page = pages(2 * PAGE);
  int status = 1;
  share(page + 64, SIZE);
  share(page + 1024, PAGE);
  fill(page + 64, 1);
  fill(page + 1024, 2);
  pid_t child = fork();
  if (child == 0) {
    holds(page + 64, 1);
    fill(page + 64, 50);
    fill(page + 1024, 60);
    _exit(check_failures);
  }
  waitpid(child, &status, 0);
  IS(0, status);
  holds(page + 64, 1);
  holds(page + 1024, 2);
  used(page + 64);
  used(page + 1024);
  OK(detach(page + 1024));
  OK(detach(page + 64));
}

int main(int argc, char **argv) {
  static const struct check_case cases[] = {
      {"one_page", one_page},       {"neighbours", neighbours}, {"between", between},
      {"mapped_over", mapped_over}, {"forked", forked},
  };
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
