/* Writes the output of kernels (printf) to this program's standard output. */
#ifndef VGPU_GUEST_PRINTED_H
#define VGPU_GUEST_PRINTED_H

struct vgpu_driver;

/*
 * Fetches the output of kernels and writes it to stdout, as CUDA does when a program waits for the device.
 * Without output, according to the last answer, it costs nothing.
 */
void vgpu_printed_fetch(struct vgpu_driver *driver);

#endif
