#include "host/daemon/guests.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "host/daemon/resume.h"
#include "host/daemon/tell_sessions.h"
#include "host/daemon/vm_memory_file.h"
#include "host/log.h"
#include "wire/clock.h"

#define ACCEPTS_A_TURN 256 /* of one listener; then ended workers and signals are handled */
#define START_MS 2000 /* after this time a worker that has not answered its guest no longer delays others */

/* The daemon's limits, except where hostd.conf sets the peer's own. */
static struct vgpu_limits limits_of(const struct vgpu_limits *all, const struct vgpu_peer_limits *peer) {
  struct vgpu_limits limits = *all;
  if (peer->outstanding != 0) limits.outstanding = peer->outstanding;
  if (peer->calls != 0) limits.calls = peer->calls;
  limits.peer_memory = peer->memory;
  limits.reconnect = peer->reconnect;
  limits.share = peer->share;
  limits.all_processes = peer->all_processes;
  return limits;
}

static struct vgpu_vm_memory vm_memory_of(const struct vgpu_greeting *greeting) {
  const struct vgpu_peer_limits *limits = &greeting->limits;
  bool offered = (greeting->hello.features & VGPU_FEATURE_VM_MEMORY) != 0;
  char error[160];
  struct vgpu_vm_memory memory = vgpu_vm_memory_open(offered ? limits->vm_memory : "", error, sizeof error);
  if (*error != '\0')
    vgpu_host_log_limited(
        "vm-memory", greeting->session,
        "%s gets no shared memory: vm-memory=%s of line %u: %s; the socket carries the frames", greeting->who,
        limits->vm_memory, limits->line, error);
  return memory;
}

static void close_all(const struct vgpu_spawned *spawned) {
  const int descriptors[] = {spawned->log, spawned->exchange, spawned->line, spawned->peer, spawned->group};
  for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++) {
    if (descriptors[i] >= 0) close(descriptors[i]);
  }
}

/*
 * Gives the greeting the slot of a session, whose worker vgpu_guests_begin() starts. Takes the connection
 * over.
 */
static void admit(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting) {
  const struct vgpu_session_counts counts = {
      .limit = supervisor->sessions.limit,
      .all = vgpu_sessions_count(&supervisor->sessions),
      .of_peer = vgpu_sessions_of_peer(&supervisor->sessions, &greeting->peer)};
  int32_t status = vgpu_admit_session(&supervisor->admission, &counts, greeting->who, greeting->session,
                                      &greeting->limits);
  if (status != VGPU_STATUS_OK) {
    supervisor->sessions.turned_away++;
    vgpu_refuse(&supervisor->admission, &greeting->peer, greeting->descriptor, status, NULL);
    return;
  }
  const int slot = vgpu_sessions_free_slot(&supervisor->sessions);
  supervisor->sessions.entries[slot] = (struct vgpu_session_entry){
      .begins = true, .session = greeting->session, .peer = greeting->peer, .hello = greeting->hello};
  supervisor->sessions.begins++;
  supervisor->begins[slot] = *greeting;
}

static void begin_session(struct vgpu_supervisor *supervisor, uint32_t slot) {
  const struct vgpu_greeting *greeting = &supervisor->begins[slot];
  const uint64_t session = greeting->session;
  struct vgpu_session_entry *entry = &supervisor->sessions.entries[slot];
  entry->begins = false;
  supervisor->sessions.begins--;
  entry->began = vgpu_now_ms();
  memcpy(entry->who, greeting->who, sizeof entry->who);
  struct vgpu_account_owner owner = {.guest_pid = greeting->hello.pid,
                                     .peer_pid = greeting->pid,
                                     .session = session,
                                     .peer = greeting->peer,
                                     .peer_memory = greeting->limits.memory,
                                     .devices = greeting->limits.devices};
  vgpu_accounts_begin(supervisor->accounts, slot, &owner);
  struct vgpu_peers *peers = &supervisor->admission.peers;
  entry->record = vgpu_peers_find(peers, &greeting->peer);
  const uint32_t peer = (uint32_t)(entry->record - peers->records);
  if (entry->record->is_new) vgpu_share_new_peer(supervisor->accounts, peer);
  entry->record->is_new = false;
  vgpu_share_begin(supervisor->accounts, slot, peer, greeting->limits.weight, greeting->limits.share);
  struct vgpu_session_setup setup = {.daemon = getpid(),
                                     .slot = slot,
                                     .session = session,
                                     .peer = greeting->peer,
                                     .devices = greeting->limits.devices,
                                     .limits = limits_of(&supervisor->limits, &greeting->limits),
                                     .hello = greeting->hello};
  struct vgpu_vm_memory memory = vm_memory_of(greeting);
  struct vgpu_spawned spawned = {.connection = greeting->descriptor, .vm_memory = &memory};
  setup.vm_memory = memory.bytes;
  spawned.log = vgpu_worker_logs_join(&supervisor->worker_logs, slot);
  spawned.exchange = vgpu_exchange_join(&supervisor->exchange, slot, session, &greeting->peer);
  vgpu_resume_prepare(entry, greeting, &setup, &spawned);
  const bool grouped = supervisor->worker_groups.directory >= 0;
  spawned.group =
      grouped ? vgpu_worker_groups_join(&supervisor->worker_groups, slot, greeting->limits.memory) : -1;
  pid_t pid = grouped && spawned.group < 0 ? -1 : vgpu_spawn(&supervisor->spawner, &setup, &spawned);
  close_all(&spawned);
  vgpu_vm_memory_close(&memory);
  if (pid < 0) {
    vgpu_resume_end(entry);
    vgpu_host_log_limited("error", session, "refused %s: no worker: %s", greeting->who, strerror(errno));
    supervisor->sessions.turned_away++;
    vgpu_refuse(&supervisor->admission, &greeting->peer, greeting->descriptor, VGPU_STATUS_BUSY, NULL);
    return;
  }
  close(greeting->descriptor);
  entry->pid = pid;
  entry->record->sessions++;
  supervisor->sessions.begun++;
  __atomic_store_n(&supervisor->accounts->owners[slot].pid, (int32_t)pid, __ATOMIC_RELEASE);
  vgpu_host_log("connected", session, "%s, worker %ld", greeting->who, (long)pid);
}

