#include "host/session/lifeline.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "host/log.h"

/* For what the guest has sent before it left and is soon done: launches in the log, a message. */
#define GRACE_MS 300

static void *watch(void *argument) {
  struct vgpu_link *link = argument;
  struct pollfd poller = {.fd = link->descriptor, .events = POLLRDHUP};
  /* Bytes that come do not wake it: only the end does, and the time for a sign of life. */
  for (;;) {
    int ended = poll(&poller, 1, link->alive ? VGPU_ALIVE_MS : -1);
    if (ended > 0 && (poller.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) break;
    if (ended == 0) vgpu_link_tell_alive(link);
  }
  struct timespec grace = {.tv_nsec = GRACE_MS * 1000000l};
  nanosleep(&grace, NULL);
  vgpu_host_log_flush();
  _exit(0); /* what the session held goes with the process */
}

bool vgpu_lifeline_start(struct vgpu_link *link) {
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  /* Enough for a line of the log. */
  pthread_attr_setstacksize(&attributes, 64 << 10);
  bool started = pthread_create(&thread, &attributes, watch, link) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}
