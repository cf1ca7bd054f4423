#include "wire/doorbell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/clock.h"

void vgpu_doorbell_init(struct vgpu_doorbell *doorbell, int descriptor) {
  *doorbell = (struct vgpu_doorbell){.descriptor = descriptor, .passed = -1};
  pthread_mutex_init(&doorbell->lock, NULL);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&doorbell->heard, &attributes);
  pthread_condattr_destroy(&attributes);
}

void vgpu_doorbell_destroy(struct vgpu_doorbell *doorbell) {
  if (doorbell->passed >= 0) close(doorbell->passed);
  pthread_mutex_destroy(&doorbell->lock);
  pthread_cond_destroy(&doorbell->heard);
}

void vgpu_doorbell_ring(const struct vgpu_doorbell *doorbell) {
  if (!vgpu_owned_socket_holds(doorbell->own)) return; /* the thread that waits notices the loss */
  /* A socket that is full already wakes the peer. */
  while (send(doorbell->descriptor, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR) continue;
}

uint64_t vgpu_doorbell_generation(struct vgpu_doorbell *doorbell) {
  pthread_mutex_lock(&doorbell->lock);
  uint64_t generation = doorbell->generation;
  pthread_mutex_unlock(&doorbell->lock);
  return generation;
}

uint64_t vgpu_doorbell_rings(struct vgpu_doorbell *doorbell) {
  return __atomic_load_n(&doorbell->rings, __ATOMIC_RELAXED);
}

static uint64_t left_ns(uint64_t until) {
  const uint64_t now = vgpu_now_ns();
  return until > now ? until - now : 0;
}

static struct timespec timespec_of(uint64_t nanoseconds) {
  return (struct timespec){.tv_sec = (time_t)(nanoseconds / 1000000000u),
                           .tv_nsec = (long)(nanoseconds % 1000000000u)};
}

/*
 * Polls and empties the socket, without the lock. *passed: a descriptor that arrived, or -1. *rung: bytes
 * arrived.
 */
static enum vgpu_stream_result hear(const struct vgpu_doorbell *doorbell, uint64_t until, int *passed,
                                    bool *rung) {
  const int descriptor = doorbell->descriptor;
  struct pollfd poller = {.fd = descriptor, .events = POLLIN};
  if (!vgpu_owned_socket_holds(doorbell->own)) return VGPU_STREAM_CLOSED;
  const struct timespec left = timespec_of(left_ns(until));
  int ready = ppoll(&poller, 1, until == UINT64_MAX ? NULL : &left, NULL);
  if (ready == 0) return VGPU_STREAM_TIMEOUT;
  if (ready < 0) return errno == EINTR ? VGPU_STREAM_OK : VGPU_STREAM_CLOSED;
  if (!vgpu_owned_socket_holds(doorbell->own)) return VGPU_STREAM_CLOSED;
  unsigned char bytes[256];
  ssize_t got = vgpu_stream_receive(descriptor, bytes, sizeof bytes, passed);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    return VGPU_STREAM_CLOSED;
  }
  *rung = got > 0;
  return VGPU_STREAM_OK;
}

/* Keeps `passed`, a descriptor that arrived, or -1. The caller holds the lock. */
static void keep_passed(struct vgpu_doorbell *doorbell, int passed) {
  if (passed < 0) return;
  if (doorbell->passed >= 0) close(doorbell->passed); /* nobody requested that descriptor */
  doorbell->passed = passed;
  doorbell->received++;
}

enum vgpu_stream_result vgpu_doorbell_wait(struct vgpu_doorbell *doorbell, uint64_t seen, int64_t deadline) {
  const uint64_t until = deadline == VGPU_NO_DEADLINE ? UINT64_MAX : (uint64_t)deadline * 1000000u;
  return vgpu_doorbell_wait_until(doorbell, seen, until);
}

