/*
 * The daemon's own list of its sessions. It lies in memory that no worker has: what the daemon signals,
 * buries and tells by name comes from here, never from the table that workers can write (accounts.h).
 */
#ifndef VGPU_HOST_SESSIONS_H
#define VGPU_HOST_SESSIONS_H

#include <sys/types.h>

#include "host/session/accounts.h"
#include "host/policy/peers.h"

/* At the index of the session's slot in the accounts. */
struct vgpu_session_entry {
  pid_t pid; /* of the worker; 0: the slot is free */
  uint64_t session;
  struct vgpu_peer peer;
  int64_t began; /* vgpu_now_ms */
  char who[96];  /* the peer, for people */
  struct vgpu_hello hello;
  uint64_t secret; /* that its guest continues it with, over a new connection; 0: it cannot */
  int line;        /* to the worker, for such connections; -1: none */
};

struct vgpu_sessions {
  uint32_t limit; /* slots that may be given out */
  uint64_t begun, ended, turned_away;
  struct vgpu_session_entry entries[VGPU_SESSIONS_MAX];
};

/* The first free slot, or -1 when there are as many sessions as may be. */
int vgpu_sessions_free_slot(const struct vgpu_sessions *sessions);

uint32_t vgpu_sessions_count(const struct vgpu_sessions *sessions);
uint32_t vgpu_sessions_of_peer(const struct vgpu_sessions *sessions, const struct vgpu_peer *peer);

/*
 * Fills at most VGPU_SESSIONS_MAX places with the sessions of a peer (NULL: of all), oldest first. Returns
 * how many. The counts are the workers' own and may be nonsense when a worker was taken over.
 */
uint32_t vgpu_sessions_list(const struct vgpu_sessions *sessions, const struct vgpu_accounts *accounts,
                            const struct vgpu_peer *peer, struct vgpu_session_facts *facts);

/* Adds what a session's worker says that it refused; as untrue as its counts may be, but plain text. */
void vgpu_sessions_add_refused(const struct vgpu_session_entry *entry, const struct vgpu_account *account,
                               struct vgpu_refused_kernels *refused);

void vgpu_sessions_add_refused_memory(const struct vgpu_session_entry *entry,
                                      const struct vgpu_account *account,
                                      struct vgpu_refused_to_peer *refused);

/* Those of a peer's sessions that are there, added to those of its sessions before. */
struct vgpu_refused_kernels vgpu_sessions_refused(const struct vgpu_sessions *sessions,
                                                  const struct vgpu_accounts *accounts,
                                                  const struct vgpu_peer_record *record);
struct vgpu_refused_to_peer vgpu_sessions_refused_memory(const struct vgpu_sessions *sessions,
                                                         const struct vgpu_accounts *accounts,
                                                         const struct vgpu_peer_record *record);

#endif
