#ifndef VGPU_HOST_SOFTWARE_UNPACK_H
#define VGPU_HOST_SOFTWARE_UNPACK_H

#include "image/container.h"

/*
 * Unpacks the payload of a fat binary's entry, compressed or not, to exactly entry->unpacked bytes. False:
 * the payload does not match its header.
 */
bool vgpu_unpack(const struct vgpu_entry *entry, unsigned char *to);

#endif
