/*
 * A worker writes to a socket of its own; only the daemon writes the log, with the session's number and
 * within the peer's budget. A worker that a guest has taken over can write nonsense only about its own
 * session.
 */
#ifndef VGPU_HOST_WORKER_LOGS_H
#define VGPU_HOST_WORKER_LOGS_H

#include "host/daemon/sessions.h"

struct vgpu_worker_logs {
  int poll;                       /* epoll of all sockets; -1: there are no workers */
  int sockets[VGPU_SESSIONS_MAX]; /* by slot; -1: none */
};

bool vgpu_worker_logs_begin(struct vgpu_worker_logs *logs);

/*
 * Makes the socket of a new session. Returns the worker's end, which the caller passes on and closes; -1:
 * errno has the reason.
 */
int vgpu_worker_logs_join(struct vgpu_worker_logs *logs, uint32_t slot);

/* Writes the messages that have arrived to the log. Never waits. */
void vgpu_worker_logs_serve(struct vgpu_worker_logs *logs, struct vgpu_sessions *sessions);

void vgpu_worker_logs_leave(struct vgpu_worker_logs *logs, uint32_t slot, struct vgpu_session_entry *entry);

/*
 * Reports the number of each peer's omitted lines when its rate allows. Returns the milliseconds until then;
 * -1: none.
 */
int vgpu_worker_logs_left_out(struct vgpu_peers *peers);

#endif
