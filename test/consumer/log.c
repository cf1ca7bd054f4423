#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

struct buffer {
  char bytes[16384];
  size_t length;
};

static void put(struct buffer *buffer, const char *bytes, size_t length) {
  size_t room = sizeof buffer->bytes - 1 - buffer->length; /* one byte stays for the newline */
  if (length > room) length = room;
  memcpy(buffer->bytes + buffer->length, bytes, length);
  buffer->length += length;
}

static void put_text(struct buffer *buffer, const char *string) {
  put(buffer, string, strlen(string));
}

/* slog quotes what is empty or holds a space, a quote, an equals sign or a control character. */
static bool needs_quotes(const char *value) {
  if (*value == '\0') return true;
  for (; *value != '\0'; value++) {
    unsigned char byte = (unsigned char)*value;
    if (byte <= ' ' || byte == '"' || byte == '=' || byte == 0x7f) return true;
  }
  return false;
}

static void put_value(struct buffer *buffer, const char *value) {
  if (!needs_quotes(value)) {
    put_text(buffer, value);
    return;
  }
  put(buffer, "\"", 1);
  for (; *value != '\0'; value++) {
    switch (*value) {
      case '"':
        put(buffer, "\\\"", 2);
        break;
      case '\\':
        put(buffer, "\\\\", 2);
        break;
      case '\n':
        put(buffer, "\\n", 2);
        break;
      case '\t':
        put(buffer, "\\t", 2);
        break;
      default:
        put(buffer, value, 1);
    }
  }
  put(buffer, "\"", 1);
}

bool log_wants(enum level level) {
  const char *debug = setting("OLLAMA_DEBUG");
  enum level lowest = LEVEL_INFO;
  if (strcmp(debug, "1") == 0 || strcmp(debug, "true") == 0) lowest = LEVEL_DEBUG;
  if (strcmp(debug, "2") == 0) lowest = LEVEL_TRACE;
  return level >= lowest;
}

void log_line(enum level level, const char *source, const char *message, ...) {
  static const char *const names[] = {"TRACE", "DEBUG", "INFO", "WARN"};
  if (!log_wants(level)) return;
  struct buffer line = {.length = 0};
  struct timespec time;
  struct tm broken;
  char stamp[64];
  clock_gettime(CLOCK_REALTIME, &time);
  gmtime_r(&time.tv_sec, &broken);
  size_t length = strftime(stamp, sizeof stamp, "time=%Y-%m-%dT%H:%M:%S", &broken);
  snprintf(stamp + length, sizeof stamp - length, ".%03ldZ", time.tv_nsec / 1000000);
  put_text(&line, stamp);
  put_text(&line, " level=");
  put_text(&line, names[level]);
  put_text(&line, " source=");
  put_text(&line, source);
  put_text(&line, " msg=");
  put_value(&line, message);
  va_list fields;
  va_start(fields, message);
  for (const char *key; (key = va_arg(fields, const char *)) != NULL;) {
    const char *value = va_arg(fields, const char *);
    if (value == NULL) continue;
    put(&line, " ", 1);
    put_value(&line, key);
    put(&line, "=", 1);
    put_value(&line, value);
  }
  va_end(fields);
  line.bytes[line.length++] = '\n';
  log_bytes(line.bytes, line.length);
}

void log_bytes(const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t written = write(STDERR_FILENO, bytes, length);
    if (written <= 0) return; /* no reader is left; a server does not end for that */
    bytes += written;
    length -= (size_t)written;
  }
}

const char *text(char *buffer, size_t size, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, size, format, arguments);
  va_end(arguments);
  return buffer;
}

const char *human_bytes(char *buffer, size_t size, uint64_t bytes) {
  const double gibi = 1024.0 * 1024 * 1024;
  if ((double)bytes >= gibi) return text(buffer, size, "%.1f GiB", (double)bytes / gibi);
  if (bytes >= 1024 * 1024) return text(buffer, size, "%.1f MiB", (double)bytes / (1024.0 * 1024));
  if (bytes >= 1024) return text(buffer, size, "%.1f KiB", (double)bytes / 1024.0);
  return text(buffer, size, "%llu B", (unsigned long long)bytes);
}
