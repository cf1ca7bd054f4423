/*
 * Connections that have not greeted yet. They hold no session: a peer that connects and says nothing keeps
 * nobody out but itself, for when there are too many of its connections the oldest one is closed.
 */
#ifndef VGPU_HOST_GREETINGS_H
#define VGPU_HOST_GREETINGS_H

#include <poll.h>

#include "host/policy/policy.h"
#include "wire/greeting.h"

#define VGPU_GREETINGS_MAX 128u
#define VGPU_GREETINGS_PEER_MAX 16u /* of one peer */

/* A connection that may have a session once it has greeted. */
struct vgpu_greeting {
  int descriptor;
  uint64_t session; /* its number, should it become one */
  int64_t until;
  struct vgpu_peer peer;
  uint32_t pid; /* unix: of who connected; 0: not known */
  struct vgpu_peer_limits limits;
  char who[96];
  struct vgpu_hello hello; /* once it is whole */
  struct vgpu_resume resume;
  size_t filled;
  unsigned char bytes[VGPU_GREETING_MAX];
};

struct vgpu_greetings {
  uint32_t count;
  struct vgpu_greeting array[VGPU_GREETINGS_MAX]; /* oldest first */
};

/* Takes the descriptor over. The place, valid until the next call; older ones may have been closed for it. */
struct vgpu_greeting *vgpu_greetings_add(struct vgpu_greetings *greetings,
                                         const struct vgpu_greeting *greeting);

/* Reads what is there. WHOLE: it has greeted; UNSOUND: gone, late or no vgpu protocol, which was logged. */
enum vgpu_greeting_result vgpu_greetings_read(struct vgpu_greeting *greeting);

/* Forgets it; its descriptor is the caller's. */
void vgpu_greetings_remove(struct vgpu_greetings *greetings, struct vgpu_greeting *greeting);

/* For the daemon's poll: fills `pollers`, VGPU_GREETINGS_MAX places; how many. */
uint32_t vgpu_greetings_poll(const struct vgpu_greetings *greetings, struct pollfd *pollers);

/* Milliseconds until the time of one of them is up; -1: there is none. */
int vgpu_greetings_wait(const struct vgpu_greetings *greetings);

/* Closes all, without a word. */
void vgpu_greetings_abandon(struct vgpu_greetings *greetings);

#endif
