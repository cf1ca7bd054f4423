#include "wire/stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "wire/clock.h"

static enum vgpu_stream_result wait_for(int descriptor, short events, int64_t deadline) {
  struct pollfd poller = {.fd = descriptor, .events = events};
  for (;;) {
    int limit = deadline == VGPU_NO_DEADLINE ? -1 : vgpu_left_ms(deadline);
    int ready = poll(&poller, 1, limit);
    if (ready > 0) return VGPU_STREAM_OK; /* errors appear at the next read or write */
    if (ready == 0) return VGPU_STREAM_TIMEOUT;
    if (errno != EINTR) return VGPU_STREAM_CLOSED;
  }
}

enum vgpu_stream_result vgpu_stream_wait_readable(int descriptor, int64_t deadline) {
  return wait_for(descriptor, POLLIN, deadline);
}

/*
 * A unix listener with a full queue answers EAGAIN, and poll() cannot wait for room: this tries again until
 * the deadline.
 */
static bool connect_within(int descriptor, const struct vgpu_address *address, int64_t deadline) {
  for (;;) {
    if (connect(descriptor, (const struct sockaddr *)&address->storage, address->length) == 0) return true;
    if (errno == EISCONN) return true;
    if (errno == EAGAIN && address->kind == VGPU_ADDRESS_UNIX) {
      if (vgpu_left_ms(deadline) == 0) return false;
      struct timespec nap = {.tv_nsec = 5000000};
      nanosleep(&nap, NULL);
      continue;
    }
    if (errno != EINPROGRESS && errno != EINTR && errno != EALREADY) return false;
    if (wait_for(descriptor, POLLOUT, deadline) != VGPU_STREAM_OK) {
      errno = ETIMEDOUT;
      return false;
    }
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return false;
    errno = error;
    return error == 0;
  }
}

int vgpu_stream_connect(const struct vgpu_address *address, int64_t deadline) {
  int descriptor = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return -1;
  if (!connect_within(descriptor, address, deadline)) {
    int error = errno;
    close(descriptor);
    errno = error;
    return -1;
  }
  if (address->kind == VGPU_ADDRESS_TCP) {
    int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return descriptor;
}

/* Keeps the first descriptor that arrived, and closes all others. */
static void take_passed(struct msghdr *message, int *passed) {
  for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int descriptor;
      memcpy(&descriptor, CMSG_DATA(part) + i * sizeof descriptor, sizeof descriptor);
      if (*passed < 0) *passed = descriptor;
      else close(descriptor);
    }
  }
}

ssize_t vgpu_stream_receive(int descriptor, void *bytes, size_t size, int *passed) {
  _Alignas(struct cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int))];
  struct iovec part = {.iov_base = bytes, .iov_len = size};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t got = recvmsg(descriptor, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got >= 0) take_passed(&message, passed);
  return got;
}

enum vgpu_stream_result vgpu_stream_read_passed(int descriptor, void *bytes, size_t size, int *passed,
                                                int64_t deadline) {
  unsigned char *at = bytes;
  while (size > 0) {
    ssize_t got = passed == NULL ? recv(descriptor, at, size, MSG_DONTWAIT)
                                 : vgpu_stream_receive(descriptor, at, size, passed);
    if (got > 0) {
      at += got;
      size -= (size_t)got;
      continue;
    }
    if (got == 0) return VGPU_STREAM_CLOSED;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return VGPU_STREAM_CLOSED;
    enum vgpu_stream_result result = wait_for(descriptor, POLLIN, deadline);
    if (result != VGPU_STREAM_OK) return result;
  }
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result vgpu_stream_read(int descriptor, void *bytes, size_t size, int64_t deadline) {
  return vgpu_stream_read_passed(descriptor, bytes, size, NULL, deadline);
}

uint32_t vgpu_stream_padding(const struct vgpu_frame *frame) {
  return frame->length - (uint32_t)sizeof *frame - frame->body - frame->bulk;
}

/* Writes all parts. `passed` (-1: none) goes with the first byte. */
static enum vgpu_stream_result write_parts(int descriptor, struct iovec *parts, size_t count, int passed,
                                           int64_t deadline) {
  _Alignas(struct cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int))] = {0};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
  if (passed >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof passed);
    memcpy(CMSG_DATA(part), &passed, sizeof passed);
  }
  while (message.msg_iovlen > 0) {
    ssize_t sent = sendmsg(descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return VGPU_STREAM_CLOSED;
      enum vgpu_stream_result result = wait_for(descriptor, POLLOUT, deadline);
      if (result != VGPU_STREAM_OK) return result;
      continue;
    }
    message.msg_control = NULL;
    message.msg_controllen = 0;
    size_t left = (size_t)sent;
    while (message.msg_iovlen > 0 && left >= message.msg_iov->iov_len) {
      left -= message.msg_iov->iov_len;
      message.msg_iov++;
      message.msg_iovlen--;
    }
    if (message.msg_iovlen > 0) {
      message.msg_iov->iov_base = (unsigned char *)message.msg_iov->iov_base + left;
      message.msg_iov->iov_len -= left;
    }
  }
  return VGPU_STREAM_OK;
}

