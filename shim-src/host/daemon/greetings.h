/* Connections without a session. If a peer has too many, its oldest is closed. */
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

/* Takes the descriptor over and may close older connections. The result is valid until the next call. */
struct vgpu_greeting *vgpu_greetings_add(struct vgpu_greetings *greetings,
                                         const struct vgpu_greeting *greeting);

/* UNSOUND: closed, too late, or not the vgpu protocol; logged. */
enum vgpu_greeting_result vgpu_greetings_read(struct vgpu_greeting *greeting);

void vgpu_greetings_remove(struct vgpu_greetings *greetings, struct vgpu_greeting *greeting);

/* Fills `pollers` (VGPU_GREETINGS_MAX places) and returns their number. */
uint32_t vgpu_greetings_poll(const struct vgpu_greetings *greetings, struct pollfd *pollers);

/* Milliseconds until the next time limit; -1: none. */
int vgpu_greetings_wait(const struct vgpu_greetings *greetings);

void vgpu_greetings_abandon(struct vgpu_greetings *greetings);

#endif
