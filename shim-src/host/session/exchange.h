/*
 * Memory that sessions of one guest share: a worker gives it to the daemon and gets a token, which the guest
 * hands on as it likes; another worker gets it for the token, if it serves the same guest. Between worker and
 * daemon is a socket of messages, one for each worker; no worker can reach another one.
 */
#ifndef VGPU_HOST_EXCHANGE_H
#define VGPU_HOST_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_worker;

/* The kinds of shared objects. An object is opened as the kind that it was shared as. */
enum vgpu_exchange_kind { VGPU_EXCHANGE_MEMORY = 1, VGPU_EXCHANGE_PHYSICAL = 2, VGPU_EXCHANGE_EVENT = 3 };

struct vgpu_token {
  uint64_t words[2]; /* by chance; both 0: none */
};

enum vgpu_exchange_wish { VGPU_EXCHANGE_PUBLISH = 1, VGPU_EXCHANGE_FETCH = 2, VGPU_EXCHANGE_WITHDRAW = 3 };

struct vgpu_exchange_message {
  uint32_t wish;
  uint32_t kind;
  struct vgpu_token token;
  uint64_t bytes;
  uint64_t session; /* of an answer: whose it is */
  int32_t result;   /* of an answer: a CUresult */
  uint32_t reserved;
};

/* With a descriptor (-1: without). False: it could not be sent at once. */
bool vgpu_exchange_send(int socket, const struct vgpu_exchange_message *message, int descriptor);
/* One message, without waiting; *descriptor is the caller's then. False: none is there, or it is no message.
 */
bool vgpu_exchange_receive(int socket, struct vgpu_exchange_message *message, int *descriptor);

/* The worker's side. CUresults. */
int32_t vgpu_exchange_publish(struct vgpu_worker *worker, enum vgpu_exchange_kind kind, int descriptor,
                              uint64_t bytes, struct vgpu_token *token);
/* Sealed memory of so many bytes; the descriptor is the caller's. INVALID_CONTEXT: it is this session's own.
 */
int32_t vgpu_exchange_fetch(struct vgpu_worker *worker, enum vgpu_exchange_kind kind,
                            const struct vgpu_token *token, int *descriptor, uint64_t *bytes);
void vgpu_exchange_withdraw(struct vgpu_worker *worker, const struct vgpu_token *token);

#endif
