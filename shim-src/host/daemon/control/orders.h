#ifndef VGPU_HOST_ORDERS_H
#define VGPU_HOST_ORDERS_H

#include "host/daemon/supervisor.h"

/* False: `why` has the reason. */
bool vgpu_order_reload(struct vgpu_supervisor *supervisor, char *why, unsigned long why_size);

/* Tells systemd when the reload begins and ends. */
void vgpu_order_reload_and_tell(struct vgpu_supervisor *supervisor);

void vgpu_order_drain(struct vgpu_supervisor *supervisor);

/* True: `administrator` is taken over and gets the outcome later. False: `why` has the reason. */
bool vgpu_order_hand_over(struct vgpu_supervisor *supervisor, int administrator, char *why,
                          unsigned long why_size);

void vgpu_hand_over_follow(struct vgpu_supervisor *supervisor);

#endif
