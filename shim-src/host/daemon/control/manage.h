/*
 * The control socket: the administrator asks and orders. One connection, one line, one answer; the connection
 * ends with it. Only root and the daemon's own user are heard.
 *
 *   status | status json | sessions | metrics   what there is (report.h)
 *   end NUMBER                                  ends one session
 *   reload                                      reads hostd.conf again; sessions go on as they began
 *   drain                                       takes no new session; the daemon ends with its last one
 *   hand-over                                   starts the program that is now at the daemon's path, which
 *                                               takes the addresses; answers when it serves; this one drains
 *
 * An answer that begins with "error: " is one; any other is "ok" or what was asked for.
 */
#ifndef VGPU_HOST_MANAGE_H
#define VGPU_HOST_MANAGE_H

#include <stdbool.h>

#define VGPU_CONTROL_PATH "/run/vgpu-hostd/control.sock"

struct vgpu_supervisor;

/*
 * Returns a listening socket at the path that `option` names, or -1 after reporting the error. `mode`: who
 * may connect.
 */
int vgpu_manage_open(const char *option, const char *path, unsigned mode);

/* Sends one answer and closes the connection. */
void vgpu_manage_answer(int connection, const char *answer, unsigned long size);

/* Serves the connections that are waiting, each at once or not at all. */
void vgpu_manage_serve(int listener, struct vgpu_supervisor *supervisor);

/* The client: `vgpu-hostd status` and similar. Returns the exit status. */
int vgpu_manage_ask(const char *path, const char *order, bool watch);

#endif
