/* A preloaded library that delays the first LATE_SENDS sends, so that the other end has time to hang up. */
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

ssize_t send(int descriptor, const void *bytes, size_t size, int flags) {
  static int sends;
  const char *late = getenv("LATE_SENDS");
  const struct timespec nap = {.tv_nsec = 500000000};
  if (late != NULL && sends++ < atoi(late)) nanosleep(&nap, NULL);
  return syscall(SYS_sendto, descriptor, bytes, size, flags, NULL, 0);
}
