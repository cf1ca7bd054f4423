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

static void say(const char *event, uint64_t session, const char *members, const char *format,
                va_list arguments) {
  char message[640], safe[1300], line[2400], number[40] = "";
  vsnprintf(message, sizeof message, format, arguments);
  make_safe(safe, sizeof safe, message);
  int length;
  if (as_json) {
    if (session != 0) snprintf(number, sizeof number, "\"session\":%llu,", (unsigned long long)session);
    length = snprintf(line, sizeof line, "{\"event\":\"%s\",%s%s%s\"message\":\"%s\"}\n", event, number,
                      members, members[0] == '\0' ? "" : ",", safe);
  } else if (session != 0) {
    length = snprintf(line, sizeof line, "vgpu-hostd: session %llu: %s\n", (unsigned long long)session, safe);
  } else {
    length = snprintf(line, sizeof line, "vgpu-hostd: %s\n", safe);
  }
  /* One write, so that lines of several workers do not mix. */
  ssize_t written = write(STDERR_FILENO, line, (size_t)length);
  (void)written;
}

void vgpu_host_log(const char *event, uint64_t session, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(event, session, "", format, arguments);
  va_end(arguments);
}

void vgpu_host_log_members(const char *event, uint64_t session, const char *members, const char *format,
                           ...) {
  va_list arguments;
  va_start(arguments, format);
  say(event, session, members, format, arguments);
  va_end(arguments);
}
