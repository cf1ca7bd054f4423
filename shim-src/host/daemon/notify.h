/* Reports the daemon's state to systemd, if NOTIFY_SOCKET is set: "READY=1", "STOPPING=1". */
#ifndef VGPU_HOST_NOTIFY_H
#define VGPU_HOST_NOTIFY_H

void vgpu_notify(const char *state);

#endif
