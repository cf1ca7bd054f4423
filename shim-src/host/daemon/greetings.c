#include "host/daemon/greetings.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/log.h"
#include "host/policy/peers.h"
#include "wire/clock.h"

static void complain(const struct vgpu_greeting *greeting, const char *why) {
  vgpu_host_log_limited("refused", greeting->session, "no greeting from %s: %s", greeting->who, why);
}

void vgpu_greetings_remove(struct vgpu_greetings *greetings, struct vgpu_greeting *greeting) {
  uint32_t index = (uint32_t)(greeting - greetings->array);
  greetings->count--;
  memmove(greeting, greeting + 1, (greetings->count - index) * sizeof *greeting);
}

/*
 * Makes room for one connection: closes the oldest of this peer if it has too many, else the oldest of the
 * peer with the most.
 */
static void make_room(struct vgpu_greetings *greetings, const struct vgpu_peer *peer) {
  struct vgpu_greeting *oldest = NULL;
  uint32_t most = 0;
  for (uint32_t i = 0; i < greetings->count; i++) {
    uint32_t same = 0;
    for (uint32_t j = i; j < greetings->count; j++)
      same += vgpu_peer_same(&greetings->array[i].peer, &greetings->array[j].peer);
    if (vgpu_peer_same(&greetings->array[i].peer, peer) && same >= VGPU_GREETINGS_PEER_MAX) {
      oldest = &greetings->array[i];
      break;
    }
    if (greetings->count == VGPU_GREETINGS_MAX && same > most) {
      most = same;
      oldest = &greetings->array[i];
    }
  }
  if (oldest == NULL) return;
  complain(oldest, "it has too many connections that say nothing");
  close(oldest->descriptor);
  vgpu_greetings_remove(greetings, oldest);
}

struct vgpu_greeting *vgpu_greetings_add(struct vgpu_greetings *greetings,
                                         const struct vgpu_greeting *greeting) {
  make_room(greetings, &greeting->peer);
  struct vgpu_greeting *place = &greetings->array[greetings->count++];
  *place = *greeting;
  place->filled = 0;
  place->until = vgpu_now_ms() + VGPU_HANDSHAKE_LIMIT_MS;
  return place;
}

enum vgpu_greeting_result vgpu_greetings_read(struct vgpu_greeting *greeting) {
  for (;;) {
    size_t wanted = 0;
    enum vgpu_greeting_result result =
        vgpu_greeting_read(greeting->bytes, greeting->filled, &wanted, &greeting->hello);
    if (result == VGPU_GREETING_UNSOUND) complain(greeting, "not the vgpu protocol");
    if (result != VGPU_GREETING_PART) return result;
    ssize_t got = recv(greeting->descriptor, greeting->bytes + greeting->filled, wanted - greeting->filled,
                       MSG_DONTWAIT);
    if (got > 0) {
      greeting->filled += (size_t)got;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    bool waits = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (waits && vgpu_left_ms(greeting->until) > 0) return VGPU_GREETING_PART;
    complain(greeting, waits ? "nothing came within the limit" : "the peer went away");
    return VGPU_GREETING_UNSOUND;
  }
}

uint32_t vgpu_greetings_poll(const struct vgpu_greetings *greetings, struct pollfd *pollers) {
  for (uint32_t i = 0; i < greetings->count; i++) {
    pollers[i] = (struct pollfd){.fd = greetings->array[i].descriptor, .events = POLLIN};
  }
  return greetings->count;
}

int vgpu_greetings_wait(const struct vgpu_greetings *greetings) {
  return greetings->count == 0 ? -1 : vgpu_left_ms(greetings->array[0].until);
}

void vgpu_greetings_abandon(struct vgpu_greetings *greetings) {
  for (uint32_t i = 0; i < greetings->count; i++) close(greetings->array[i].descriptor);
  greetings->count = 0;
}
