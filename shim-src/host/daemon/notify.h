/* Tells systemd, when it asked by NOTIFY_SOCKET, how the daemon is: "READY=1", "STOPPING=1". */
#ifndef VGPU_HOST_NOTIFY_H
#define VGPU_HOST_NOTIFY_H

void vgpu_notify(const char *state);

#endif
