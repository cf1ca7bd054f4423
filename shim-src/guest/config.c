#include "guest/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/log.h"
#include "guest/transport.h"

#define GUEST_CONF "/etc/vgpu/guest.conf"

static bool copy_trimmed(char *text, size_t size, const char *from, size_t length) {
  while (length > 0 && (*from == ' ' || *from == '\t')) {
    from++;
    length--;
  }
  while (length > 0 && strchr(" \t\r\n", from[length - 1]) != NULL) length--;
  if (length == 0 || length >= size) return false;
  memcpy(text, from, length);
  text[length] = '\0';
  return true;
}

/* `key = value` lines, # comments; an unknown key is ignored, because another program may use it. */
static bool find_host(char *text, size_t size, const char *content) {
  bool found = false;
  for (const char *line = content; *line != '\0';) {
    size_t length = strcspn(line, "\n");
    const char *at = line + strspn(line, " \t");
    const char *end = line + length;
    if (at + 4 <= end && strncmp(at, "host", 4) == 0) {
      at += 4;
      at += strspn(at, " \t");
      if (at < end && *at == '=') found = copy_trimmed(text, size, at + 1, (size_t)(end - at - 1));
    }
    line += length + (line[length] == '\n');
  }
  return found;
}

bool vgpu_config_host(char *text, size_t size) {
  /* A set-user-ID program must not be sent to a host of its caller's choice: secure_getenv. */
  const char *environment = secure_getenv("VGPU_HOST");
  if (environment != NULL && environment[0] != '\0') {
    bool fits = copy_trimmed(text, size, environment, strlen(environment));
    if (!fits) {
      vgpu_transport_failed(VGPU_TRANSPORT_BAD_ADDRESS, 0, 0, "VGPU_HOST is blank or longer than %zu bytes",
                            size - 1);
    }
    return fits;
  }
  int descriptor = open(GUEST_CONF, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    vgpu_transport_failed(VGPU_TRANSPORT_NOT_CONFIGURED, errno, 0,
                          "VGPU_HOST is not set and %s cannot be read: %s", GUEST_CONF, strerror(errno));
    return false;
  }
  char content[4096];
  size_t filled = 0;
  for (;;) {
    ssize_t got = read(descriptor, content + filled, sizeof content - 1 - filled);
    if (got <= 0 || filled + (size_t)got >= sizeof content - 1) {
      if (got > 0) filled += (size_t)got;
      break;
    }
    filled += (size_t)got;
  }
  close(descriptor);
  content[filled] = '\0';
  bool found = find_host(text, size, content);
  if (!found) {
    vgpu_transport_failed(VGPU_TRANSPORT_NOT_CONFIGURED, 0, 0, "%s has no host= line", GUEST_CONF);
  }
  return found;
}

bool vgpu_config_ring(void) {
  const char *transport = secure_getenv("VGPU_TRANSPORT");
  if (transport == NULL || strcmp(transport, "ring") == 0 || transport[0] == '\0') return true;
  if (strcmp(transport, "socket") != 0)
    vgpu_log("VGPU_TRANSPORT \"%s\" is neither ring nor socket", transport);
  return strcmp(transport, "socket") != 0;
}
