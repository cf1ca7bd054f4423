#include "wire/bell.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/clock.h"

void vgpu_bell_init(struct vgpu_bell *bell, int descriptor) {
  *bell = (struct vgpu_bell){.descriptor = descriptor, .passed = -1};
  pthread_mutex_init(&bell->lock, NULL);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&bell->heard, &attributes);
  pthread_condattr_destroy(&attributes);
}

void vgpu_bell_destroy(struct vgpu_bell *bell) {
  if (bell->passed >= 0) close(bell->passed);
  pthread_mutex_destroy(&bell->lock);
  pthread_cond_destroy(&bell->heard);
}

void vgpu_bell_ring(const struct vgpu_bell *bell) {
  /* A socket too full for one more byte wakes the peer as it is. */
  while (send(bell->descriptor, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR) continue;
}

uint64_t vgpu_bell_generation(struct vgpu_bell *bell) {
  pthread_mutex_lock(&bell->lock);
  uint64_t generation = bell->generation;
  pthread_mutex_unlock(&bell->lock);
  return generation;
}

/* Polls and empties the socket, without the lock. *passed: a descriptor that came, or -1. */
static enum vgpu_stream_result hear(int descriptor, int64_t deadline, int *passed) {
  struct pollfd poller = {.fd = descriptor, .events = POLLIN};
  int ready = poll(&poller, 1, deadline == VGPU_NO_DEADLINE ? -1 : vgpu_left_ms(deadline));
  if (ready == 0) return VGPU_STREAM_TIMEOUT;
  if (ready < 0) return errno == EINTR ? VGPU_STREAM_OK : VGPU_STREAM_CLOSED;
  unsigned char bytes[256];
  ssize_t got = vgpu_stream_receive(descriptor, bytes, sizeof bytes, passed);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    return VGPU_STREAM_CLOSED;
  }
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result vgpu_bell_wait(struct vgpu_bell *bell, uint64_t seen, int64_t deadline) {
  enum vgpu_stream_result result = VGPU_STREAM_OK;
  pthread_mutex_lock(&bell->lock);
  if (bell->closed) {
    result = VGPU_STREAM_CLOSED;
  } else if (deadline != VGPU_NO_DEADLINE && vgpu_left_ms(deadline) == 0) {
    result = VGPU_STREAM_TIMEOUT; /* also for a peer that rings without end */
  } else if (bell->generation != seen) {
    /* heard meanwhile */
  } else if (bell->polling) {
    struct timespec at = {.tv_sec = deadline / 1000, .tv_nsec = (deadline % 1000) * 1000000};
    while (bell->polling && bell->generation == seen && result == VGPU_STREAM_OK) {
      int error = deadline == VGPU_NO_DEADLINE ? pthread_cond_wait(&bell->heard, &bell->lock)
                                               : pthread_cond_timedwait(&bell->heard, &bell->lock, &at);
      if (error == ETIMEDOUT) result = VGPU_STREAM_TIMEOUT;
    }
  } else {
    bell->polling = true;
    pthread_mutex_unlock(&bell->lock);
    int passed = -1;
    result = hear(bell->descriptor, deadline, &passed);
    pthread_mutex_lock(&bell->lock);
    bell->polling = false;
    bell->generation++;
    if (result == VGPU_STREAM_CLOSED) bell->closed = true;
    if (passed >= 0) {
      if (bell->passed >= 0) close(bell->passed); /* nobody asked for that one */
      bell->passed = passed;
    }
    pthread_cond_broadcast(&bell->heard);
  }
  pthread_mutex_unlock(&bell->lock);
  return result;
}

int vgpu_bell_take(struct vgpu_bell *bell, int64_t deadline) {
  for (;;) {
    pthread_mutex_lock(&bell->lock);
    int passed = bell->passed;
    bell->passed = -1;
    uint64_t seen = bell->generation;
    pthread_mutex_unlock(&bell->lock);
    if (passed >= 0) return passed;
    if (vgpu_bell_wait(bell, seen, deadline) != VGPU_STREAM_OK) return -1;
  }
}
