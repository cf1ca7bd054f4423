/* One idle session with the host, kept open so that its end is noticed by itself. */
#ifndef VGPU_WATCH_HOST_H
#define VGPU_WATCH_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/address.h"
#include "wire/frame.h"

struct vgpu_host_watch {
  char text[160]; /* as given; empty: no host is watched */
  struct vgpu_address address;
  bool good_address;
  int descriptor; /* the session; -1 while there is none */
  int notifier;   /* inotify, for the socket of a unix address to appear; -1 when not needed */
  uint64_t sequence;
  int64_t retry_at;         /* vgpu_now_ms time of the next attempt that was promised; 0: none */
  unsigned retries;         /* short ones, after the socket appeared */
  unsigned failures, pause; /* ticks to let pass before the next attempt */
  bool told, up;            /* what was said last */
  long long microseconds;   /* of the last ping; -1: none yet */
};

/* Ends the present session and begins with the host at `text`; empty: none. */
void vgpu_host_watch_begin(struct vgpu_host_watch *watch, const char *text);

/* The regular look: pings a session, tries again without one. Blocks at most two limits of the wire. */
void vgpu_host_watch_tick(struct vgpu_host_watch *watch);

/* The session's descriptor became readable: the host never speaks unasked, so it is over. */
void vgpu_host_watch_ended(struct vgpu_host_watch *watch);

/* The directory of the socket changed, or a promised attempt is due. */
void vgpu_host_watch_stirred(struct vgpu_host_watch *watch);
void vgpu_host_watch_due(struct vgpu_host_watch *watch);

#endif
