/* Writes the output of kernels (printf) to this program's standard output. */
#ifndef VGPU_GUEST_PRINTED_H
#define VGPU_GUEST_PRINTED_H

struct vgpu_driver;

/*
 * Fetches the text that kernels have printed so far and writes it to stdout, as CUDA does when a program
 * waits for the device. It costs nothing if the last answer said that there is no text.
 */
void vgpu_printed_fetch(struct vgpu_driver *driver);

#endif
