/*
 * Memory that sessions of one guest share. A worker gives the memory to the daemon and gets a token. The
 * guest can pass the token to its other processes. Another worker gets the memory for the token if it serves
 * the same guest. Each worker has a socket of messages to the daemon; no worker can reach another one.
 */
#ifndef VGPU_HOST_EXCHANGE_H
#define VGPU_HOST_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_worker;

/* The kinds of shared objects. An object is opened as the kind that it was shared as. */
enum vgpu_exchange_kind {
  VGPU_EXCHANGE_MEMORY = 1,
  VGPU_EXCHANGE_PHYSICAL = 2,
  VGPU_EXCHANGE_EVENT = 3,
  VGPU_EXCHANGE_DRIVER =
      4, /* a file of the driver, which only the driver reads; all other kinds are sealed memory */
};

struct vgpu_token {
  uint64_t words[2]; /* random; both 0: none */
};

enum vgpu_exchange_wish { VGPU_EXCHANGE_PUBLISH = 1, VGPU_EXCHANGE_FETCH = 2, VGPU_EXCHANGE_WITHDRAW = 3 };

struct vgpu_exchange_message {
  uint32_t wish;
  uint32_t kind;
  struct vgpu_token token;
  uint64_t bytes;
  uint64_t session; /* in an answer: the session that shared it */
  int32_t result;   /* in an answer: a CUresult */
  uint32_t reserved;
};

/* Sends a message, with a descriptor unless it is -1. False: the socket is full or closed. */
bool vgpu_exchange_send(int socket, const struct vgpu_exchange_message *message, int descriptor);
/*
 * Receives one message, without waiting. The caller closes *descriptor. False: there is none, or it is not
 * valid.
 */
bool vgpu_exchange_receive(int socket, struct vgpu_exchange_message *message, int *descriptor);

/* The worker's side. These functions return a CUresult. */
int32_t vgpu_exchange_publish(struct vgpu_worker *worker, enum vgpu_exchange_kind kind, int descriptor,
                              uint64_t bytes, struct vgpu_token *token);
/*
 * Fetches the memory or file of *bytes bytes. The caller closes the descriptor. Without `own`, objects that
 * this session shared are refused with INVALID_CONTEXT, as the driver refuses handles of cuIpc*.
 */
int32_t vgpu_exchange_fetch(struct vgpu_worker *worker, enum vgpu_exchange_kind kind,
                            const struct vgpu_token *token, bool own, int *descriptor, uint64_t *bytes);
void vgpu_exchange_withdraw(struct vgpu_worker *worker, const struct vgpu_token *token);

#endif
