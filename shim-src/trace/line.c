/* A line is built on the stack and written with one call, so that threads and processes may share a file. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "trace/trace.h"

#define UNOPENED (-2)

static int output = UNOPENED;

/* Returns VGPU_TRACE_LIMIT, the file's length in bytes from which on nothing is appended; 0: no limit. */
static int64_t limit(void) {
  static int64_t kept = -1;
  int64_t now = __atomic_load_n(&kept, __ATOMIC_RELAXED);
  if (now < 0) {
    const char *text = getenv("VGPU_TRACE_LIMIT");
    int error = errno;
    long long told = text == NULL ? 0 : strtoll(text, NULL, 10);
    errno = error;
    now = told > 0 ? told : 0;
    __atomic_store_n(&kept, now, __ATOMIC_RELAXED);
  }
  return now;
}

int vgpu_trace_output(void) {
  int now = __atomic_load_n(&output, __ATOMIC_ACQUIRE);
  if (now != UNOPENED) return now;
  const char *path = getenv("VGPU_TRACE");
  int opened = -1, error = errno;
  if (path != NULL && strcmp(path, "-") == 0) opened = STDERR_FILENO;
  else if (path != NULL && path[0] != '\0') {
    opened = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  }
  errno = error;
  if (!__atomic_compare_exchange_n(&output, &now, opened, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    if (opened > STDERR_FILENO) close(opened); /* another thread was first */
    return now;
  }
  return opened;
}

static void put(struct vgpu_trace_line *line, char byte) {
  if (line->length < sizeof line->text - 1) line->text[line->length++] = byte; /* one for the end */
}

static void put_all(struct vgpu_trace_line *line, const char *text) {
  while (*text != '\0') put(line, *text++);
}

static bool needs_quotes(const char *value) {
  if (*value == '\0') return true;
  for (; *value != '\0'; value++) {
    if (*value <= ' ' || *value == '"' || *value == '=' || *value == '\\' || *value == 0x7f) return true;
  }
  return false;
}

void vgpu_trace_text(struct vgpu_trace_line *line, const char *key, const char *value) {
  put(line, ' ');
  put_all(line, key);
  put(line, '=');
  if (value == NULL) {
    put(line, '-');
    return;
  }
  if (!needs_quotes(value)) {
    put_all(line, value);
    return;
  }
  put(line, '"');
  for (; *value != '\0'; value++) {
    if (*value == '"' || *value == '\\') put(line, '\\');
    put(line, (unsigned char)*value < ' ' || *value == 0x7f ? '?' : *value);
  }
  put(line, '"');
}

static void put_number(struct vgpu_trace_line *line, uint64_t value, int least) {
  char digits[24];
  int count = 0;
  do {
    digits[count++] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0 || count < least);
  while (count > 0) put(line, digits[--count]);
}

void vgpu_trace_number(struct vgpu_trace_line *line, const char *key, int64_t value) {
  put(line, ' ');
  put_all(line, key);
  put(line, '=');
  if (value < 0) put(line, '-');
  put_number(line, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 1);
}

void vgpu_trace_holder(struct vgpu_trace_line *line, const char *key, const void *address) {
  Dl_info found;
  bool known = address != NULL && dladdr(address, &found) != 0;
  vgpu_trace_text(line, key, known ? found.dli_fname : NULL);
}

void vgpu_trace_begin(struct vgpu_trace_line *line, const char *event) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  line->length = 0;
  put_all(line, "time=");
  put_number(line, (uint64_t)now.tv_sec, 1);
  put(line, '.');
  put_number(line, (uint64_t)now.tv_nsec / 1000, 6);
  vgpu_trace_number(line, "pid", getpid());
  vgpu_trace_text(line, "event", event);
}

void vgpu_trace_end(struct vgpu_trace_line *line) {
  line->text[line->length] = '\n';
  int error = errno, file = vgpu_trace_output();
  ssize_t written = write(file, line->text, line->length + 1);
  (void)written; /* a full disk must not disturb the program */
  /* With O_APPEND the offset is the file's size. Not closed: it may be stderr, or in use. */
  if (limit() > 0 && lseek(file, 0, SEEK_CUR) >= limit()) __atomic_store_n(&output, -1, __ATOMIC_RELEASE);
  errno = error;
}
