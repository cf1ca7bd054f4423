#ifndef VGPU_GUEST_REFUSED_H
#define VGPU_GUEST_REFUSED_H

/* An entry point that is not implemented was called: tells VGPU_LOG which. */
void vgpu_refused(const char *symbol);

#endif
