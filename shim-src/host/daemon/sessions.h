/*
 * The daemon's own list of its sessions, in memory that workers cannot access. All process numbers and names
 * that the daemon uses come from this list, never from the table that workers can write (accounts.h).
 */
#ifndef VGPU_HOST_SESSIONS_H
#define VGPU_HOST_SESSIONS_H

#include <sys/types.h>

#include "host/session/accounts.h"
#include "host/policy/peers.h"

/* An entry. Its index is that of the session's slot in the accounts. */
struct vgpu_session_entry {
  pid_t pid;   /* of the worker; 0: there is none */
  bool begins; /* the session has this slot, and its worker is to be started */
  uint64_t session;
  struct vgpu_peer peer;
  struct vgpu_peer_record *record; /* of the peer */
  int64_t began;                   /* as vgpu_now_ms */
  char who[96];                    /* describes the peer in messages */
  struct vgpu_hello hello;
  uint64_t secret; /* the guest needs it to continue over a new connection; 0: not possible */
  int line;        /* to the worker, for new connections; -1: none */
};

struct vgpu_sessions {
  uint32_t limit;  /* slots that may be assigned */
  uint32_t begins; /* count of them */
  uint64_t begun, ended, turned_away;
  struct vgpu_session_entry entries[VGPU_SESSIONS_MAX];
};

/* Returns the first free slot; -1: the limit of sessions is reached. */
int vgpu_sessions_free_slot(const struct vgpu_sessions *sessions);

/* Counts sessions that have a worker, and those that begin. */
uint32_t vgpu_sessions_count(const struct vgpu_sessions *sessions);
uint32_t vgpu_sessions_of_peer(const struct vgpu_sessions *sessions, const struct vgpu_peer *peer);

/*
 * Fills at most VGPU_SESSIONS_MAX places of `facts` with the sessions of a peer (NULL: of all peers), oldest
 * first, and returns how many. The counts are those that workers report; a worker that a guest has taken over
 * may report wrong ones.
 */
uint32_t vgpu_sessions_list(const struct vgpu_sessions *sessions, const struct vgpu_accounts *accounts,
                            const struct vgpu_peer *peer, struct vgpu_session_facts *facts);

/*
 * Add the refusals that a session's worker reports. They may be wrong, like its counts, but they are plain
 * text.
 */
void vgpu_sessions_add_refused(const struct vgpu_session_entry *entry, const struct vgpu_account *account,
                               struct vgpu_refused_kernels *refused);

void vgpu_sessions_add_refused_memory(const struct vgpu_session_entry *entry,
                                      const struct vgpu_account *account,
                                      struct vgpu_refused_to_peer *refused);

/* Returns the refusals of a peer, in its current and earlier sessions. */
struct vgpu_refused_kernels vgpu_sessions_refused(const struct vgpu_sessions *sessions,
                                                  const struct vgpu_accounts *accounts,
                                                  const struct vgpu_peer_record *record);
struct vgpu_refused_to_peer vgpu_sessions_refused_memory(const struct vgpu_sessions *sessions,
                                                         const struct vgpu_accounts *accounts,
                                                         const struct vgpu_peer_record *record);

#endif
