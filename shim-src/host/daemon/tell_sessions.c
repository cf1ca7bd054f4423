#include "host/daemon/tell_sessions.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "wire/clock.h"
#include "wire/stream.h"

/* The answer, as one daemon passes it to the next. The sizes of its parts are in `answer`, or fixed. */
struct told {
  struct vgpu_sessions_reply answer;
  struct vgpu_memory_told memory;
  struct vgpu_session_facts facts[VGPU_SESSIONS_MAX]; /* answer.count of them, oldest first */
};
_Static_assert(sizeof(struct told) <= VGPU_RECONNECTS_ATTACHED_MAX, "an answer fits a message");
_Static_assert(VGPU_RECONNECTS_VERSION == 1 && sizeof(struct told) == 35440,
               "a changed answer needs another version of the message (reconnects.h)");

static size_t size_of(const struct told *told) {
  return offsetof(struct told, facts) + told->answer.count * sizeof *told->facts;
}

static struct vgpu_memory_told memory_of(const struct vgpu_supervisor *supervisor,
                                         const struct vgpu_greeting *greeting,
                                         const struct vgpu_peer_record *record) {
  uint64_t session = supervisor->limits.session_memory, guest = greeting->limits.memory;
  bool by_guest = guest != 0 && (session == 0 || guest <= session);
  struct vgpu_memory_told told = {.limit = by_guest ? guest : session,
                                  .limited_by = by_guest       ? VGPU_MEMORY_LIMIT_GUEST
                                                : session != 0 ? VGPU_MEMORY_LIMIT_SESSION
                                                               : VGPU_MEMORY_LIMIT_NONE,
                                  .line = greeting->limits.line};
  struct vgpu_refused_to_peer refused =
      vgpu_sessions_refused_memory(&supervisor->sessions, supervisor->accounts, record);
  told.refused = refused.last.count;
  if (told.refused == 0) return told;
  told.refused_bytes = refused.last.bytes;
  told.refused_limit = refused.last.limit;
  told.refused_free = refused.last.free;
  told.refused_by = refused.last.by;
  told.refused_age = (uint32_t)((vgpu_now_ms() - refused.last.at) / 1000);
  memcpy(told.refused_program, refused.program, sizeof told.refused_program);
  return told;
}

static void fill(struct told *told, struct vgpu_supervisor *supervisor,
                 const struct vgpu_greeting *greeting) {
  const struct vgpu_peer_record *record = vgpu_peers_find(&supervisor->admission.peers, &greeting->peer);
  struct vgpu_sessions_reply *answer = &told->answer;
  *answer = (struct vgpu_sessions_reply){
      .count = vgpu_sessions_list(&supervisor->sessions, supervisor->accounts, &greeting->peer, told->facts),
      .element_size = sizeof *told->facts,
      .turned_away = record->turned_away,
      .last_turned_away = record->last_turned_away,
      .turned_away_age =
          record->turned_away == 0 ? 0 : (uint32_t)((vgpu_now_ms() - record->turned_away_at) / 1000)};
  struct vgpu_refused_kernels refused =
      vgpu_sessions_refused(&supervisor->sessions, supervisor->accounts, record);
  answer->kernels_refused = refused.count;
  answer->refused_age = refused.count == 0 ? 0 : (uint32_t)((vgpu_now_ms() - refused.at) / 1000);
  memcpy(answer->refused_program, refused.program, sizeof answer->refused_program);
  memcpy(answer->refused_kernel, refused.kernel, sizeof answer->refused_kernel);
  vgpu_welcome_fill(&answer->welcome, supervisor->backend, supervisor->inventory);
  answer->welcome.device_count = greeting->limits.devices.count;
  answer->welcome.features = greeting->hello.features & VGPU_FEATURE_MEMORY;
  told->memory = memory_of(supervisor, greeting, record);
}

static bool is_younger(uint64_t count, uint32_t age, uint64_t other_count, uint32_t other_age) {
  return count > 0 && (other_count == 0 || age < other_age);
}

/*
 * Adds the successors' answer to this daemon's, whose sessions are older. Limits, devices and names are those
 * of the newest daemon, because a new session would begin there.
 */
