#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

const char *setting(const char *name) {
  const char *value = getenv(name);
  return value == NULL ? "" : value;
}

double discovery_timeout(void) {
  double seconds = strtod(setting("STANDIN_DISCOVERY_TIMEOUT"), NULL);
  return seconds > 0 ? seconds : 30;
}

void crash_at(const char *stage) {
  if (strcmp(setting("STANDIN_CRASH"), stage) == 0) {
    fprintf(stderr, "stand-in: ending with status 1, as STANDIN_CRASH=%s asks\n", stage);
    _exit(1);
  }
}

bool busy(void) {
  const char *file = setting("STANDIN_BUSY");
  return *file != '\0' && access(file, F_OK) == 0;
}

static void copy_file(const char *path) {
  if (*path == '\0') return;
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    fprintf(stderr, "stand-in: %s cannot be read: %m\n", path);
    return;
  }
  char bytes[65536];
  for (size_t length; (length = fread(bytes, 1, sizeof bytes, file)) > 0;) log_bytes(bytes, length);
  fclose(file);
}

void extra_lines(bool after) {
  if (after) {
    copy_file(setting("STANDIN_LINES_AFTER"));
    return;
  }
  long noise = strtol(setting("STANDIN_NOISE"), NULL, 10);
  for (long line = 1; line <= noise; line++) {
    char number[24];
    log_line(LEVEL_INFO, "standin.c:1", "noise, as STANDIN_NOISE asks", "line",
             text(number, sizeof number, "%ld", line), "padding",
             "................................................................................", NULL);
  }
  copy_file(setting("STANDIN_LINES_BEFORE"));
}

void machine_memory(uint64_t *total, uint64_t *available) {
  *total = *available = 0;
  FILE *file = fopen("/proc/meminfo", "r");
  if (file == NULL) return;
  char line[256];
  unsigned long long kibi;
  while (fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "MemTotal: %llu", &kibi) == 1) *total = kibi * 1024;
    if (sscanf(line, "MemAvailable: %llu", &kibi) == 1) *available = kibi * 1024;
  }
  fclose(file);
}
