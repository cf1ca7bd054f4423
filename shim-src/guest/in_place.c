#include "guest/in_place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define WRITES_OF_SHARED ((uint64_t)1 << 12) /* UFFD_FEATURE_WP_HUGETLBFS_SHMEM: Linux 5.19 */

static int from_device(void) {
  int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device < 0) return -1;
  int made = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
  close(device);
  return made;
}

/*
 * The first two ways need a privilege. With the third way (UFFD_USER_MODE_ONLY) a read() of another thread
 * into the range fails with EFAULT.
 */
static int open_userfaultfd(void) {
  int made = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
  if (made < 0) made = from_device();
  if (made < 0) made = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | WRITES_OF_SHARED};
  if (made >= 0 && ioctl(made, UFFDIO_API, &api) != 0) {
    close(made);
    return -1;
  }
  return made;
}

/*
 * Signals are blocked: a handler that writes to the range would wait for the thread that the handler
 * interrupts.
 */
struct frozen {
  int userfaultfd;
  sigset_t signals;
};

static void thaw(struct frozen *frozen) {
  if (frozen->userfaultfd >= 0) close(frozen->userfaultfd);
  pthread_sigmask(SIG_SETMASK, &frozen->signals, NULL);
}

static const char *protect(int userfaultfd, void *range, size_t bytes) {
  struct uffdio_range span = {.start = (uint64_t)(uintptr_t)range, .len = bytes};
  struct uffdio_register add = {.range = span, .mode = UFFDIO_REGISTER_MODE_WP};
  struct uffdio_writeprotect stop = {.range = span, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
  if (ioctl(userfaultfd, UFFDIO_REGISTER, &add) != 0) return "the kernel does not hold up writes to it";
  /*
   * Only present pages can be protected. A write makes them present and dirty, so the kernel drops none of
   * them.
   */
  if (madvise(range, bytes, MADV_POPULATE_WRITE) != 0) return "there is no memory for it";
  return ioctl(userfaultfd, UFFDIO_WRITEPROTECT, &stop) == 0 ? NULL
                                                             : "the kernel does not hold up writes to it";
}

static bool holds(const void *range, size_t bytes, const void *what) {
  return (uintptr_t)what - (uintptr_t)range < bytes;
}

/* Until thaw() the calling thread may write only to its stack and to the copy. */
static const char *freeze(void *range, size_t bytes, struct frozen *frozen) {
  sigset_t all;
  sigfillset(&all);
  if (holds(range, bytes, &all) || holds(range, bytes, &errno)) return "it is the calling thread's own stack";
  frozen->userfaultfd = open_userfaultfd();
  if (frozen->userfaultfd < 0) return "this kernel, or a limit, has no userfaultfd for it";
  pthread_sigmask(SIG_SETMASK, &all, &frozen->signals);
  const char *why = protect(frozen->userfaultfd, range, bytes);
  if (why != NULL) thaw(frozen);
  return why;
}

/*
 * Not instrumented: sanitizers mark the gaps between objects as unreadable, and report reads of other
 * threads' data as races. Volatile: the compiler must not call memcpy, which sanitizers replace.
 */
#if defined(__clang__) || defined(__GNUC__)
#define UNWATCHED __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define UNWATCHED
#endif

UNWATCHED static void copy_words(void *to, const void *from, size_t bytes) {
  volatile uint64_t *destination = to;
  const volatile uint64_t *source = from;
  for (size_t i = 0; i < bytes / sizeof *source; i++) destination[i] = source[i];
}

UNWATCHED static void copy_changed(void *to, const void *from, const void *before, size_t bytes) {
  const volatile uint64_t *words = from, *were = before;
  const volatile unsigned char *now = from, *then = before;
  volatile unsigned char *destination = to;
  for (size_t i = 0; i < bytes / sizeof *words; i++) {
    if (words[i] == were[i]) continue;
    for (size_t k = i * sizeof *words; k < (i + 1) * sizeof *words; k++) {
      if (now[k] != then[k]) destination[k] = now[k];
    }
  }
}

const char *vgpu_in_place_share(void *range, size_t bytes, void *mirror, const void *before) {
  struct frozen frozen;
  const char *why = freeze(range, bytes, &frozen);
  if (why != NULL) return why;
  if (before == NULL) copy_words(mirror, range, bytes);
  else copy_changed(mirror, range, before, bytes);
  /* With an old size of 0 mremap() maps shared memory a second time, so no descriptor must be kept. */
  if (mremap(mirror, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, range) == MAP_FAILED)
    why = "the kernel does not map it there";
  thaw(&frozen);
  if (why != NULL) return why;
  /*
   * The advice splits the range into two mappings. mremap() refuses these, so realloc() copies the memory
   * instead of extending the mapping.
   */
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (bytes > page) (void)madvise((char *)range + bytes - page, page, MADV_RANDOM);
  return NULL;
}

static void *some_memory(size_t bytes) {
  return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

const char *vgpu_in_place_unshare(void *range, size_t bytes, void *copy) {
  void *own = some_memory(bytes);
  if (own == MAP_FAILED) return "there is no memory for it";
  struct frozen frozen;
  const char *why = freeze(range, bytes, &frozen);
  if (why == NULL) {
    copy_words(own, range, bytes);
    if (copy != NULL) copy_words(copy, own, bytes);
    if (mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, range) == MAP_FAILED)
      why = "the kernel does not map it there";
    thaw(&frozen);
  }
  if (why != NULL) munmap(own, bytes);
  return why;
}