static enum vgpu_stream_result write_frame(int descriptor, struct iovec before, struct vgpu_frame *frame,
                                           const void *body, uint32_t body_size, const void *bulk,
                                           uint32_t bulk_size, int passed, int64_t deadline) {
  static const unsigned char zeros[8];
  frame->body = body_size;
  frame->bulk = bulk_size;
  frame->length = vgpu_frame_length(body_size, bulk_size);
  if (!vgpu_frame_sound(frame)) return VGPU_STREAM_UNSOUND;
  struct iovec parts[5];
  size_t count = 0;
  if (before.iov_len > 0) parts[count++] = before;
  parts[count++] = (struct iovec){.iov_base = frame, .iov_len = sizeof *frame};
  if (body_size > 0)
    parts[count++] = (struct iovec){.iov_base = (void *)(uintptr_t)body, .iov_len = body_size};
  if (bulk_size > 0)
    parts[count++] = (struct iovec){.iov_base = (void *)(uintptr_t)bulk, .iov_len = bulk_size};
  uint32_t padding = vgpu_stream_padding(frame);
  if (padding > 0) parts[count++] = (struct iovec){.iov_base = (void *)(uintptr_t)zeros, .iov_len = padding};
  return write_parts(descriptor, parts, count, passed, deadline);
}

enum vgpu_stream_result vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame, const void *body,
                                                uint32_t body_size, const void *bulk, uint32_t bulk_size,
                                                int64_t deadline) {
  return write_frame(descriptor, (struct iovec){0}, frame, body, body_size, bulk, bulk_size, -1, deadline);
}

enum vgpu_stream_result vgpu_stream_write_after(int descriptor, const void *before, size_t before_size,
                                                struct vgpu_frame *frame, const void *body,
                                                uint32_t body_size, const void *bulk, uint32_t bulk_size,
                                                int64_t deadline) {
  struct iovec first = {.iov_base = (void *)(uintptr_t)before, .iov_len = before_size};
  return write_frame(descriptor, first, frame, body, body_size, bulk, bulk_size, -1, deadline);
}

enum vgpu_stream_result vgpu_stream_write(int descriptor, const void *bytes, size_t size, int64_t deadline) {
  struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
  return write_parts(descriptor, &part, 1, -1, deadline);
}

enum vgpu_stream_result vgpu_stream_pass_frame(int descriptor, struct vgpu_frame *frame, const void *body,
                                               uint32_t body_size, int passed, int64_t deadline) {
  return write_frame(descriptor, (struct iovec){0}, frame, body, body_size, NULL, 0, passed, deadline);
}

enum vgpu_stream_result vgpu_stream_pass(int descriptor, int passed, int64_t deadline) {
  unsigned char byte = 0;
  struct iovec part = {.iov_base = &byte, .iov_len = 1};
  return write_parts(descriptor, &part, 1, passed, deadline);
}

enum vgpu_stream_result vgpu_stream_read_header(int descriptor, struct vgpu_frame *frame, int64_t deadline) {
  enum vgpu_stream_result result = vgpu_stream_read(descriptor, frame, sizeof *frame, deadline);
  if (result != VGPU_STREAM_OK) return result;
  return vgpu_frame_sound(frame) ? VGPU_STREAM_OK : VGPU_STREAM_UNSOUND;
}

enum vgpu_stream_result vgpu_stream_skip(int descriptor, size_t size, int64_t deadline) {
  unsigned char sink[4096];
  while (size > 0) {
    size_t step = size < sizeof sink ? size : sizeof sink;
    enum vgpu_stream_result result = vgpu_stream_read(descriptor, sink, step, deadline);
    if (result != VGPU_STREAM_OK) return result;
    size -= step;
  }
  return VGPU_STREAM_OK;
}
