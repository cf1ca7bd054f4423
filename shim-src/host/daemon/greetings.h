/*
 * Connections that have not greeted yet. They hold no session. If a peer has too many of them, its oldest is
 * closed: a peer that connects and sends nothing delays only itself.
 */
#ifndef VGPU_HOST_GREETINGS_H
#define VGPU_HOST_GREETINGS_H

#include <poll.h>

#include "host/policy/policy.h"
#include "wire/greeting.h"

#define VGPU_GREETINGS_MAX 128u
#define VGPU_GREETINGS_PEER_MAX 16u /* of one peer */

struct vgpu_greeting {
  int descriptor;
  uint64_t session; /* the number that its session will have */
  int64_t until;
  struct vgpu_peer peer;
  uint32_t pid; /* unix: of the process that connected; 0: not known */
  struct vgpu_peer_limits limits;
  char who[96];
  struct vgpu_hello hello; /* valid when the greeting is complete */
  struct vgpu_resume resume;
  size_t filled;
  unsigned char bytes[VGPU_GREETING_MAX];
};

struct vgpu_greetings {
  uint32_t count;
  struct vgpu_greeting array[VGPU_GREETINGS_MAX]; /* oldest first */
};

/*
 * Adds a connection and takes its descriptor over. Older connections may be closed to make room. The result
 * is valid until the next call.
 */
struct vgpu_greeting *vgpu_greetings_add(struct vgpu_greetings *greetings,
                                         const struct vgpu_greeting *greeting);

/*
 * Reads the bytes that have arrived. WHOLE: the connection has greeted. UNSOUND: it is closed, too late, or
 * not the vgpu protocol; the reason is logged.
 */
enum vgpu_greeting_result vgpu_greetings_read(struct vgpu_greeting *greeting);

/* Removes a connection. The caller closes its descriptor. */
void vgpu_greetings_remove(struct vgpu_greetings *greetings, struct vgpu_greeting *greeting);

/*
 * For the daemon's poll: fills `pollers`, which has VGPU_GREETINGS_MAX places, and returns how many it used.
 */
uint32_t vgpu_greetings_poll(const struct vgpu_greetings *greetings, struct pollfd *pollers);

/* Returns the milliseconds until the time limit of the next connection; -1: there is none. */
int vgpu_greetings_wait(const struct vgpu_greetings *greetings);

void vgpu_greetings_abandon(struct vgpu_greetings *greetings);

#endif