enum vgpu_stream_result vgpu_doorbell_wait_until(struct vgpu_doorbell *doorbell, uint64_t seen,
                                                 uint64_t until) {
  enum vgpu_stream_result result = VGPU_STREAM_OK;
  pthread_mutex_lock(&doorbell->lock);
  if (doorbell->closed) {
    result = VGPU_STREAM_CLOSED;
  } else if (until != UINT64_MAX && left_ns(until) == 0) {
    result = VGPU_STREAM_TIMEOUT; /* limits the loop if a peer rings without end */
  } else if (doorbell->generation != seen) {
    /* The doorbell rang before this thread waited. */
  } else if (doorbell->polling) {
    const struct timespec at = timespec_of(until);
    while (doorbell->polling && doorbell->generation == seen && result == VGPU_STREAM_OK) {
      int error = until == UINT64_MAX ? pthread_cond_wait(&doorbell->heard, &doorbell->lock)
                                      : pthread_cond_timedwait(&doorbell->heard, &doorbell->lock, &at);
      if (error == ETIMEDOUT) result = VGPU_STREAM_TIMEOUT;
    }
  } else {
    doorbell->polling = true;
    pthread_mutex_unlock(&doorbell->lock);
    int passed = -1;
    bool rung = false;
    result = hear(doorbell, until, &passed, &rung);
    pthread_mutex_lock(&doorbell->lock);
    doorbell->polling = false;
    doorbell->generation++;
    __atomic_store_n(&doorbell->rings, doorbell->rings + rung, __ATOMIC_RELAXED);
    if (result == VGPU_STREAM_CLOSED) doorbell->closed = true;
    keep_passed(doorbell, passed);
    pthread_cond_broadcast(&doorbell->heard);
  }
  pthread_mutex_unlock(&doorbell->lock);
  return result;
}

void vgpu_doorbell_missed(struct vgpu_doorbell *doorbell) {
  pthread_mutex_lock(&doorbell->lock);
  doorbell->received++;
  pthread_mutex_unlock(&doorbell->lock);
}

/* Reads the rest of a socket that was shut down. The caller holds the lock, and no thread polls. */
static void drain(struct vgpu_doorbell *doorbell) {
  if (!vgpu_owned_socket_holds(doorbell->own)) return;
  unsigned char bytes[256];
  ssize_t got;
  do {
    int passed = -1;
    got = vgpu_stream_receive(doorbell->descriptor, bytes, sizeof bytes, &passed);
    keep_passed(doorbell, passed);
  } while (got > 0 || (got < 0 && errno == EINTR));
}

uint64_t vgpu_doorbell_end(struct vgpu_doorbell *doorbell) {
  pthread_mutex_lock(&doorbell->lock);
  doorbell->closed = true;
  while (doorbell->polling) pthread_cond_wait(&doorbell->heard, &doorbell->lock);
  drain(doorbell);
  doorbell->generation++;
  pthread_cond_broadcast(&doorbell->heard);
  uint64_t received = doorbell->received;
  pthread_mutex_unlock(&doorbell->lock);
  return received;
}

bool vgpu_doorbell_renew(struct vgpu_doorbell *doorbell, int descriptor) {
  pthread_mutex_lock(&doorbell->lock);
  bool renewed = doorbell->own != NULL ? vgpu_owned_socket_replace(doorbell->own, descriptor)
                                       : dup3(descriptor, doorbell->descriptor, O_CLOEXEC) >= 0;
  if (renewed) doorbell->closed = false;
  doorbell->generation++;
  pthread_cond_broadcast(&doorbell->heard);
  pthread_mutex_unlock(&doorbell->lock);
  return renewed;
}

bool vgpu_doorbell_wait_renewed(struct vgpu_doorbell *doorbell) {
  pthread_mutex_lock(&doorbell->lock);
  while (doorbell->closed && !doorbell->over) pthread_cond_wait(&doorbell->heard, &doorbell->lock);
  bool renewed = !doorbell->closed;
  pthread_mutex_unlock(&doorbell->lock);
  return renewed;
}

void vgpu_doorbell_give_up(struct vgpu_doorbell *doorbell) {
  pthread_mutex_lock(&doorbell->lock);
  doorbell->over = true;
  pthread_cond_broadcast(&doorbell->heard);
  pthread_mutex_unlock(&doorbell->lock);
}

int vgpu_doorbell_take(struct vgpu_doorbell *doorbell, int64_t deadline) {
  for (;;) {
    pthread_mutex_lock(&doorbell->lock);
    int passed = doorbell->passed;
    doorbell->passed = -1;
    uint64_t seen = doorbell->generation;
    pthread_mutex_unlock(&doorbell->lock);
    if (passed >= 0) return passed;
    if (vgpu_doorbell_wait(doorbell, seen, deadline) != VGPU_STREAM_OK) return -1;
  }
}
