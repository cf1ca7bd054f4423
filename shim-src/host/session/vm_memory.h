/*
 * Memory that this host shares with a virtual machine: a file, which the VM's monitor shows to the VM as a
 * PCI device (ivshmem-plain). The rings and shared regions of the VM's sessions are in it, each in a place of
 * its own.
 *
 * The kernel knows which places the workers use, by locks of the file (F_OFD_SETLK). Workers therefore need
 * no table that one of them could damage, and the places of a worker are free when it has ended. The VM's own
 * kernel knows which places processes of the VM use: a guest proposes only places that it has locked there. A
 * place is cleared when it is taken, so that no data of an earlier session is left in it.
 */
#ifndef VGPU_HOST_VM_MEMORY_H
#define VGPU_HOST_VM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frame.h"

#define VGPU_VM_MEMORY_LEAST (8u << 20) /* bytes: rings of one session and some regions */

struct vgpu_vm_memory {
  uint64_t bytes; /* of the file, when the session began; 0: there is none */
  int holder;     /* the file, opened by the daemon for this worker: its locks are the worker's */
  int lock_probe; /* the file, opened again: the holder's locks count as foreign to it */
};

/* Writes a mark for the session of this slot. False: there is no such memory, or it is full. */
bool vgpu_vm_memory_mark(const struct vgpu_vm_memory *memory, uint32_t slot, struct vgpu_vm_mark *mark);

/*
 * Takes the place that the guest proposes, fills it with zeros and allocates its pages. False with *next:
 * another session has it up to *next. False with *next 0: it is no valid place, or there are no pages for it.
 */
bool vgpu_vm_memory_take(const struct vgpu_vm_memory *memory, const struct vgpu_vm_place *place,
                         uint64_t *next);

/* Clears the place and releases it. */
void vgpu_vm_memory_give(const struct vgpu_vm_memory *memory, const struct vgpu_vm_place *place);

#endif
