/*
 * Memory that a virtual machine has from this host: a file here, which the VM's monitor shows to the VM as a
 * PCI device (ivshmem-plain). The rings and shared regions of a VM's sessions lie in it, each in a range of
 * its own.
 *
 * Who has which range is kept by the kernel, as locks of the file (F_OFD_SETLK): several workers need no
 * table that one of them could spoil, and what a worker held is free when it is dead. A range is empty when
 * it is taken, so nothing of a session before is left in it.
 */
#ifndef VGPU_HOST_VM_MEMORY_H
#define VGPU_HOST_VM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#define VGPU_VM_MEMORY_STEP 65536u      /* ranges begin and end at multiples: a page on every machine */
#define VGPU_VM_MEMORY_LEAST (8u << 20) /* bytes that are of use: the rings of one session, and some more */

struct vgpu_vm_memory {
  uint64_t bytes; /* of the file, when the session began; 0: there is none */
  int holder;     /* the file, opened by the daemon for this worker: its locks are the worker's */
  int looker;     /* the file, opened again: sees the holder's locks as another's */
};

/* A free range for so many bytes, zeroed, with its pages taken; false: there is none, or no memory for it. */
bool vgpu_vm_memory_take(const struct vgpu_vm_memory *memory, uint64_t bytes, uint64_t *offset);

/* The range is empty and free again. */
void vgpu_vm_memory_give(const struct vgpu_vm_memory *memory, uint64_t offset, uint64_t bytes);

#endif
