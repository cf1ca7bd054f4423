/*
 * Copies to and from memory of a PCI device: a VM sees the memory that it shares with its host as one.
 *
 * memcpy is too slow here. For some sizes the C library uses `rep movsb` where the processor reports that it
 * is fast. That is true for ordinary memory only: uncached memory is then moved byte by byte, and so is all
 * memory under an emulated processor. Measured: 0.57 GB/s for 128 KiB, against 3.4 GB/s for 1 MiB, where the
 * C library uses vector instructions.
 */
#ifndef VGPU_WIRE_DEVICE_COPY_H
#define VGPU_WIRE_DEVICE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VGPU_DEVICE_BLOCK 64u

typedef uint64_t vgpu_device_part __attribute__((vector_size(16), aligned(1), may_alias));

/* `device` is `to` or `from`: the pointer whose blocks are to be aligned. */
static inline void vgpu_device_copy(void *to, const void *from, size_t bytes, const void *device) {
  unsigned char *target = to;
  const unsigned char *source = from;
  size_t head = -(uintptr_t)device % VGPU_DEVICE_BLOCK;
  if (head > bytes) head = bytes;
  if (head > 0) memcpy(target, source, head);
  size_t done = head;
  for (; bytes - done >= VGPU_DEVICE_BLOCK; done += VGPU_DEVICE_BLOCK) {
    const vgpu_device_part *read = (const vgpu_device_part *)(source + done);
    vgpu_device_part *write = (vgpu_device_part *)(target + done);
    vgpu_device_part first = read[0], second = read[1], third = read[2], fourth = read[3];
    write[0] = first;
    write[1] = second;
    write[2] = third;
    write[3] = fourth;
    __asm__ volatile("" : : : "memory"); /* or the compiler makes a memcpy of the loop */
  }
  if (done < bytes) memcpy(target + done, source + done, bytes - done);
}

#endif
