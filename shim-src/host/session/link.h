/* The path of a worker's frames: the rings of a guest on this machine, or the socket. */
#ifndef VGPU_HOST_LINK_H
#define VGPU_HOST_LINK_H

#include <pthread.h>

#include "host/backend/dispatch.h"
#include "host/session/line.h"
#include "host/session/vm_memory.h"
#include "wire/read_ahead.h"
#include "wire/ring.h"

struct vgpu_link {
  int descriptor;          /* changes with the connection: other threads read it under `writing` */
  struct vgpu_rings rings; /* none: the frames go over the socket */
  struct vgpu_doorbell doorbell;
  struct vgpu_read_ahead ahead; /* of the socket, if the frames go over it */
  uint32_t current;             /* bytes of the frame that is being carried out */
  uint64_t next_sequence;       /* read by the thread that gives signs of life, too */
  unsigned char *in;            /* VGPU_FRAME_MAX bytes */
  bool alive;                   /* agreed: the guest gets signs of life */
  bool working;                 /* a request is being carried out; read by the watching thread */
  uint32_t parked;         /* calls that wait for their answer (parking.h); read by the watching thread */
  pthread_mutex_t writing; /* guards writes to the socket, if the frames go over it, and `passed` */
  struct vgpu_line line;   /* of a session that survives its connection */
  int ring_memory; /* only with rings that survive the connection: their memory; -1: in the VM's memory */
  uint64_t read;   /* the host's indexes, as written to the rings. Use __atomic */
  uint64_t written;
  uint64_t mark; /* for the watching thread: the last value that it wrote to VGPU_RING_MARK */
  struct {
    uint64_t count;  /* number of descriptors passed to the guest */
    uint32_t region; /* of the last one; 0: none is kept */
    int descriptor;
  } passed;
};

/* One frame of the guest. It has passed all checks that need no knowledge of the call. */
struct vgpu_request {
  struct vgpu_frame frame;
  const struct vgpu_dispatch_row *row; /* NULL: the description has no such call */
  const unsigned char *body;           /* a copy */
  const unsigned char *bulk;           /* a copy, or the guest's own memory when the call's bulk is raw */
};

/* Makes rings for a guest on a unix socket. Returns the descriptor for the guest. -1: no memory. */
int vgpu_link_make_rings(struct vgpu_link *link);

/*
 * Makes rings in the memory of a guest's VM, at the place that the guest proposes. False with *next: another
 * session has the place up to *next. False with *next 0: rings are not possible.
 */
bool vgpu_link_place_rings(struct vgpu_link *link, const struct vgpu_vm_memory *memory,
                           const struct vgpu_vm_place *place, uint64_t *next);

enum vgpu_received {
  VGPU_RECEIVED,
  VGPU_RECEIVED_NOTHING, /* the guest has come back over another connection, and calls are parked */
  VGPU_RECEIVED_END      /* the guest is gone, or broke the protocol */
};

/*
 * Waits for the next frame. `find` returns the row of an opcode. *violation describes how the guest broke the
 * protocol; NULL: it did not.
 */
enum vgpu_received
vgpu_link_receive(struct vgpu_link *link,
                  const struct vgpu_dispatch_row *(*find)(const void *context, uint32_t opcode),
                  const void *context, struct vgpu_request *request, const char **violation);

/* True if vgpu_link_receive() has something to read: (part of) a frame, or the end of the connection. */
bool vgpu_link_has_come(struct vgpu_link *link);

/* Sleeps until there is something to read, or until a time (vgpu_now_ns). False: the guest is gone. */
bool vgpu_link_sleep(struct vgpu_link *link, uint64_t until);

/* True if the thread should check once more before it sleeps (spin.h). */
bool vgpu_link_spins(const struct vgpu_link *link, struct vgpu_spinning *spinning);
/* For spin.h: a frame has arrived. */
void vgpu_link_learn(struct vgpu_link *link, const struct vgpu_spinning *spinning, bool slept);

/* Copies the bulk of earlier replies that the guest may need again, because the caller changes it. */
void vgpu_link_settle(struct vgpu_link *link);

/* True if another request has arrived while one is carried out. */
bool vgpu_link_has_more(const struct vgpu_link *link);

/* True if another request has arrived behind the last one, which was released. */
bool vgpu_link_has_next(const struct vgpu_link *link);

/* For the watching thread: sends a sign of life if a call is being carried out, or if `idle`. */
void vgpu_link_tell_alive(struct vgpu_link *link, bool idle);

/* Releases a request that has been carried out. Called before the reply. */
void vgpu_link_done(struct vgpu_link *link, const struct vgpu_request *request);

/*
 * Sends a reply. If the session survives its connection, the caller must not change the bulk until the next
 * vgpu_link_receive(). False: the guest is gone, or reads its replies too slowly.
 */
bool vgpu_link_reply(struct vgpu_link *link, struct vgpu_frame *reply, const void *body, uint32_t body_size,
                     const void *bulk, uint32_t bulk_size);

/* Passes the descriptor of a shared region to the guest over the socket. */
void vgpu_link_pass(struct vgpu_link *link, uint32_t region, int descriptor);

/* False: the guest does not read its socket, so nothing more may be passed. Waits for a moment. */
bool vgpu_link_may_pass(const struct vgpu_link *link);

/* Forgets the passed descriptor of a region that has been freed. */
void vgpu_link_forget_passed(struct vgpu_link *link, uint32_t region);

/*
 * For the watching thread, with rings that survive the connection: true if the rings' memory is as this
 * worker left it. A snapshot may have restored an earlier state of a VM's memory.
 */
bool vgpu_link_intact(const struct vgpu_link *link);
/* Writes a new mark to the rings' memory, which no older copy of the memory has. */
void vgpu_link_mark(struct vgpu_link *link);
/*
 * Makes this connection the doorbell. The guest has been greeted on it and has received `received`
 * descriptors. Closes `connection`.
 */
void vgpu_link_renew(struct vgpu_link *link, int connection, uint64_t received);
/* True if the guest still maps the rings, or if none were passed. */
bool vgpu_link_mapped(const struct vgpu_link *link);

#endif
