#include "host/session/line.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PASSED_MOST 2

void vgpu_line_init(struct vgpu_line *line, int now, int channel, int peer, bool peer_is_guest,
                    uint32_t limit_s) {
  *line = (struct vgpu_line){.limit_s = limit_s,
                             .channel = channel,
                             .peer = peer,
                             .peer_is_guest = peer_is_guest,
                             .now = now,
                             .next = -1,
                             .retired = -1};
  pthread_mutex_init(&line->lock, NULL);
  pthread_cond_init(&line->came, NULL);
}

bool vgpu_line_survives(const struct vgpu_line *line) {
  return line->agreed && !__atomic_load_n(&line->leaving, __ATOMIC_RELAXED) &&
         !__atomic_load_n(&line->overrun, __ATOMIC_RELAXED);
}

union control {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(PASSED_MOST * sizeof(int))];
};

bool vgpu_line_pass(int channel, const struct vgpu_line_message *message, int connection, int peer) {
  const int descriptors[PASSED_MOST] = {connection, peer};
  const size_t size = (peer < 0 ? 1 : PASSED_MOST) * sizeof *descriptors;
  struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message};
  union control control;
  memset(&control, 0, sizeof control);
  struct msghdr whole = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(size)};
  control.header.cmsg_level = SOL_SOCKET;
  control.header.cmsg_type = SCM_RIGHTS;
  control.header.cmsg_len = CMSG_LEN(size);
  memcpy(CMSG_DATA(&control.header), descriptors, size);
  return sendmsg(channel, &whole, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *message;
}

enum vgpu_line_received vgpu_line_receive(int channel, struct vgpu_line_message *message, int *connection,
                                          int *peer) {
  struct iovec part = {.iov_base = message, .iov_len = sizeof *message};
  union control control;
  struct msghdr whole = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  int descriptors[PASSED_MOST] = {-1, -1};
  ssize_t size = recvmsg(channel, &whole, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  struct cmsghdr *header = size < 0 ? NULL : CMSG_FIRSTHDR(&whole);
  if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len <= CMSG_LEN(sizeof descriptors)) {
    memcpy(descriptors, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
  }
  *connection = descriptors[0];
  *peer = descriptors[1];
  bool whole_message = size == (ssize_t)sizeof *message;
  /* If this process has no free descriptor, the kernel closes the connection and truncates the message. */
  bool truncated = whole_message && (whole.msg_flags & MSG_CTRUNC) != 0;
  if (whole_message && !truncated && *connection >= 0) return VGPU_LINE_CAME;
  for (int i = 0; i < PASSED_MOST; i++) {
    if (descriptors[i] >= 0) close(descriptors[i]);
  }
  return truncated ? VGPU_LINE_LOST : VGPU_LINE_ENDED;
}

/* Closes the retired connection. The caller holds the lock. */
static void close_retired(struct vgpu_line *line) {
  if (line->retired >= 0) close(line->retired);
  line->retired = -1;
}

int vgpu_line_wait(struct vgpu_line *line, uint64_t *received) {
  if (!vgpu_line_survives(line)) return -1;
  pthread_mutex_lock(&line->lock);
  /* If no connection comes in time, the watching thread ends the process. */
  while (line->next < 0) pthread_cond_wait(&line->came, &line->lock);
  close_retired(line);
  line->retired = line->now;
  line->now = line->next;
  line->next = -1;
  *received = line->received;
  pthread_mutex_unlock(&line->lock);
  return line->now;
}

int vgpu_line_newest(struct vgpu_line *line) {
  pthread_mutex_lock(&line->lock);
  close_retired(line);
  int newest = line->next >= 0 ? line->next : line->now;
  pthread_mutex_unlock(&line->lock);
  return newest;
}

void vgpu_line_offer(struct vgpu_line *line, int connection, uint64_t received) {
  pthread_mutex_lock(&line->lock);
  if (line->next >= 0) close(line->next);
  line->next = connection;
  line->received = received;
  shutdown(line->now, SHUT_RDWR);
  pthread_cond_signal(&line->came);
  pthread_mutex_unlock(&line->lock);
}

void vgpu_line_ended(struct vgpu_line *line) {
  pthread_mutex_lock(&line->lock);
  if (line->next >= 0) close(line->next);
  line->next = -1;
  pthread_mutex_unlock(&line->lock);
}
