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

/* A listening socket at the path that `option` names, or -1 after saying why. `mode`: who may connect. */
int vgpu_manage_open(const char *option, const char *path, unsigned mode);

/* One answer, and the end of the connection. */
void vgpu_manage_answer(int connection, const char *answer, unsigned long size);

/* Serves who has connected: at once, or not at all. */
void vgpu_manage_serve(int listener, struct vgpu_supervisor *supervisor);

/* The other end: `vgpu-hostd status` and so on. The exit status. */
int vgpu_manage_ask(const char *path, const char *order, bool watch);

#endif
