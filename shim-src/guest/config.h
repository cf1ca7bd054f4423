/* The configured address of the host: VGPU_HOST, else `host=` of /etc/vgpu/guest.conf. */
#ifndef VGPU_GUEST_CONFIG_H
#define VGPU_GUEST_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Copies the address as text with its terminating zero. False: no host is configured, or the text does not
 * fit.
 */
bool vgpu_config_host(char *text, size_t size);

/*
 * False when VGPU_TRANSPORT=socket is set: frames then go over the socket even where rings are possible.
 * Tests use it, and it helps to locate a fault.
 */
bool vgpu_config_ring(void);

#endif
