#ifndef VGPU_HOST_SOFTWARE_UNPACK_H
#define VGPU_HOST_SOFTWARE_UNPACK_H

#include "image/container.h"

/* Exactly entry->unpacked bytes. False: the payload does not match its header. */
bool vgpu_unpack(const struct vgpu_entry *entry, unsigned char *to);

#endif
