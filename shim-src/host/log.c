#include "host/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "host/policy/bucket.h"

#define LINES_A_SECOND 20u
#define LINES_AT_ONCE 500u /* of a session; findings and what a kernel prints come in bursts */

/* Set once at start, before the first message of another thread. */
static bool as_json;

/* The rate limit of messages that a peer can cause. The threads of a worker log at the same time. */
static struct {
  pthread_mutex_t lock;
  struct vgpu_bucket bucket;
  uint64_t left_out;
  bool all; /* in a worker */
  uint64_t session;
} limited = {.lock = PTHREAD_MUTEX_INITIALIZER};

void vgpu_host_log_json(bool json) {
  as_json = json;
}

/*
 * Replaces bytes that are not printable ASCII with '?', because they may come from a guest. Escapes quotes
 * for JSON.
 */
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

__attribute__((format(printf, 4, 5))) static void say_now(const char *event, uint64_t session,
                                                          const char *members, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(event, session, members, format, arguments);
  va_end(arguments);
}

/* Tells how many were left out before the next line that is not. */
static void tell_left_out(void) {
  if (limited.left_out == 0) return;
  char members[40];
  snprintf(members, sizeof members, "\"count\":%llu", (unsigned long long)limited.left_out);
  say_now("left-out", limited.session, members, "%llu lines were left out: too many a second",
          (unsigned long long)limited.left_out);
  limited.left_out = 0;
}

static bool may_say(void) {
  pthread_mutex_lock(&limited.lock);
  uint32_t burst = limited.all ? LINES_AT_ONCE : LINES_A_SECOND;
  bool may = vgpu_bucket_take_burst(&limited.bucket, LINES_A_SECOND, burst, vgpu_now_ns()) == 0;
  if (may) tell_left_out();
  else limited.left_out++;
  pthread_mutex_unlock(&limited.lock);
  return may;
}

void vgpu_host_log_limit_all(uint64_t session) {
  limited.all = true;
  limited.session = session;
  limited.left_out = 0;
  limited.bucket = (struct vgpu_bucket){0};
}

void vgpu_host_log_flush(void) {
  pthread_mutex_lock(&limited.lock);
  tell_left_out();
  pthread_mutex_unlock(&limited.lock);
}

void vgpu_host_log(const char *event, uint64_t session, const char *format, ...) {
  if (limited.all && !may_say()) return;
  va_list arguments;
  va_start(arguments, format);
  say(event, session, "", format, arguments);
  va_end(arguments);
}

void vgpu_host_log_limited(const char *event, uint64_t session, const char *format, ...) {
  if (!may_say()) return;
  va_list arguments;
  va_start(arguments, format);
  say(event, session, "", format, arguments);
  va_end(arguments);
}

void vgpu_host_log_members(const char *event, uint64_t session, const char *members, const char *format,
                           ...) {
  if (limited.all && !may_say()) return;
  va_list arguments;
  va_start(arguments, format);
  say(event, session, members, format, arguments);
  va_end(arguments);
}
