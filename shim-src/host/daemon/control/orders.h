/* The administrator's orders, from the control socket or by a signal (manage.h explains each). */
#ifndef VGPU_HOST_ORDERS_H
#define VGPU_HOST_ORDERS_H

#include "host/daemon/supervisor.h"

/* False: the reason is in `why`. */
bool vgpu_order_reload(struct vgpu_supervisor *supervisor, char *why, unsigned long why_size);

/* The same for a signal, reported to systemd at its begin and end. */
void vgpu_order_reload_and_tell(struct vgpu_supervisor *supervisor);

void vgpu_order_drain(struct vgpu_supervisor *supervisor);

/* True: `administrator`, which is taken over, gets the outcome later. False: `why` has the reason. */
bool vgpu_order_hand_over(struct vgpu_supervisor *supervisor, int administrator, char *why,
                          unsigned long why_size);

/* Called in each turn of the loop: handles what the successor of a hand-over has reported. */
void vgpu_hand_over_follow(struct vgpu_supervisor *supervisor);

#endif
