/*
 * Reports the daemon's state to systemd: "READY=1", "STOPPING=1" and others. Does nothing without
 * NOTIFY_SOCKET.
 */
#ifndef VGPU_HOST_NOTIFY_H
#define VGPU_HOST_NOTIFY_H

void vgpu_notify(const char *state);

#endif
