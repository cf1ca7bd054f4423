#include "host/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* Set once at start, before the first fork. */
static bool as_json;

void vgpu_host_log_json(bool json) {
  as_json = json;
}

/* What is not printable ASCII becomes '?': it may have come from a guest. In JSON, quotes are escaped. */
static void make_safe(char *out, size_t size, const char *text) {
  size_t used = 0;
  for (; *text != '\0' && used + 3 < size; text++) {
    unsigned char c = (unsigned char)*text;
    if (as_json && (c == '"' || c == '\\')) out[used++] = '\\';
    out[used++] = c < 0x20 || c > 0x7e ? '?' : (char)c;
  }
  out[used] = '\0';
}

void vgpu_host_log(const char *event, uint64_t session, const char *format, ...) {
  char message[512], safe[1024], line[1400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  make_safe(safe, sizeof safe, message);
  int length;
  if (as_json && session != 0) {
    length = snprintf(line, sizeof line, "{\"event\":\"%s\",\"session\":%llu,\"message\":\"%s\"}\n", event,
                      (unsigned long long)session, safe);
  } else if (as_json) {
    length = snprintf(line, sizeof line, "{\"event\":\"%s\",\"message\":\"%s\"}\n", event, safe);
  } else if (session != 0) {
    length = snprintf(line, sizeof line, "vgpu-hostd: session %llu: %s\n", (unsigned long long)session, safe);
  } else {
    length = snprintf(line, sizeof line, "vgpu-hostd: %s\n", safe);
  }
  /* One write, so that lines of several workers do not mix. */
  ssize_t written = write(STDERR_FILENO, line, (size_t)length);
  (void)written;
}
