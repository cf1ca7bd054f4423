/* The administrator's orders, by the control socket or by a signal (manage.h explains each). */
#ifndef VGPU_HOST_ORDERS_H
#define VGPU_HOST_ORDERS_H

#include "host/daemon/supervisor.h"

/* False: `why`, a line, says why not. */
bool vgpu_order_reload(struct vgpu_supervisor *supervisor, char *why, unsigned long why_size);

/* The same by a signal: systemd is told when it begins and ends. */
void vgpu_order_reload_and_tell(struct vgpu_supervisor *supervisor);

void vgpu_order_drain(struct vgpu_supervisor *supervisor);

/* True: `administrator`, which is taken over, hears the outcome later. False: `why` says why not. */
bool vgpu_order_hand_over(struct vgpu_supervisor *supervisor, int administrator, char *why,
                          unsigned long why_size);

/* In each turn of the loop: what the successor of a hand-over has said. */
void vgpu_hand_over_follow(struct vgpu_supervisor *supervisor);

#endif
