/*
 * The control socket of the administrator: one line, one answer a connection. Only root and the daemon's own
 * user may ask.
 *
 *   status | status json | sessions | metrics   report.h
 *   end NUMBER     ends one session
 *   reload         reads hostd.conf again; running sessions do not change
 *   drain          takes no new session; the daemon ends with its last one
 *   hand-over      starts the program that is now at the daemon's path, which takes the addresses;
 *                  answers when it serves; this daemon then drains
 *
 * An error begins with "error: "; any other answer is "ok" or the report.
 */
#ifndef VGPU_HOST_MANAGE_H
#define VGPU_HOST_MANAGE_H

#include <stdbool.h>

#define VGPU_CONTROL_PATH "/run/vgpu-hostd/control.sock"

struct vgpu_supervisor;

/*
 * Returns a listening socket at `path`, or -1 after reporting the error with `option` as the name of the
 * path. `mode`: who may connect.
 */
int vgpu_manage_open(const char *option, const char *path, unsigned mode);

/* Sends one answer of `size` bytes and closes the connection. */
void vgpu_manage_answer(int connection, const char *answer, unsigned long size);

/* Serves the connections that are waiting, each at once or not at all. */
void vgpu_manage_serve(int listener, struct vgpu_supervisor *supervisor);

/*
 * The client: `vgpu-hostd status` and similar. `watch` repeats the order every second. Returns the exit
 * status.
 */
int vgpu_manage_ask(const char *path, const char *order, bool watch);

#endif
