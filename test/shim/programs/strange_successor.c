/*
 * The program at the daemon's path after an upgrade to another version: it says that it serves, and passes a
 * connection to its predecessor in messages that the predecessor does not know: of the next version, then of
 * the time before there was one. Prints the status of each answer, -1: none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/clock.h"
#include "wire/frame.h"
#include "wire/stream.h"

static unsigned char message[256];

/* Passes one end of a new connection with the message, and reads the answer from the other end. */
static int answer_to(int predecessor, size_t size) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -2;
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  memset(&control, 0, sizeof control);
  struct iovec part = {.iov_base = message, .iov_len = size};
  struct msghdr whole = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.bytes};
  control.header.cmsg_level = SOL_SOCKET;
  control.header.cmsg_type = SCM_RIGHTS;
  control.header.cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(&control.header), &ends[1], sizeof(int));
  if (sendmsg(predecessor, &whole, MSG_NOSIGNAL) < 0) return -2;
  close(ends[1]);
  struct vgpu_frame reply = {.status = -1};
  bool read = vgpu_stream_read_header(ends[0], &reply, vgpu_now_ms() + 20000) == VGPU_STREAM_OK;
  close(ends[0]);
  return read ? reply.status : -1;
}

int main(void) {
  int pipe, predecessor;
  const char *told = getenv("VGPU_HAND_OVER"), *predecessors = getenv("VGPU_PREDECESSORS");
  if (told == NULL || sscanf(told, "%d", &pipe) != 1) return 1;
  if (predecessors == NULL || sscanf(predecessors, "%d", &predecessor) != 1) return 1;
  if (write(pipe, "", 1) != 1) return 1;
  /* The number of the version is the lowest byte of the message. */
  const uint32_t next[] = {0x76677502, 40, 0, 0}, before[] = {40, 0};
  memcpy(message, next, sizeof next);
  fprintf(stderr, "next: status %d\n", answer_to(predecessor, sizeof next + 40));
  memset(message, 0, sizeof message);
  memcpy(message, before, sizeof before);
  fprintf(stderr, "before: status %d\n", answer_to(predecessor, sizeof before + 40));
  return 0;
}
