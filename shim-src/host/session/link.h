/* How a worker's frames come and go: through the rings of a guest on this machine, else over the socket. */
#ifndef VGPU_HOST_LINK_H
#define VGPU_HOST_LINK_H

#include <pthread.h>

#include "host/backend/dispatch.h"
#include "host/session/line.h"
#include "host/session/vm_memory.h"
#include "wire/ahead.h"
#include "wire/ring.h"

struct vgpu_link {
  int descriptor;          /* changes with the connection: under `writing` for other threads */
  struct vgpu_rings rings; /* none: the socket carries the frames */
  struct vgpu_doorbell doorbell;
  struct vgpu_ahead ahead; /* of the socket, where it carries the frames */
  uint32_t current;        /* bytes of the frame that is being carried out */
  uint64_t next_sequence;  /* read by the thread that gives signs of life, too */
  unsigned char *in;       /* VGPU_FRAME_MAX bytes */
  bool alive;              /* the guest wants signs of life */
  bool working;            /* on a call; read by the thread that gives them */
  pthread_mutex_t writing; /* to the socket, where it carries the frames; and `passed` */
  struct vgpu_line line;   /* of a session that survives its connection */
  /* Of such a session with rings. */
  int ring_memory; /* rings that were passed to the guest; -1: they lie elsewhere */
  uint64_t read;   /* our indexes, after they were written to the rings' memory. Use __atomic */
  uint64_t written;
  uint64_t mark; /* the watcher's: what it has written last at VGPU_RING_MARK */
  struct {
    uint64_t count;  /* descriptors that were sent to the guest */
    uint32_t region; /* of the last one; 0: none is kept */
    int descriptor;
  } passed;
};

/* One frame of the guest, checked as far as that can be without knowing the call. */
struct vgpu_request {
  struct vgpu_frame frame;
  const struct vgpu_dispatch_row *row; /* NULL: not one of the description */
  const unsigned char *body;           /* a copy */
  const unsigned char *bulk;           /* a copy, or the guest's own memory when the call's bulk is raw */
};

/* Rings for a guest at the other end of a unix socket: the descriptor to pass to it, -1: no memory. */
int vgpu_link_make_rings(struct vgpu_link *link);

/*
 * Rings in the memory of a guest's VM, where the guest wants them. False with *next: another session has the
 * place up to there; with *next 0: they cannot be had.
 */
bool vgpu_link_place_rings(struct vgpu_link *link, const struct vgpu_vm_memory *memory,
                           const struct vgpu_vm_place *place, uint64_t *next);

/*
 * Waits for the next frame; `find` gives the row of a frame's opcode. False: the guest is gone or broke the
 * protocol; then *violation says how, or is NULL.
 */
bool vgpu_link_receive(struct vgpu_link *link,
                       const struct vgpu_dispatch_row *(*find)(const void *context, uint32_t opcode),
                       const void *context, struct vgpu_request *request, const char **violation);

/* While a request is carried out: whether another one has come. */
bool vgpu_link_has_more(const struct vgpu_link *link);

/* By another thread: tells the guest that its call is being worked on, if one is; with `idle` in any case. */
void vgpu_link_tell_alive(struct vgpu_link *link, bool idle);

/* The request is carried out: nothing of it is needed any more. To be called before the reply. */
void vgpu_link_done(struct vgpu_link *link, const struct vgpu_request *request);

/*
 * False: the guest is gone, or reads its replies too slowly. If the session survives its connection, the bulk
 * stays as it is until the next vgpu_link_receive().
 */
bool vgpu_link_reply(struct vgpu_link *link, struct vgpu_frame *reply, const void *body, uint32_t body_size,
                     const void *bulk, uint32_t bulk_size);

/* Hands the descriptor of a shared region to the guest over the socket. */
void vgpu_link_pass(struct vgpu_link *link, uint32_t region, int descriptor);
/* This region is no more. */
void vgpu_link_forget_passed(struct vgpu_link *link, uint32_t region);

/*
 * Of the watcher, in a session with rings that survives its connection. Whether the memory of the rings is as
 * this worker has left it: that of a VM may have been put back to what it was earlier.
 */
bool vgpu_link_intact(const struct vgpu_link *link);
/* Puts a new mark there, which a copy of the memory that was made earlier does not have. */
void vgpu_link_mark(struct vgpu_link *link);
/*
 * This connection, on which the guest was greeted and which is closed, is the doorbell from here on. The
 * guest has received so many descriptors.
 */
void vgpu_link_renew(struct vgpu_link *link, int connection, uint64_t received);
/* Whether the guest maps rings that were passed to it; true if they were not. */
bool vgpu_link_mapped(const struct vgpu_link *link);

#endif
