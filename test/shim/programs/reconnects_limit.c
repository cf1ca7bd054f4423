/*
 * Passes a connection from a successor to its predecessor, both in this process, while the process has no
 * free descriptor and then again. Prints a line for each time: whether it was passed, received, and is still
 * open.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/daemon/reconnects.h"

static struct vgpu_reconnects predecessor = {.successors = -1}, successor = {.successors = -1};
static struct vgpu_reconnects_attached attached;
static struct vgpu_greeting sent, received;

static void try(void) {
  int passed = vgpu_reconnects_pass(&successor, &sent, "more", 4, -1) == VGPU_RECONNECTS_PASSED;
  /* The limit is for new descriptors only. None is free below the first one. */
  struct rlimit limit, none;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
  for (int full = 1; full >= 0; full--) {
    if (full && setrlimit(RLIMIT_NOFILE, &none) != 0) return;
    int came = vgpu_reconnects_receive(&predecessor, &received, &attached) == VGPU_RECONNECTS_CAME;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    printf("%s: passed %d, received %d, open %d\n", full ? "full" : "free", passed, came,
           predecessor.successors >= 0);
    if (came) close(received.descriptor);
    if (full) passed = vgpu_reconnects_pass(&successor, &sent, "more", 4, -1) == VGPU_RECONNECTS_PASSED;
  }
}

int main(void) {
  int ends[2], end = vgpu_reconnects_open(&predecessor);
  if (end < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  successor.predecessors[successor.count++] = end;
  sent.descriptor = ends[0];
  sent.filled = 40;
  try();
  close(end); /* the last successor has ended */
  int came = vgpu_reconnects_receive(&predecessor, &received, &attached) == VGPU_RECONNECTS_CAME;
  printf("ended: received %d, open %d\n", came, predecessor.successors >= 0);
  return 0;
}
