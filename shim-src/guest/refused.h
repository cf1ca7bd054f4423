#ifndef VGPU_GUEST_REFUSED_H
#define VGPU_GUEST_REFUSED_H

/* Logs that a program called an entry point that is not implemented. */
void vgpu_refused(const char *symbol);

#endif