static uint32_t starting(const struct vgpu_supervisor *supervisor, const struct vgpu_peer *peer) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    const struct vgpu_session_entry *entry = &supervisor->sessions.entries[i];
    const uint32_t *carrier = &supervisor->accounts->slots[i].carrier;
    if (entry->pid != 0 && vgpu_peer_same(&entry->peer, peer) &&
        __atomic_load_n(carrier, __ATOMIC_RELAXED) == 0 && vgpu_now_ms() - entry->began < START_MS)
      count++;
  }
  return count;
}

/*
 * Returns the slot of the oldest session that may begin; -1: none. `most` limits a peer's workers that start
 * at the same time.
 */
static int next_to_begin(const struct vgpu_supervisor *supervisor, uint32_t most) {
  const struct vgpu_session_entry *entries = supervisor->sessions.entries;
  int next = -1;
  for (int i = 0; i < (int)VGPU_SESSIONS_MAX; i++) {
    if (entries[i].begins && (next < 0 || entries[i].session < entries[next].session) &&
        starting(supervisor, &entries[i].peer) < most)
      next = i;
  }
  return next;
}

void vgpu_guests_begin(struct vgpu_supervisor *supervisor) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const uint32_t most = processors >= 4 ? (uint32_t)processors / 2 : 1;
  int slot;
  while (supervisor->sessions.begins > 0 && (slot = next_to_begin(supervisor, most)) >= 0)
    begin_session(supervisor, (uint32_t)slot);
}

void vgpu_guests_abandon(struct vgpu_supervisor *supervisor) {
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    struct vgpu_session_entry *entry = &supervisor->sessions.entries[i];
    if (!entry->begins) continue;
    close(supervisor->begins[i].descriptor);
    entry->begins = false;
  }
  supervisor->sessions.begins = 0;
}

static void refuse_greeting(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting,
                            int32_t status) {
  const struct vgpu_hello *hello = &greeting->hello;
  struct vgpu_welcome welcome;
  vgpu_welcome_fill(&welcome, supervisor->backend, supervisor->inventory);
  welcome.device_count = greeting->limits.devices.count;
  bool version = status == VGPU_STATUS_VERSION;
  if (version) {
    vgpu_host_log_limited(
        "refused", greeting->session,
        "refused %s: it speaks wire version %u.%u, this host %u.%u: the %s is older, upgrade it",
        greeting->who, hello->major, hello->minor, VGPU_WIRE_MAJOR, VGPU_WIRE_MINOR,
        hello->major < VGPU_WIRE_MAJOR ? "guest" : "host");
  } else {
    vgpu_host_log_limited("refused", greeting->session,
                          "refused %s: it requests a feature that this host does not have", greeting->who);
  }
  supervisor->sessions.turned_away++;
  vgpu_refuse(&supervisor->admission, &greeting->peer, greeting->descriptor, status,
              version ? &welcome : NULL);
}

