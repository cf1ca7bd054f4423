#include "guest/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/log.h"
#include "guest/transport.h"

#define GUEST_CONF "/etc/vgpu/guest.conf"
#define HOST_IN_USE "/run/vgpu-agent/host"

/* Reads `key = value` lines and # comments. An unknown key is ignored, because another program may use it. */
static bool find_hosts(struct vgpu_hosts *hosts, char *content) {
  bool found = false;
  struct vgpu_hosts line_hosts;
  for (char *line = content; line != NULL;) {
    char *next = strchr(line, '\n');
    if (next != NULL) *next++ = '\0';
    const char *at = line + strspn(line, " \t");
    if (strncmp(at, "host", 4) == 0) {
      at += 4;
      at += strspn(at, " \t");
      if (*at == '=' && vgpu_hosts_split(at + 1, &line_hosts)) {
        *hosts = line_hosts;
        found = true;
      }
    }
    line = next;
  }
  return found;
}

/*
 * Reads at most `size` - 1 bytes and adds a zero. False: the file cannot be opened, and errno has the reason.
 */
static bool read_file(const char *path, char *content, size_t size) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return false;
  size_t filled = 0;
  ssize_t got;
  while (filled < size - 1 && (got = read(descriptor, content + filled, size - 1 - filled)) > 0)
    filled += (size_t)got;
  close(descriptor);
  content[filled] = '\0';
  return true;
}

/*
 * Moves the host that the service uses to the front, so that all processes of a consumer use the same host.
 */
static void put_used_first(struct vgpu_hosts *hosts) {
  char used[VGPU_HOST_TEXT + 1];
  if (hosts->count < 2 || !read_file(HOST_IN_USE, used, sizeof used)) return;
  used[strcspn(used, "\n")] = '\0';
  uint32_t at = 0;
  while (at < hosts->count && strcmp(hosts->addresses[at], used) != 0) at++;
  if (at == hosts->count) return;
  memmove(hosts->addresses[1], hosts->addresses[0], at * sizeof hosts->addresses[0]);
  memcpy(hosts->addresses[0], used, strlen(used) + 1);
}

bool vgpu_config_hosts(struct vgpu_hosts *hosts) {
  /* A set-user-ID program must not be sent to a host of its caller's choice: secure_getenv. */
  const char *environment = secure_getenv("VGPU_HOST");
  if (environment != NULL && environment[0] != '\0') {
    bool fits = vgpu_hosts_split(environment, hosts);
    if (!fits) {
      vgpu_transport_failed(
          VGPU_TRANSPORT_BAD_ADDRESS, 0, 0,
          "VGPU_HOST is blank, names more than %u hosts or has an address longer than %u bytes",
          VGPU_HOSTS_MAX, VGPU_HOST_TEXT - 1);
    }
    return fits;
  }
  char content[4096];
  if (!read_file(GUEST_CONF, content, sizeof content)) {
    vgpu_transport_failed(VGPU_TRANSPORT_NOT_CONFIGURED, errno, 0,
                          "VGPU_HOST is not set and %s cannot be read: %s", GUEST_CONF, strerror(errno));
    return false;
  }
  bool found = find_hosts(hosts, content);
  if (found) {
    put_used_first(hosts);
  } else {
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
