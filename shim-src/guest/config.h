/* VGPU_HOST, else `host=` of /etc/vgpu/guest.conf. */
#ifndef VGPU_GUEST_CONFIG_H
#define VGPU_GUEST_CONFIG_H

#include <stdbool.h>

#include "wire/address.h"

/* In the order to try, the service's host first. False: none, or too many. */
bool vgpu_config_hosts(struct vgpu_hosts *hosts);

/* False if VGPU_TRANSPORT=socket is set, which tests use and which helps to locate a fault. */
bool vgpu_config_ring(void);

#endif
