#include "watch/errors.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* Node 20 and 22, before anything else; Node 24 refuses the flag that would prevent it (--no-expose-wasm). */
static const char v8_says[] = "Warning: disabling flag --expose_wasm due to conflicting flags\n";

static void write_all(const char *bytes, size_t size) {
  while (size > 0) {
    ssize_t count = write(STDERR_FILENO, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    bytes += count;
    size -= (size_t)count;
  }
}

bool vgpu_watch_pass_errors(int from) {
  static bool begun;
  char bytes[4096];
  struct pollfd polled = {.fd = from, .events = POLLIN};
  /* Limited: the service's ticks must be passed on, too. */
  for (int turn = 0; turn < 64 && poll(&polled, 1, 0) > 0; turn++) {
    ssize_t count = read(from, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    size_t length = (size_t)count, skip = sizeof v8_says - 1;
    /* The C library writes the line with one call. */
    if (begun || length < skip || memcmp(bytes, v8_says, skip) != 0) skip = 0;
    begun = true;
    write_all(bytes + skip, length - skip);
  }
  return true;
}
