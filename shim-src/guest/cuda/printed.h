#ifndef VGPU_GUEST_PRINTED_H
#define VGPU_GUEST_PRINTED_H

struct vgpu_driver;

/* Writes kernels' printf output to stdout, as CUDA does when a program waits. Free if there is none. */
void vgpu_printed_fetch(struct vgpu_driver *driver);

#endif