static void add(struct told *told, const struct told *newer) {
  struct vgpu_sessions_reply mine = told->answer, *all = &told->answer;
  struct vgpu_memory_told refused = told->memory;
  *all = newer->answer;
  told->memory = newer->memory;
  uint32_t most = VGPU_SESSIONS_MAX - newer->answer.count;
  uint32_t kept = mine.count < most ? mine.count : most;
  memcpy(&told->facts[kept], newer->facts, newer->answer.count * sizeof *newer->facts);
  all->count = kept + newer->answer.count;
  all->turned_away += mine.turned_away;
  if (is_younger(mine.turned_away, mine.turned_away_age, newer->answer.turned_away,
                 newer->answer.turned_away_age)) {
    all->last_turned_away = mine.last_turned_away;
    all->turned_away_age = mine.turned_away_age;
  }
  all->kernels_refused += mine.kernels_refused;
  if (is_younger(mine.kernels_refused, mine.refused_age, newer->answer.kernels_refused,
                 newer->answer.refused_age)) {
    all->refused_age = mine.refused_age;
    memcpy(all->refused_program, mine.refused_program, sizeof all->refused_program);
    memcpy(all->refused_kernel, mine.refused_kernel, sizeof all->refused_kernel);
  }
  if (is_younger(refused.refused, refused.refused_age, newer->memory.refused, newer->memory.refused_age)) {
    refused.limit = newer->memory.limit;
    refused.limited_by = newer->memory.limited_by;
    refused.line = newer->memory.line;
    refused.refused += newer->memory.refused;
    told->memory = refused;
  } else {
    told->memory.refused += refused.refused;
  }
}

static void answer_guest(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting,
                         const struct told *told) {
  static struct {
    struct vgpu_session_facts facts[VGPU_SESSIONS_MAX];
    struct vgpu_memory_told memory; /* space behind the last session */
  } bulk;
  uint32_t bytes = told->answer.count * (uint32_t)sizeof *told->facts;
  memcpy(&bulk, told->facts, bytes);
  if ((told->answer.welcome.features & VGPU_FEATURE_MEMORY) != 0) {
    memcpy((unsigned char *)&bulk + bytes, &told->memory, sizeof told->memory);
    bytes += (uint32_t)sizeof told->memory;
  }
  struct vgpu_frame reply = {.opcode = VGPU_OP_HELLO, .flags = VGPU_FLAG_REPLY};
  /* At most 36 KiB. A socket with too little space truncates the answer, which the peer notices. */
  vgpu_stream_write_frame(greeting->descriptor, &reply, &told->answer, sizeof told->answer, &bulk, bytes,
                          vgpu_now_ms());
  vgpu_let_leave(&supervisor->admission, greeting->descriptor);
}

/* The daemons' versions agree (reconnects.h). */
static bool is_sound(const struct vgpu_reconnects_attached *attached, struct told *newer) {
  if (attached->size < offsetof(struct told, facts) || attached->size > sizeof *newer) return false;
  memcpy(newer, attached->bytes, attached->size);
  return newer->answer.count <= VGPU_SESSIONS_MAX && newer->answer.element_size == sizeof *newer->facts &&
         attached->size == size_of(newer);
}

void vgpu_tell_sessions(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting,
                        const struct vgpu_reconnects_attached *attached) {
  static struct told told, newer;
  if (attached != NULL && attached->claim >= 0 && !vgpu_claim_take(attached->claim)) {
    close(greeting->descriptor); /* the successor's time limit has passed, and it has answered */
    return;
  }
  fill(&told, supervisor, greeting);
  if (attached != NULL) {
    if (!is_sound(attached, &newer)) {
      /* No answer is better than half a list, which would look complete. */
      close(greeting->descriptor);
      return;
    }
    add(&told, &newer);
  }
  int claim = supervisor->reconnects.count > 0 ? vgpu_claim_make() : -1;
  switch (vgpu_reconnects_pass(&supervisor->reconnects, greeting, &told, size_of(&told), claim)) {
    case VGPU_RECONNECTS_PASSED:
      if (claim < 0) close(greeting->descriptor);
      else
        vgpu_forwarded_queries_add(&supervisor->queries, &supervisor->admission, greeting->descriptor, claim);
      return;
    case VGPU_RECONNECTS_LATER:
      vgpu_refuse_return(&supervisor->admission, greeting->descriptor, VGPU_STATUS_FORMER);
      break;
    case VGPU_RECONNECTS_NONE:
      answer_guest(supervisor, greeting, &told);
      break;
  }
  if (claim >= 0) close(claim);
}
