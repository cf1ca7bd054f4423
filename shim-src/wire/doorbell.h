/*
 * The socket of a session that has rings. A single byte over the socket wakes the thread that sleeps at the
 * other end. The byte has no meaning, but a descriptor may come with it. The end of the socket means that the
 * peer has ended, unless the session survives its connection: then another socket takes its place. Any number
 * of threads of one process may wait on the same doorbell: one of them polls, for all.
 */
#ifndef VGPU_WIRE_DOORBELL_H
#define VGPU_WIRE_DOORBELL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/own.h"
#include "wire/stream.h"

struct vgpu_doorbell {
  int descriptor;       /* of the socket; the owner closes it */
  struct vgpu_own *own; /* to check before each use that the socket is there; NULL: it always is */
  pthread_mutex_t lock;
  pthread_cond_t heard;
  uint64_t generation; /* counts polls that ended */
  uint64_t rings;      /* polls among these in which the peer rang. Written under the lock. Use __atomic */
  bool polling;
  bool closed;       /* the socket has ended and there is no new one yet */
  bool over;         /* there will be no new socket */
  int passed;        /* a descriptor that came; -1: none */
  uint64_t received; /* descriptors that came, of all sockets */
};

void vgpu_doorbell_init(struct vgpu_doorbell *doorbell, int descriptor);
void vgpu_doorbell_destroy(struct vgpu_doorbell *doorbell);

/* Wakes the peer. If the peer has ended, a thread that waits notices it. */
void vgpu_doorbell_ring(const struct vgpu_doorbell *doorbell);

/*
 * The caller reads this number, checks whether it has to wait, and then gives the number to
 * vgpu_doorbell_wait.
 */
uint64_t vgpu_doorbell_generation(struct vgpu_doorbell *doorbell);

/*
 * Waits until the doorbell has rung after `seen`. OK may also be returned without a ring. CLOSED: the peer
 * has ended.
 */
enum vgpu_stream_result vgpu_doorbell_wait(struct vgpu_doorbell *doorbell, uint64_t seen, int64_t deadline);
/* The same until a time in nanoseconds (vgpu_now_ns); UINT64_MAX: without a limit. */
enum vgpu_stream_result vgpu_doorbell_wait_until(struct vgpu_doorbell *doorbell, uint64_t seen,
                                                 uint64_t until);

/* The number of polls in which the peer rang. */
uint64_t vgpu_doorbell_rings(struct vgpu_doorbell *doorbell);

/* The descriptor that the peer has sent, for the caller to close; -1: none came. */
int vgpu_doorbell_take(struct vgpu_doorbell *doorbell, int64_t deadline);

/* Counts a descriptor that the peer sent and that was lost with the connection. */
void vgpu_doorbell_missed(struct vgpu_doorbell *doorbell);

/*
 * Ends the old socket of a session that survives its connection. The socket has been shut down. When no
 * thread polls it any more, the descriptors that it still holds are taken out. From here on every wait
 * returns CLOSED. Returns how many descriptors have come in all.
 */
uint64_t vgpu_doorbell_end(struct vgpu_doorbell *doorbell);

/*
 * Continues with a new socket after vgpu_doorbell_end: a copy of it takes the number of the old one, and all
 * threads that wait check again. The caller has to ring the peer once, because a ring may have been lost with
 * the old socket. False: no descriptor is free for it.
 */
bool vgpu_doorbell_renew(struct vgpu_doorbell *doorbell, int descriptor);

/* Waits, after CLOSED, until there is a new socket. False: there will be none. */
bool vgpu_doorbell_wait_renewed(struct vgpu_doorbell *doorbell);

/* Ends all waits for a new socket: there will be none. */
void vgpu_doorbell_give_up(struct vgpu_doorbell *doorbell);

#endif
