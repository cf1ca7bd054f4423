/*
 * The last part of a greeting with a VM that shares memory with its host: guest and worker agree on the place
 * of the rings.
 */
#ifndef VGPU_HOST_VM_RINGS_H
#define VGPU_HOST_VM_RINGS_H

#include "host/session/worker.h"

enum vgpu_vm_rings_outcome {
  VGPU_VM_RINGS_TAKEN = 0,
  VGPU_VM_RINGS_NOT_SEEN = 1, /* the guest sees other memory: the frames go over the socket */
  VGPU_VM_RINGS_NO_ROOM = 2,  /* the same, because no place was free for both */
  VGPU_VM_RINGS_GONE = 3,     /* the guest left, or broke the protocol: then *violation says how, else NULL */
};

/* Agrees with the guest on a place. Waits for the guest as long as a greeting may take. */
enum vgpu_vm_rings_outcome vgpu_vm_rings_agree(struct vgpu_worker *worker, const char **violation);

#endif
