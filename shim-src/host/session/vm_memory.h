/*
 * Memory that a virtual machine has from this host: a file here, which the VM's monitor shows to the VM as a
 * PCI device (ivshmem-plain). The rings and shared regions of a VM's sessions lie in it, each in a place of
 * its own.
 *
 * Which places workers use is kept by the kernel, as locks of the file (F_OFD_SETLK): several workers need no
 * table that one of them could spoil, and what a worker held is free when it is dead. Which of them processes
 * of the VM use is known to the VM's own kernel: a guest asks only for places that it has locked there. A
 * place is empty when it is taken, so nothing of a session before is left in it.
 */
#ifndef VGPU_HOST_VM_MEMORY_H
#define VGPU_HOST_VM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frame.h"

#define VGPU_VM_MEMORY_LEAST (8u << 20) /* bytes that are of use: the rings of one session, and some more */

struct vgpu_vm_memory {
  uint64_t bytes; /* of the file, when the session began; 0: there is none */
  int holder;     /* the file, opened by the daemon for this worker: its locks are the worker's */
  int looker;     /* the file, opened again: sees the holder's locks as another's */
};

/* Writes a mark for the session with this slot; false: there is no such memory, or it is full. */
bool vgpu_vm_memory_mark(const struct vgpu_vm_memory *memory, uint32_t slot, struct vgpu_vm_mark *mark);

/*
 * Takes the place that the guest names, zeroed, with its pages taken. False: with *next 0 it cannot be had
 * (it is none, or there are no pages for it), else another session has it up to *next.
 */
bool vgpu_vm_memory_take(const struct vgpu_vm_memory *memory, const struct vgpu_vm_place *place,
                         uint64_t *next);

/* The place is empty and free again. */
void vgpu_vm_memory_give(const struct vgpu_vm_memory *memory, const struct vgpu_vm_place *place);

#endif
