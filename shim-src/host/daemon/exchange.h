/* Keeps the memory that workers share (session/exchange.h) until they withdraw it or end. */
#ifndef VGPU_HOST_DAEMON_EXCHANGE_H
#define VGPU_HOST_DAEMON_EXCHANGE_H

#include "host/session/accounts.h"
#include "host/session/exchange.h"

/* Limits, because each entry holds a descriptor, and a process usually may have about a thousand. */
#define VGPU_EXCHANGE_MOST 256u
#define VGPU_EXCHANGE_SESSION 64u

struct vgpu_exchange_entry {
  int descriptor; /* -1: a free place */
  uint32_t slot;
  uint32_t kind;
  uint64_t session, bytes;
  struct vgpu_peer peer;
  struct vgpu_token token;
};

struct vgpu_exchange {
  int poll;                       /* epoll of all sockets; -1: there is no sharing */
  int sockets[VGPU_SESSIONS_MAX]; /* by slot; -1: none */
  uint64_t sessions[VGPU_SESSIONS_MAX];
  struct vgpu_peer peers[VGPU_SESSIONS_MAX];
  struct vgpu_exchange_entry entries[VGPU_EXCHANGE_MOST];
};

void vgpu_exchange_begin(struct vgpu_exchange *exchange);

/*
 * Makes the socket of a new session. Returns the worker's end, which the caller passes on and closes; -1: the
 * session cannot share memory.
 */
int vgpu_exchange_join(struct vgpu_exchange *exchange, uint32_t slot, uint64_t session,
                       const struct vgpu_peer *peer);
/* Ends a session. Its shared memory can no longer be opened; sessions that have opened it keep it. */
void vgpu_exchange_leave(struct vgpu_exchange *exchange, uint32_t slot);

/* Answers the requests of workers. Never waits. */
void vgpu_exchange_serve(struct vgpu_exchange *exchange);

#endif
