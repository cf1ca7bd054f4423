/* The end of a greeting in a VM with memory of its host: guest and worker agree where the rings lie in it. */
#ifndef VGPU_HOST_VM_RINGS_H
#define VGPU_HOST_VM_RINGS_H

#include "host/session/worker.h"

enum vgpu_vm_rings_outcome {
  VGPU_VM_RINGS_TAKEN = 0,
  VGPU_VM_RINGS_NOT_SEEN = 1, /* the guest looks at other memory: the socket carries the frames */
  VGPU_VM_RINGS_NO_ROOM = 2,  /* likewise, because both could agree on no place */
  VGPU_VM_RINGS_GONE = 3,     /* the guest left, or sent something else: *violation says what, or is NULL */
};

/* Waits for the guest, for as long as a greeting may take. */
enum vgpu_vm_rings_outcome vgpu_vm_rings_agree(struct vgpu_worker *worker, const char **violation);

#endif
