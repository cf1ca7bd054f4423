#include "guest/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/refused.h"

bool vgpu_log_wanted(void) {
  const char *target = secure_getenv("VGPU_LOG");
  return target != NULL && target[0] != '\0';
}

/* The file is opened for each message, because the program may close all descriptors or fork(). */
void vgpu_log(const char *format, ...) {
  if (!vgpu_log_wanted()) return;
  const char *target = secure_getenv("VGPU_LOG");
  int saved = errno;
  char line[512];
  int length = snprintf(line, sizeof line, "vgpu[%ld]: ", (long)getpid());
  va_list arguments;
  va_start(arguments, format);
  length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
  va_end(arguments);
  if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
  line[length++] = '\n';
  int descriptor = STDERR_FILENO;
  bool ours = strcmp(target, "stderr") != 0;
  if (ours) descriptor = open(target, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
  if (descriptor >= 0) {
    ssize_t written = write(descriptor, line, (size_t)length);
    (void)written; /* no place to report a failure */
    if (ours) close(descriptor);
  }
  errno = saved;
}

void vgpu_refused(const char *symbol) {
  vgpu_log("%s is not supported", symbol);
}