static bool read_greeting(struct vgpu_supervisor *supervisor, struct vgpu_greeting *place) {
  enum vgpu_greeting_result result = vgpu_greetings_read(place);
  if (result == VGPU_GREETING_PART) return false;
  struct vgpu_greeting greeting = *place;
  vgpu_greetings_remove(&supervisor->greetings, place);
  int32_t status = result == VGPU_GREETING_WHOLE ? vgpu_greeting_status(&greeting.hello) : 0;
  if (result == VGPU_GREETING_WHOLE) greeting.resume = vgpu_greeting_resume(greeting.bytes);
  if (result == VGPU_GREETING_UNSOUND) {
    close(greeting.descriptor);
  } else if (vgpu_resume_elsewhere(supervisor, &greeting)) {
    /* Before the version check: a predecessor may have another version. */
  } else if (status != VGPU_STATUS_OK) {
    refuse_greeting(supervisor, &greeting, status);
  } else if (greeting.hello.library == VGPU_LIBRARY_SESSIONS) {
    vgpu_tell_sessions(supervisor, &greeting, NULL);
  } else if (greeting.hello.join != 0) {
    vgpu_resume_session(supervisor, &greeting);
  } else {
    admit(supervisor, &greeting);
  }
  return true;
}

void vgpu_guests_read(struct vgpu_supervisor *supervisor) {
  struct vgpu_greetings *greetings = &supervisor->greetings;
  for (uint32_t i = 0; i < greetings->count;) {
    if (!read_greeting(supervisor, &greetings->array[i])) i++;
  }
}

static void serve_returned(struct vgpu_supervisor *supervisor, struct vgpu_greeting *greeting,
                           const struct vgpu_reconnects_attached *attached) {
  struct vgpu_identity identity;
  vgpu_peer_of(greeting->descriptor, &identity, greeting->who, sizeof greeting->who);
  greeting->peer = identity.peer;
  greeting->pid = identity.pid;
  size_t wanted;
  bool whole =
      vgpu_greeting_read(greeting->bytes, greeting->filled, &wanted, &greeting->hello) == VGPU_GREETING_WHOLE;
  if (whole && greeting->hello.library == VGPU_LIBRARY_SESSIONS) {
    vgpu_tell_sessions(supervisor, greeting, attached);
    return;
  }
  if (attached->claim >= 0) close(attached->claim);
  if (!whole) {
    close(greeting->descriptor);
    return;
  }
  if (vgpu_resume_elsewhere(supervisor, greeting)) return;
  if (vgpu_greeting_status(&greeting->hello) != VGPU_STATUS_OK) {
    vgpu_refuse_return(&supervisor->admission, greeting->descriptor, VGPU_STATUS_REFUSED);
    return;
  }
  greeting->resume = vgpu_greeting_resume(greeting->bytes);
  vgpu_resume_session(supervisor, greeting);
}

void vgpu_guests_return(struct vgpu_supervisor *supervisor) {
  for (int i = 0; i < ACCEPTS_A_TURN; i++) {
    static struct vgpu_reconnects_attached attached;
    struct vgpu_greeting greeting = {.session = supervisor->next_session};
    switch (vgpu_reconnects_receive(&supervisor->reconnects, &greeting, &attached)) {
      case VGPU_RECONNECTS_NOTHING:
        return;
      case VGPU_RECONNECTS_FOREIGN:
        vgpu_host_log_limited("refused", 0,
                              "refused a connection that a vgpu-hostd of another version has passed on");
        vgpu_refuse_return(&supervisor->admission, greeting.descriptor, VGPU_STATUS_FORMER);
        break;
      case VGPU_RECONNECTS_CAME:
        supervisor->next_session++;
        serve_returned(supervisor, &greeting, &attached);
        break;
    }
  }
}

static void greet(struct vgpu_supervisor *supervisor, int connection) {
  struct vgpu_greeting greeting = {.descriptor = connection, .session = supervisor->next_session++};
  struct vgpu_identity identity;
  vgpu_peer_of(connection, &identity, greeting.who, sizeof greeting.who);
  greeting.peer = identity.peer;
  greeting.pid = identity.pid;
  int32_t status =
      vgpu_admit(&supervisor->admission, &identity, greeting.who, greeting.session, &greeting.limits);
  if (status != VGPU_STATUS_OK) {
    supervisor->sessions.turned_away++;
    vgpu_refuse(&supervisor->admission, &greeting.peer, connection, status, NULL);
    return;
  }
  /* Most peers have sent their greeting by now. */
  read_greeting(supervisor, vgpu_greetings_add(&supervisor->greetings, &greeting));
}

void vgpu_guests_accept(struct vgpu_supervisor *supervisor, int listener) {
  for (int i = 0; i < ACCEPTS_A_TURN; i++) {
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      greet(supervisor, connection);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      vgpu_host_log_limited("error", 0, "accept: %s", strerror(errno));
      struct timespec nap = {.tv_nsec = 50000000}; /* out of descriptors: do not spin */
      nanosleep(&nap, NULL);
    }
    return;
  }
}
