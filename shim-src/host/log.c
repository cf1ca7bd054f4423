#include "host/log.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FLUSH_LIMIT_MS 1000 /* for the last lines of a worker */
#define LINES_A_SECOND 20u
#define LINES_AT_ONCE 500u /* of a session: findings and output of kernels come in bursts */

static bool as_json, of_worker;

/* Messages that a peer can cause. Several threads of a worker log. */
static struct {
  pthread_mutex_t lock;
  struct vgpu_bucket bucket;
  uint64_t left_out;
  bool all; /* limit all messages: this is a worker */
} limited = {.lock = PTHREAD_MUTEX_INITIALIZER};

void vgpu_host_log_json(bool json) {
  as_json = json;
}

void vgpu_host_log_of_worker(void) {
  of_worker = true;
}

static size_t add_part(char *to, size_t used, size_t size, const char *text) {
  size_t length = strnlen(text, size - used - 1);
  memcpy(to + used, text, length);
  to[used + length] = '\0';
  return used + length + 1;
}

/* False: the daemon has not read the earlier messages yet. */
static bool send_to_daemon(const char *event, uint64_t left_out, const char *members, const char *message) {
  const struct vgpu_log_header header = {.kind = VGPU_LOG_MESSAGE, .left_out = left_out};
  char bytes[VGPU_LOG_MESSAGE_MOST];
  size_t used = sizeof header;
  memcpy(bytes, &header, sizeof header);
  used = add_part(bytes, used, sizeof bytes - 2, event);
  used = add_part(bytes, used, sizeof bytes - 1, members);
  used = add_part(bytes, used, sizeof bytes, message);
  return send(STDERR_FILENO, bytes, used, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
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
  if (of_worker) {
    const uint64_t left_out = __atomic_exchange_n(&limited.left_out, 0, __ATOMIC_RELAXED);
    if (!send_to_daemon(event, left_out, members, message))
      __atomic_add_fetch(&limited.left_out, left_out + 1, __ATOMIC_RELAXED);
    return;
  }
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
  /* One write, so that lines of processes do not mix. */
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

static void tell_left_out(uint64_t session, uint64_t count) {
  char members[40];
  snprintf(members, sizeof members, "\"count\":%llu", (unsigned long long)count);
  say_now("left-out", session, members, "%llu lines were left out: too many a second",
          (unsigned long long)count);
}

static bool may_say(void) {
  pthread_mutex_lock(&limited.lock);
  uint32_t burst = limited.all ? LINES_AT_ONCE : LINES_A_SECOND;
  bool may = vgpu_bucket_take_burst(&limited.bucket, LINES_A_SECOND, burst, vgpu_now_ns()) == 0;
  if (!may) __atomic_add_fetch(&limited.left_out, 1, __ATOMIC_RELAXED);
  uint64_t count = may && !of_worker ? limited.left_out : 0;
  if (count > 0) {
    limited.left_out = 0;
    tell_left_out(0, count);
  }
  pthread_mutex_unlock(&limited.lock);
  return may;
}

bool vgpu_host_log_tell_left_out(struct vgpu_log_budget *budget) {
  if (budget->left_out == 0) return true;
  if (vgpu_bucket_take_burst(&budget->bucket, LINES_A_SECOND, LINES_AT_ONCE, vgpu_now_ns()) != 0)
    return false;
  tell_left_out(budget->session, budget->left_out);
  budget->left_out = 0;
  return true;
}

bool vgpu_host_log_spend(struct vgpu_log_budget *budget) {
  if (vgpu_host_log_tell_left_out(budget) &&
      vgpu_bucket_take_burst(&budget->bucket, LINES_A_SECOND, LINES_AT_ONCE, vgpu_now_ns()) == 0)
    return true;
  vgpu_host_log_leave_out(budget, 1);
  return false;
}

void vgpu_host_log_leave_out(struct vgpu_log_budget *budget, uint64_t count) {
  budget->left_out = budget->left_out > UINT64_MAX - count ? UINT64_MAX : budget->left_out + count;
}

void vgpu_host_log_limit_all(void) {
  limited.all = true;
  limited.bucket = (struct vgpu_bucket){0};
}

void vgpu_host_log_flush(void) {
  const uint64_t left_out = __atomic_exchange_n(&limited.left_out, 0, __ATOMIC_RELAXED);
  if (!of_worker || left_out == 0) return;
  struct pollfd poller = {.fd = STDERR_FILENO, .events = POLLOUT};
  const int64_t deadline = vgpu_now_ms() + FLUSH_LIMIT_MS;
  /* Without a text only the number. Waits until the daemon has read the earlier messages. */
  while (!send_to_daemon("left-out", left_out, "", "") && vgpu_left_ms(deadline) > 0)
    poll(&poller, 1, vgpu_left_ms(deadline));
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
