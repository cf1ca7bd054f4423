/* The configured addresses of hosts: VGPU_HOST, else `host=` of /etc/vgpu/guest.conf. */
#ifndef VGPU_GUEST_CONFIG_H
#define VGPU_GUEST_CONFIG_H

#include <stdbool.h>

#include "wire/address.h"

/*
 * Reads the addresses in the order to try; the host that the service uses comes first. False: none, or too
 * many.
 */
bool vgpu_config_hosts(struct vgpu_hosts *hosts);

/* False if VGPU_TRANSPORT=socket is set, which tests use and which helps to locate a fault. */
bool vgpu_config_ring(void);

#endif
