/*
 * The socket of a session that has a ring. It carries single bytes without meaning that wake whoever
 * sleeps at the other end, now and then a descriptor with one, and its end is the end of the peer. Any
 * number of threads of one process may wait on the same bell: one of them polls, for all.
 */
#ifndef VGPU_WIRE_BELL_H
#define VGPU_WIRE_BELL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/stream.h"

struct vgpu_bell {
  int descriptor; /* of the socket; not ours to close */
  pthread_mutex_t lock;
  pthread_cond_t heard;
  uint64_t generation; /* counts what was heard */
  bool polling;
  bool closed;
  int passed; /* a descriptor that came; -1: none */
};

void vgpu_bell_init(struct vgpu_bell *bell, int descriptor);
void vgpu_bell_destroy(struct vgpu_bell *bell);

/* Wakes the peer; a peer that is gone is noticed by who waits. */
void vgpu_bell_ring(const struct vgpu_bell *bell);

/* Read before looking at what is waited for, and given to vgpu_bell_wait after. */
uint64_t vgpu_bell_generation(struct vgpu_bell *bell);

/* Until the bell is heard after `seen`; OK may also mean nothing. CLOSED once the peer is gone. */
enum vgpu_stream_result vgpu_bell_wait(struct vgpu_bell *bell, uint64_t seen, int64_t deadline);

/* The descriptor that the peer has sent, for the caller to close; -1: none came. */
int vgpu_bell_take(struct vgpu_bell *bell, int64_t deadline);

#endif
