#include "host/policy/admission.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/log.h"
#include "host/policy/fair.h"
#include "wire/clock.h"
#include "wire/stream.h"

#define LEAVING_MS 2000
#define GREETING_MOST 4096

static bool connects_too_fast(struct vgpu_admission *admission, const struct vgpu_peer *peer,
                              uint32_t connects) {
  if (connects == 0) return false;
  bool usual = connects == VGPU_LIMIT_USUAL;
  uint32_t rate = usual ? VGPU_CONNECTS_DEFAULT : connects;
  uint32_t burst = usual ? VGPU_CONNECTS_BURST : connects;
  struct vgpu_bucket *bucket = &vgpu_peers_find(&admission->peers, peer)->connects;
  return vgpu_bucket_take_burst(bucket, rate, burst, vgpu_now_ns()) != 0;
}

int32_t vgpu_admit(struct vgpu_admission *admission, const struct vgpu_identity *identity, const char *who,
                   uint64_t session, struct vgpu_peer_limits *limits) {
  *limits = VGPU_USUAL_LIMITS;
  limits->devices = admission->usual_devices;
  const char *name = admission->policy_name;
  if (admission->policy != NULL) {
    const struct vgpu_rule *rule = vgpu_policy_match(admission->policy, identity);
    if (rule == NULL) {
      vgpu_host_log_limited("refused", session, "refused %s: no line of %s allows it", who, name);
      return VGPU_STATUS_NOT_ALLOWED;
    }
    if (!rule->allow) {
      vgpu_host_log_limited("refused", session, "refused %s: line %u of %s denies it", who, rule->line, name);
      return VGPU_STATUS_NOT_ALLOWED;
    }
    *limits = rule->limits;
    limits->line = rule->line;
    limits->devices = rule->limits.choice == 0 ? admission->usual_devices
                                               : admission->policy->choices[rule->limits.choice - 1].found;
  }
  if (!connects_too_fast(admission, &identity->peer, limits->connects)) return VGPU_STATUS_OK;
  if (limits->connects == VGPU_LIMIT_USUAL) {
    vgpu_host_log_limited("refused", session,
                          "refused %s: more than %u connections at once and %u a second (connects= of %s "
                          "changes that)",
                          who, VGPU_CONNECTS_BURST, VGPU_CONNECTS_DEFAULT, name);
  } else {
    vgpu_host_log_limited("refused", session,
                          "refused %s: more than the %u connections a second that line %u of %s allows", who,
                          limits->connects, limits->line, name);
  }
  return VGPU_STATUS_BUSY;
}

int32_t vgpu_admit_session(struct vgpu_admission *admission, const struct vgpu_session_counts *counts,
                           const char *who, uint64_t session, const struct vgpu_peer_limits *limits) {
  bool usual = limits->sessions == VGPU_LIMIT_USUAL;
  /* One peer alone never gets all sessions. */
  const uint32_t most = usual ? (counts->limit + 1) / 2 : limits->sessions;
  const uint32_t own = counts->of_peer;
  if (most != 0 && own >= most) {
    if (usual) {
      vgpu_host_log_limited(
          "refused", session,
          "refused %s: it has %u sessions, half of --sessions (sessions= of %s changes that)", who, most,
          admission->policy_name);
    } else {
      vgpu_host_log_limited("refused", session,
                            "refused %s: it has %u sessions, the most that line %u of %s allows", who, most,
                            limits->line, admission->policy_name);
    }
    return VGPU_STATUS_BUSY;
  }
  const uint32_t free = counts->limit > counts->all ? counts->limit - counts->all : 0;
  if (usual && free > 0 && !vgpu_fair_place(counts->limit, free, own)) {
    vgpu_host_log_limited("refused", session,
                          "refused %s: it has %u sessions, and the %u that are free are kept for other peers "
                          "(sessions= of %s changes that)",
                          who, own, free, admission->policy_name);
    return VGPU_STATUS_BUSY;
  }
  if (free > 0) return VGPU_STATUS_OK;
  vgpu_host_log_limited("refused", session,
                        "refused %s: all %u sessions of this host are in use (--sessions)", who,
                        counts->limit);
  return VGPU_STATUS_BUSY;
}

static void let_go(struct vgpu_admission *admission, uint32_t index) {
  close(admission->leaving[index].descriptor);
  admission->leaving_count--;
  memmove(&admission->leaving[index], &admission->leaving[index + 1],
          (admission->leaving_count - index) * sizeof admission->leaving[0]);
}

void vgpu_let_leave(struct vgpu_admission *admission, int descriptor) {
  shutdown(descriptor, SHUT_WR);
  if (admission->leaving_count == VGPU_LEAVING_MAX) let_go(admission, 0);
  uint32_t place = admission->leaving_count++;
  admission->leaving[place].descriptor = descriptor;
  admission->leaving[place].until = vgpu_now_ms() + LEAVING_MS;
  admission->leaving[place].sent = 0;
}

static void answer_no(struct vgpu_admission *admission, int descriptor, int32_t status,
                      const struct vgpu_welcome *welcome) {
  struct vgpu_frame reply = {.opcode = VGPU_OP_HELLO, .flags = VGPU_FLAG_REPLY, .status = status};
  /* If a new connection has no room for this, it is not sent. */
  vgpu_stream_write_frame(descriptor, &reply, welcome, welcome == NULL ? 0 : sizeof *welcome, NULL, 0,
                          vgpu_now_ms());
  vgpu_let_leave(admission, descriptor);
}

void vgpu_refuse(struct vgpu_admission *admission, const struct vgpu_peer *peer, int descriptor,
                 int32_t status, const struct vgpu_welcome *welcome) {
  struct vgpu_peer_record *record = vgpu_peers_find(&admission->peers, peer);
  record->turned_away++;
  record->last_turned_away = status;
  record->turned_away_at = vgpu_now_ms();
  answer_no(admission, descriptor, status, welcome);
}

void vgpu_refuse_return(struct vgpu_admission *admission, int descriptor, int32_t status) {
  answer_no(admission, descriptor, status, NULL);
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
