/* Serves the requests of a session, from the rings or from the socket. */
#ifndef VGPU_HOST_ANSWER_H
#define VGPU_HOST_ANSWER_H

#include "host/session/worker.h"

struct vgpu_answer {
  int32_t status;
  uint32_t flags; /* of the reply's frame */
  uint32_t body_size;
  _Alignas(8) unsigned char body[VGPU_BODY_MAX]; /* aligned for the wire's structures */
  struct vgpu_bulk bulk;
  struct vgpu_span span; /* storage for a bulk that is a span */
};

/* The row of an opcode that the session of `context`, a struct vgpu_worker, may use; NULL: none. */
const struct vgpu_dispatch_row *vgpu_find_row(const void *context, uint32_t opcode);

/* The feature bits of a WELCOME each of which says that this host has a certain call. */
extern const uint32_t vgpu_call_features;

/*
 * Fills *answer. Body and bulk are valid when its status is 0. `out`, of `capacity` bytes, receives the bulk
 * of the call, unless the call has a place of its own for it. answer->bulk.out is the place.
 */
void vgpu_carry_out(struct vgpu_worker *worker, const struct vgpu_request *request, unsigned char *out,
                    uint32_t capacity, struct vgpu_answer *answer);

/* Fills a WELCOME with the data of this host. The fields about a session stay 0. */
void vgpu_welcome_fill(struct vgpu_welcome *welcome, const struct vgpu_backend *backend,
                       const struct vgpu_inventory *inventory);

/*
 * Answers `hello` and serves the guest until it leaves or breaks the protocol. Returns the exit status of the
 * process.
 */
int vgpu_worker_serve(struct vgpu_worker *worker, const struct vgpu_hello *hello);

/* Waits for the guest's next request. A broken protocol is logged. */
enum vgpu_received vgpu_worker_receive(struct vgpu_worker *worker, struct vgpu_request *request);
/*
 * Carries out a request at the rate that limits.calls allows, then answers or parks it. False: the guest is
 * gone.
 */
bool vgpu_worker_answer(struct vgpu_worker *worker, const struct vgpu_request *request);

/*
 * Carries out the requests that have arrived while a one-way call takes long, in their order, up to the first
 * one that `accepts` refuses. It waits for none. No call may change what the long one uses.
 */
void vgpu_worker_serve_nested(struct vgpu_worker *worker, vgpu_request_filter *accepts);

/* Answers the control opcodes. */
int32_t vgpu_control(struct vgpu_worker *worker, uint32_t opcode, const void *body, uint32_t body_size,
                     void *reply, uint32_t *reply_size, struct vgpu_bulk *bulk);

/* Answers a request that is not one-way. False: the guest is gone. */
bool vgpu_worker_send(struct vgpu_worker *worker, const struct vgpu_request *request,
                      const struct vgpu_answer *answer);

#endif
