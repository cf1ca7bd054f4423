/*
 * The guest's settings. The hosts' addresses come from VGPU_HOST, else from `host=` of /etc/vgpu/guest.conf.
 */
#ifndef VGPU_GUEST_CONFIG_H
#define VGPU_GUEST_CONFIG_H

#include <stdbool.h>

#include "wire/address.h"

/*
 * Gives the addresses in the order in which to try them. In a list of guest.conf the host that the vgpu-agent
 * service has chosen comes first. False: no host is configured, or the list is too long.
 */
bool vgpu_config_hosts(struct vgpu_hosts *hosts);

/*
 * False if VGPU_TRANSPORT=socket is set: frames then use the socket even where rings are possible. Tests set
 * it, and it helps to locate a fault.
 */
bool vgpu_config_ring(void);

#endif
