/* Payloads of fat binary entries, as they are or compressed. */
#ifndef VGPU_HOST_SOFTWARE_UNPACK_H
#define VGPU_HOST_SOFTWARE_UNPACK_H

#include "image/container.h"

/* Fills exactly entry->unpacked bytes; false when the payload is not what its header says. */
bool vgpu_unpack(const struct vgpu_entry *entry, unsigned char *to);

#endif
