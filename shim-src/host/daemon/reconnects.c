#include "host/daemon/reconnects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENVIRONMENT "VGPU_PREDECESSORS"

/* Unversioned daemons take this number for a greeting that is too large, and close the connection. */
#define FORMAT (0x76677500u + VGPU_RECONNECTS_VERSION)
struct header {
  uint32_t format;
  uint32_t greeting;
  uint32_t attached;
  uint32_t claims; /* descriptors behind that of the connection: 0 or 1 */
};

#define DESCRIPTORS_MAX 2u
union control {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
};

static bool is_packet_socket(int descriptor) {
  int type = 0;
  socklen_t size = sizeof type;
  return getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

void vgpu_reconnects_inherit(struct vgpu_reconnects *reconnects) {
  *reconnects = (struct vgpu_reconnects){.successors = -1};
  const char *text = getenv(ENVIRONMENT);
  int descriptor, length;
  for (; text != NULL && sscanf(text, "%d%n", &descriptor, &length) == 1; text += length) {
    if (reconnects->count < VGPU_PREDECESSORS_MAX && descriptor > STDERR_FILENO &&
        is_packet_socket(descriptor) && fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0) {
      reconnects->predecessors[reconnects->count++] = descriptor;
    }
  }
  unsetenv(ENVIRONMENT);
}

int vgpu_reconnects_open(struct vgpu_reconnects *reconnects) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  reconnects->successors = ends[0];
  return ends[1];
}

void vgpu_reconnects_close(struct vgpu_reconnects *reconnects) {
  if (reconnects->successors >= 0) close(reconnects->successors);
  reconnects->successors = -1;
}

void vgpu_reconnects_bequeath(const struct vgpu_reconnects *reconnects, int end, int lowest) {
  char text[16 * (VGPU_PREDECESSORS_MAX + 1)];
  size_t length = 0;
  for (uint32_t i = 0; i <= reconnects->count && i < VGPU_PREDECESSORS_MAX; i++) {
    int inherited = fcntl(i == 0 ? end : reconnects->predecessors[i - 1], F_DUPFD, lowest);
    if (inherited >= 0) length += (size_t)snprintf(text + length, sizeof text - length, " %d", inherited);
  }
  if (length > 0) setenv(ENVIRONMENT, text, 1);
}

/* Returns 0 or an errno. */
static int send_to(int predecessor, const struct vgpu_greeting *greeting, const void *attached, size_t size,
                   int claim) {
  const int descriptors[DESCRIPTORS_MAX] = {greeting->descriptor, claim};
  struct header header = {.format = FORMAT,
                          .greeting = (uint32_t)greeting->filled,
                          .attached = (uint32_t)size,
                          .claims = claim >= 0};
  const size_t passed = (1 + header.claims) * sizeof(int);
  struct iovec parts[] = {{.iov_base = &header, .iov_len = sizeof header},
                          {.iov_base = (void *)(uintptr_t)greeting->bytes, .iov_len = greeting->filled},
                          {.iov_base = (void *)(uintptr_t)attached, .iov_len = size}};
  union control control;
  memset(&control, 0, sizeof control);
  struct msghdr whole = {.msg_iov = parts,
                         .msg_iovlen = sizeof parts / sizeof *parts,
                         .msg_control = &control,
                         .msg_controllen = CMSG_SPACE(passed)};
  control.header.cmsg_level = SOL_SOCKET;
  control.header.cmsg_type = SCM_RIGHTS;
  control.header.cmsg_len = CMSG_LEN(passed);
  memcpy(CMSG_DATA(&control.header), descriptors, passed);
  return sendmsg(predecessor, &whole, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

enum vgpu_reconnects_result vgpu_reconnects_pass(struct vgpu_reconnects *reconnects,
                                                 const struct vgpu_greeting *greeting, const void *attached,
                                                 size_t size, int claim) {
  while (reconnects->count > 0) {
    switch (send_to(reconnects->predecessors[0], greeting, attached, size, claim)) {
      case 0:
        return VGPU_RECONNECTS_PASSED;
      case EPIPE:
      case ECONNRESET: /* this predecessor has ended: try the next one */
        close(reconnects->predecessors[0]);
        reconnects->count--;
        memmove(reconnects->predecessors, reconnects->predecessors + 1,
                reconnects->count * sizeof *reconnects->predecessors);
        continue;
      default: /* EAGAIN, or EINTR, ENOMEM, ETOOMANYREFS */
        return VGPU_RECONNECTS_LATER;
    }
  }
  return VGPU_RECONNECTS_NONE;
}

static uint32_t take_descriptors(struct msghdr *message, int *descriptors) {
  struct cmsghdr *rights = CMSG_FIRSTHDR(message);
  if (rights == NULL || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) return 0;
  uint32_t count = (uint32_t)((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  if (count > DESCRIPTORS_MAX) count = DESCRIPTORS_MAX;
  memcpy(descriptors, CMSG_DATA(rights), count * sizeof(int));
  return count;
}

/* Reads the parts of a message of this version. False: its sizes do not agree. */
static bool read_parts(const unsigned char *bytes, size_t size, struct vgpu_greeting *greeting,
                       struct vgpu_reconnects_attached *attached, uint32_t *claims) {
  struct header header;
  if (size < sizeof header) return false;
  memcpy(&header, bytes, sizeof header);
  *claims = header.claims;
  if (header.greeting == 0 || header.greeting > sizeof greeting->bytes ||
      header.attached > sizeof attached->bytes || size != sizeof header + header.greeting + header.attached)
    return false;
  memcpy(greeting->bytes, bytes + sizeof header, header.greeting);
  memcpy(attached->bytes, bytes + sizeof header + header.greeting, header.attached);
  greeting->filled = header.greeting;
  attached->size = header.attached;
  return true;
}

enum vgpu_reconnects_received vgpu_reconnects_receive(struct vgpu_reconnects *reconnects,
                                                      struct vgpu_greeting *greeting,
                                                      struct vgpu_reconnects_attached *attached) {
  static unsigned char bytes[sizeof(struct header) + VGPU_GREETING_MAX + VGPU_RECONNECTS_ATTACHED_MAX];
  struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
  union control control;
  struct msghdr whole = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.bytes};
  ssize_t size = recvmsg(reconnects->successors, &whole, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return VGPU_RECONNECTS_NOTHING;
  if (size == 0) { /* no successor is left */
    vgpu_reconnects_close(reconnects);
    return VGPU_RECONNECTS_NOTHING;
  }
  /* Without a free descriptor the kernel closes the connection. The guest tries again. */
  int descriptors[DESCRIPTORS_MAX] = {-1, -1};
  uint32_t count = take_descriptors(&whole, descriptors), format = 0, claims = 0;
  if (count == 0) return VGPU_RECONNECTS_NOTHING;
  greeting->descriptor = descriptors[0];
  attached->claim = descriptors[1];
  if ((size_t)size >= sizeof format) memcpy(&format, bytes, sizeof format);
  if (format != FORMAT) {
    if (attached->claim >= 0) close(attached->claim);
    return VGPU_RECONNECTS_FOREIGN;
  }
  if (read_parts(bytes, (size_t)size, greeting, attached, &claims) && count == 1 + claims)
    return VGPU_RECONNECTS_CAME;
  while (count-- > 0) close(descriptors[count]);
  return VGPU_RECONNECTS_NOTHING;
}
