/* The configured addresses of hosts: VGPU_HOST, else `host=` of /etc/vgpu/guest.conf. */
#ifndef VGPU_GUEST_CONFIG_H
#define VGPU_GUEST_CONFIG_H

#include <stdbool.h>

#include "wire/address.h"

/*
 * Reads the addresses in the order in which they are to be tried. In a list of guest.conf the host in use,
 * which the service vgpu-agent names, comes first. False: no host is configured, or the list is too long.
 */
bool vgpu_config_hosts(struct vgpu_hosts *hosts);

/*
 * False when VGPU_TRANSPORT=socket is set: frames then go over the socket even where rings are possible.
 * Tests use it, and it helps to locate a fault.
 */
bool vgpu_config_ring(void);

#endif
