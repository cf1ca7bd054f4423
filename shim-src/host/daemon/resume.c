#include "host/daemon/resume.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/log.h"
#include "host/policy/peers.h"
#include "host/session/line.h"

/* Returns a pidfd, or -1. */
static int process(uint32_t pid) {
  return pid == 0 ? -1 : (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
}

static int peer_of(const struct vgpu_greeting *greeting) {
  return greeting->peer.kind == VGPU_ADDRESS_UNIX ? process(greeting->pid) : -1;
}

/*
 * True if the guest runs on this kernel with the process numbers of this namespace. A guest that lies affects
 * only how long its own session waits.
 */
static bool runs_here(const struct vgpu_greeting *greeting) {
  return greeting->resume.machine != 0 && greeting->resume.machine == vgpu_machine() &&
         greeting->hello.pid_namespace != 0 && greeting->hello.pid_namespace == vgpu_pid_namespace();
}

void vgpu_resume_prepare(struct vgpu_session_entry *entry, const struct vgpu_greeting *greeting,
                         struct vgpu_session_setup *setup, struct vgpu_spawned *spawned) {
  int ends[2];
  uint64_t secret = 0;
  entry->secret = 0;
  entry->line = spawned->line = spawned->peer = -1;
  if (setup->limits.reconnect == 0 || (greeting->hello.features & VGPU_FEATURE_RESUME) == 0) return;
  bool here = runs_here(greeting);
  setup->direct = here && greeting->peer.kind == VGPU_ADDRESS_UNIX && greeting->pid == greeting->hello.pid;
  if (getrandom(&secret, sizeof secret, 0) != (ssize_t)sizeof secret || secret == 0 ||
      socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return;
  }
  entry->secret = setup->secret = secret;
  entry->line = ends[0];
  spawned->line = ends[1];
  if (here) spawned->peer = process(greeting->hello.pid);
  setup->peer_is_guest = spawned->peer >= 0;
  if (spawned->peer < 0) spawned->peer = peer_of(greeting);
}

void vgpu_resume_end(struct vgpu_session_entry *entry) {
  if (entry->line >= 0) close(entry->line);
  entry->line = -1;
  entry->secret = 0;
}

/* Compares with each session in constant time, so that the time reveals nothing about a secret. */
static struct vgpu_session_entry *find(struct vgpu_sessions *sessions, const struct vgpu_greeting *greeting) {
  struct vgpu_session_entry *found = NULL;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    struct vgpu_session_entry *entry = &sessions->entries[i];
    uint64_t difference =
        (entry->session ^ greeting->hello.join) | (entry->secret ^ greeting->hello.join_secret);
    bool can = entry->pid != 0 && entry->secret != 0 && vgpu_peer_same(&entry->peer, &greeting->peer) &&
               entry->hello.library == greeting->hello.library;
    if (difference == 0 && can) found = entry;
  }
  return found;
}

bool vgpu_resume_elsewhere(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting) {
  if (greeting->hello.join == 0 || find(&supervisor->sessions, greeting) != NULL) return false;
  switch (vgpu_reconnects_pass(&supervisor->reconnects, greeting, NULL, 0, -1)) {
    case VGPU_RECONNECTS_PASSED:
      close(greeting->descriptor);
      return true;
    case VGPU_RECONNECTS_LATER:
      vgpu_refuse_return(&supervisor->admission, greeting->descriptor, VGPU_STATUS_BUSY);
      return true;
    case VGPU_RECONNECTS_NONE:
      break;
  }
  return false;
}

void vgpu_resume_session(struct vgpu_supervisor *supervisor, const struct vgpu_greeting *greeting) {
  struct vgpu_session_entry *entry = find(&supervisor->sessions, greeting);
  if (entry == NULL) {
    vgpu_host_log_limited("refused", greeting->session,
                          "refused %s: this daemon has no session with the number and secret of its greeting",
                          greeting->who);
    vgpu_refuse_return(&supervisor->admission, greeting->descriptor, VGPU_STATUS_REFUSED);
    return;
  }
  const struct vgpu_line_message message = {.received = greeting->resume.received};
  int peer = peer_of(greeting);
  bool passed = vgpu_line_pass(entry->line, &message, greeting->descriptor, peer);
  if (peer >= 0) close(peer);
  if (passed) {
    vgpu_host_log_limited("continued", entry->session, "the guest continues over a new connection: %s",
                          greeting->who);
    close(greeting->descriptor);
  } else {
    /* The worker has not taken the earlier connections yet. */
    vgpu_refuse_return(&supervisor->admission, greeting->descriptor, VGPU_STATUS_BUSY);
  }
}
