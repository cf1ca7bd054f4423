#ifndef VGPU_HOST_ORDERS_H
#define VGPU_HOST_ORDERS_H

#include "host/daemon/supervisor.h"

/*
 * These are the administrator's orders, from the control socket or by a signal (manage.h). False: `why` has
 * the reason.
 */
bool vgpu_order_reload(struct vgpu_supervisor *supervisor, char *why, unsigned long why_size);

/* Reloads because of a signal, and notifies systemd when the reload begins and ends. */
void vgpu_order_reload_and_tell(struct vgpu_supervisor *supervisor);

void vgpu_order_drain(struct vgpu_supervisor *supervisor);

/*
 * True: takes over `administrator`, the connection that gets the outcome later. False: `why` has the reason.
 */
bool vgpu_order_hand_over(struct vgpu_supervisor *supervisor, int administrator, char *why,
                          unsigned long why_size);

/* Called in each turn of the daemon's loop: handles the report of the successor of a hand-over. */
void vgpu_hand_over_follow(struct vgpu_supervisor *supervisor);

#endif
