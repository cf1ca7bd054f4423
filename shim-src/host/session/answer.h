/* Carries out one request, from the rings or from the socket. */
#ifndef VGPU_HOST_ANSWER_H
#define VGPU_HOST_ANSWER_H

#include "host/session/worker.h"

struct vgpu_answer {
  int32_t status;
  uint32_t flags; /* of the reply's frame */
  uint32_t body_size;
  _Alignas(8) unsigned char body[VGPU_BODY_MAX]; /* structures of the wire, filled in place */
  struct vgpu_bulk bulk;
  struct vgpu_span span; /* that the bulk is put into */
};

/* The row of an opcode that the session of `context`, a struct vgpu_worker, may use; NULL: none. */
const struct vgpu_dispatch_row *vgpu_find_row(const void *context, uint32_t opcode);

/*
 * Fills *answer. Body and bulk are valid when its status is 0. `out`, of `capacity` bytes, receives the bulk
 * of the call, unless the call has a place of its own for it. answer->bulk.out is the place.
 */
void vgpu_carry_out(struct vgpu_worker *worker, const struct vgpu_request *request, unsigned char *out,
                    uint32_t capacity, struct vgpu_answer *answer);

/* Sends it, as the answer to a request that is not one-way. False: the guest is gone. */
bool vgpu_worker_send(struct vgpu_worker *worker, const struct vgpu_request *request,
                      const struct vgpu_answer *answer);

#endif
