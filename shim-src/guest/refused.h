#ifndef VGPU_GUEST_REFUSED_H
#define VGPU_GUEST_REFUSED_H

void vgpu_refused(const char *symbol);

#endif
