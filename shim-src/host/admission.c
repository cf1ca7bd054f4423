#include "host/admission.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/log.h"
#include "wire/clock.h"
#include "wire/stream.h"

#define LEAVING_MS 2000
#define TELLING_RATE 20
#define GREETING_MOST 4096

void vgpu_tell_refusal(struct vgpu_admission *admission, uint64_t session, const char *format, ...) {
  if (vgpu_bucket_take(&admission->telling, TELLING_RATE, vgpu_now_ns()) != 0) {
    admission->untold++;
    return;
  }
  if (admission->untold > 0) {
    vgpu_host_log("refused", 0, "%llu more were refused", (unsigned long long)admission->untold);
    admission->untold = 0;
  }
  char what[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  vgpu_host_log("refused", session, "refused %s", what);
}

static bool same(const struct vgpu_peer *one, const struct vgpu_peer *other) {
  return one->kind == other->kind && one->id == other->id;
}

/* The peer's own bucket; a peer that is new takes the place of who has been quiet longest. */
static struct vgpu_bucket *connects_of(struct vgpu_admission *admission, const struct vgpu_peer *peer) {
  uint32_t oldest = 0;
  for (uint32_t i = 0; i < VGPU_PEERS_MAX; i++) {
    if (same(&admission->peers[i].peer, peer)) return &admission->peers[i].connects;
    if (admission->peers[i].connects.last < admission->peers[oldest].connects.last) oldest = i;
  }
  admission->peers[oldest].peer = *peer;
  admission->peers[oldest].connects = (struct vgpu_bucket){0};
  return &admission->peers[oldest].connects;
}

static uint32_t sessions_of(const struct vgpu_accounts *accounts, const struct vgpu_peer *peer) {
  uint32_t count = 0, slots = vgpu_accounts_slots(accounts);
  for (uint32_t i = 0; i < slots; i++) {
    if (accounts->slots[i].pid != 0 && same(&accounts->slots[i].peer, peer)) count++;
  }
  return count;
}

int32_t vgpu_admit(struct vgpu_admission *admission, const struct vgpu_accounts *accounts,
                   const struct vgpu_identity *identity, const char *who, uint64_t session,
                   struct vgpu_peer_limits *limits) {
  *limits = (struct vgpu_peer_limits){0};
  if (admission->policy == NULL) return VGPU_STATUS_OK;
  const struct vgpu_rule *rule = vgpu_policy_match(admission->policy, identity);
  if (rule == NULL) {
    vgpu_tell_refusal(admission, session, "%s: no line of %s allows it", who, admission->policy_name);
    return VGPU_STATUS_NOT_ALLOWED;
  }
  if (!rule->allow) {
    vgpu_tell_refusal(admission, session, "%s: line %u of %s denies it", who, rule->line,
                      admission->policy_name);
    return VGPU_STATUS_NOT_ALLOWED;
  }
  *limits = rule->limits;
  if (limits->connects != 0 &&
      vgpu_bucket_take(connects_of(admission, &identity->peer), limits->connects, vgpu_now_ns()) != 0) {
    vgpu_tell_refusal(admission, session, "%s: more than the %u connections a second of line %u", who,
                      limits->connects, rule->line);
    return VGPU_STATUS_BUSY;
  }
  if (limits->sessions != 0 && sessions_of(accounts, &identity->peer) >= limits->sessions) {
    vgpu_tell_refusal(admission, session, "%s: it has the %u sessions that line %u allows it", who,
                      limits->sessions, rule->line);
    return VGPU_STATUS_BUSY;
  }
  return VGPU_STATUS_OK;
}

static void let_go(struct vgpu_admission *admission, uint32_t index) {
  close(admission->leaving[index].descriptor);
  admission->leaving_count--;
  memmove(&admission->leaving[index], &admission->leaving[index + 1],
          (admission->leaving_count - index) * sizeof admission->leaving[0]);
}

void vgpu_refuse(struct vgpu_admission *admission, int descriptor, int32_t status) {
  struct vgpu_frame reply = {.opcode = VGPU_OP_HELLO, .flags = VGPU_FLAG_REPLY, .status = status};
  /* A new connection has room for this; one that has not is no loss. */
  vgpu_stream_write_frame(descriptor, &reply, NULL, 0, NULL, 0, vgpu_now_ms());
  shutdown(descriptor, SHUT_WR);
  if (admission->leaving_count == VGPU_LEAVING_MAX) let_go(admission, 0);
  uint32_t place = admission->leaving_count++;
  admission->leaving[place].descriptor = descriptor;
  admission->leaving[place].until = vgpu_now_ms() + LEAVING_MS;
  admission->leaving[place].sent = 0;
}

uint32_t vgpu_leaving_poll(const struct vgpu_admission *admission, struct pollfd *pollers) {
  for (uint32_t i = 0; i < admission->leaving_count; i++) {
    pollers[i] = (struct pollfd){.fd = admission->leaving[i].descriptor, .events = POLLIN};
  }
  return admission->leaving_count;
}

int vgpu_leaving_wait(const struct vgpu_admission *admission) {
  return admission->leaving_count == 0 ? -1 : vgpu_left_ms(admission->leaving[0].until);
}

void vgpu_leaving_close(struct vgpu_admission *admission, const struct pollfd *pollers, uint32_t count) {
  for (uint32_t i = count; i-- > 0;) {
    char sink[512];
    bool gone = false;
    if (pollers[i].revents != 0) {
      ssize_t got = recv(pollers[i].fd, sink, sizeof sink, MSG_DONTWAIT);
      if (got > 0) admission->leaving[i].sent += (uint32_t)got;
      gone = got <= 0 || admission->leaving[i].sent > GREETING_MOST;
    }
    if (gone || vgpu_left_ms(admission->leaving[i].until) == 0) let_go(admission, i);
  }
}

void vgpu_leaving_abandon(struct vgpu_admission *admission) {
  while (admission->leaving_count > 0) let_go(admission, admission->leaving_count - 1);
}
