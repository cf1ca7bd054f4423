/*
 * The socket of a session with rings. A byte wakes the thread that sleeps at the other end; a descriptor may
 * come with it. The end of the socket is the end of the peer, unless the session survives its connection:
 * then another socket replaces it. Any number of threads may wait; one of them polls for all.
 */
#ifndef VGPU_WIRE_DOORBELL_H
#define VGPU_WIRE_DOORBELL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/owned_socket.h"
#include "wire/stream.h"

struct vgpu_doorbell {
  int descriptor;                /* of the socket; the owner closes it */
  struct vgpu_owned_socket *own; /* checked before each use; NULL: the descriptor always is this socket */
  pthread_mutex_t lock;
  pthread_cond_t heard;
  uint64_t generation; /* counts polls that ended */
  uint64_t rings;      /* polls among these in which the peer rang. Written under the lock. Use __atomic */
  bool polling;
  bool closed;       /* the socket has ended and there is no new one yet */
  bool over;         /* there will be no new socket */
  int passed;        /* a descriptor that arrived; -1: none */
  uint64_t received; /* descriptors that arrived, over all sockets */
};

void vgpu_doorbell_init(struct vgpu_doorbell *doorbell, int descriptor);
void vgpu_doorbell_destroy(struct vgpu_doorbell *doorbell);

/* Wakes the peer. If the peer has ended, a thread that waits on the doorbell notices it. */
void vgpu_doorbell_ring(const struct vgpu_doorbell *doorbell);

/*
 * The caller reads this number, checks whether it has to wait, and then passes the number to
 * vgpu_doorbell_wait.
 */
uint64_t vgpu_doorbell_generation(struct vgpu_doorbell *doorbell);

/*
 * Waits until the doorbell has rung after `seen`, or until `deadline` (vgpu_now_ms). May return OK without a
 * ring. CLOSED: the peer has ended.
 */
enum vgpu_stream_result vgpu_doorbell_wait(struct vgpu_doorbell *doorbell, uint64_t seen, int64_t deadline);
/* Like vgpu_doorbell_wait, until a time in nanoseconds (vgpu_now_ns); UINT64_MAX: without a limit. */
enum vgpu_stream_result vgpu_doorbell_wait_until(struct vgpu_doorbell *doorbell, uint64_t seen,
                                                 uint64_t until);

/* Returns the number of polls in which the peer rang. */
uint64_t vgpu_doorbell_rings(struct vgpu_doorbell *doorbell);

/* Returns the descriptor that the peer has sent, which the caller closes; -1: none. */
int vgpu_doorbell_take(struct vgpu_doorbell *doorbell, int64_t deadline);

/* Counts a descriptor that the peer sent and that was lost with the connection. */
void vgpu_doorbell_missed(struct vgpu_doorbell *doorbell);

/*
 * Ends the old socket of a session that survives its connection. Call this after the socket was shut down.
 * Waits until no thread polls the socket and takes out the remaining descriptors; from now on every wait
 * returns CLOSED. Returns the number of descriptors that have arrived in total.
 */
uint64_t vgpu_doorbell_end(struct vgpu_doorbell *doorbell);

/*
 * Continues with a new socket after vgpu_doorbell_end(): a copy of `descriptor` gets the number of the old
 * socket, and all waiting threads check again. The caller then rings the peer once, because a ring may have
 * been lost with the old socket. False: no free descriptor.
 */
bool vgpu_doorbell_renew(struct vgpu_doorbell *doorbell, int descriptor);

/* Waits, after CLOSED, until there is a new socket. False: there will be none. */
bool vgpu_doorbell_wait_renewed(struct vgpu_doorbell *doorbell);

/* Ends all waits for a new socket. */
void vgpu_doorbell_give_up(struct vgpu_doorbell *doorbell);

#endif
