/*
 * The socket of a session that has a ring. It carries single bytes without meaning that wake the thread that
 * sleeps at the other end, now and then a descriptor with one. Its end is the end of the peer, unless the
 * session survives its connection: another socket then takes its place. Any number of threads of one process
 * may wait on the same doorbell: one of them polls, for all.
 */
#ifndef VGPU_WIRE_DOORBELL_H
#define VGPU_WIRE_DOORBELL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/stream.h"

struct vgpu_doorbell {
  int descriptor; /* of the socket; not ours to close */
  pthread_mutex_t lock;
  pthread_cond_t heard;
  uint64_t generation; /* counts polls that ended */
  uint64_t rings;      /* and of those, how many heard the peer */
  bool polling;
  bool closed;       /* the socket has ended; until there is another one */
  bool over;         /* and there will be none */
  int passed;        /* a descriptor that came; -1: none */
  uint64_t received; /* descriptors that came, of all sockets */
};

void vgpu_doorbell_init(struct vgpu_doorbell *doorbell, int descriptor);
void vgpu_doorbell_destroy(struct vgpu_doorbell *doorbell);

/* Wakes the peer; a peer that is gone is noticed by who waits. */
void vgpu_doorbell_ring(const struct vgpu_doorbell *doorbell);

/* Read before looking at what is waited for, and given to vgpu_doorbell_wait after. */
uint64_t vgpu_doorbell_generation(struct vgpu_doorbell *doorbell);

/* Until the doorbell is heard after `seen`; OK may also mean nothing. CLOSED once the peer is gone. */
enum vgpu_stream_result vgpu_doorbell_wait(struct vgpu_doorbell *doorbell, uint64_t seen, int64_t deadline);

/* How often the peer was heard. */
uint64_t vgpu_doorbell_rings(struct vgpu_doorbell *doorbell);

/* The descriptor that the peer has sent, for the caller to close; -1: none came. */
int vgpu_doorbell_take(struct vgpu_doorbell *doorbell, int64_t deadline);

/* One that was sent has not come, and will not. */
void vgpu_doorbell_missed(struct vgpu_doorbell *doorbell);

/*
 * Of a session that survives its connection. The socket was shut down: once nobody polls it any more, the
 * descriptors that it still holds are taken out. Every wait is CLOSED from here on. Returns how many
 * descriptors have come in all.
 */
uint64_t vgpu_doorbell_end(struct vgpu_doorbell *doorbell);

/*
 * After vgpu_doorbell_end: a copy of this socket takes the number of the one that has ended, and everybody
 * who waits looks again. The peer has to be rung once, because a ring may be lost with the old socket. False:
 * there is no descriptor for it.
 */
bool vgpu_doorbell_renew(struct vgpu_doorbell *doorbell, int descriptor);

/* After a wait that was CLOSED: until there is another socket. False: there will be none. */
bool vgpu_doorbell_wait_renewed(struct vgpu_doorbell *doorbell);

/* There will be no other socket. */
void vgpu_doorbell_give_up(struct vgpu_doorbell *doorbell);

#endif
