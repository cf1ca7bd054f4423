/* Where the host is: VGPU_HOST, else `host=` of /etc/vgpu/guest.conf. */
#ifndef VGPU_GUEST_CONFIG_H
#define VGPU_GUEST_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

/* Copies the address text, zero-terminated; false when nothing is configured or it does not fit. */
bool vgpu_config_host(char *text, size_t size);

/*
 * False when VGPU_TRANSPORT=socket asks for frames over the socket where a ring could be had (tests, and
 * to tell where a fault lies).
 */
bool vgpu_config_ring(void);

#endif
