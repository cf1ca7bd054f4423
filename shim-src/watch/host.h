/* An idle session with each host, which is kept open to notice its end at once. */
#ifndef VGPU_WATCH_HOST_H
#define VGPU_WATCH_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/address.h"
#include "wire/frame.h"

struct vgpu_host_watch {
  unsigned number; /* in the list, from 1; 0: it is the only host */
  int limit_ms;    /* for one attempt or ping */
  struct vgpu_address address;
  bool good_address;
  int descriptor; /* of the session; -1: none */
  int notifier;   /* inotify, to see the socket of a unix address appear; -1: not needed */
  uint64_t sequence;
  int64_t retry_at;         /* time of the next attempt, by vgpu_now_ms; 0: none */
  unsigned retries;         /* quick attempts left after the socket appeared */
  unsigned failures, pause; /* failures so far; ticks until the next attempt */
  bool told, up;            /* whether a state was reported, and which */
  long long microseconds;   /* round-trip time of the last ping; -1: none yet */
};

#define VGPU_NO_HOST_WATCH                                                                                   \
  { .descriptor = -1, .notifier = -1, .microseconds = -1 }

/* Ends the session and forgets the host. */
void vgpu_host_watch_end(struct vgpu_host_watch *watch);

/* Begins a session with the host at the address `text`, which is host `number` in a list of `count`. */
void vgpu_host_watch_begin(struct vgpu_host_watch *watch, const char *text, unsigned number, unsigned count);

/* Pings the session, or tries to connect if there is none. Blocks for at most two time limits. */
void vgpu_host_watch_tick(struct vgpu_host_watch *watch);

/*
 * Call this when the session's descriptor is readable: the host sends only answers, so the session has ended.
 */
void vgpu_host_watch_ended(struct vgpu_host_watch *watch);

/*
 * Call these when the directory of the socket changed (stirred), or when the time of the next attempt has
 * come (due).
 */
void vgpu_host_watch_stirred(struct vgpu_host_watch *watch);
void vgpu_host_watch_due(struct vgpu_host_watch *watch);

#endif
