/*
 * Asynchronous reads into pinned memory. They are posted like any other call; the host keeps the bytes
 * under a ticket, and they come with the answer to what the program waits with. Memory that is not pinned
 * has no such promise, so those reads are waited for at once.
 */
#ifndef VGPU_GUEST_CUDA_READBACK_H
#define VGPU_GUEST_CUDA_READBACK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_driver;
struct vgpu_readback;

struct vgpu_readbacks {
  pthread_mutex_t lock;
  pthread_cond_t delivered;
  struct vgpu_readback *first, *last; /* by ticket */
  uint64_t next_ticket;
  size_t count; /* read without the lock: nothing to do while 0 */
  size_t bytes;
};

void vgpu_readbacks_init(struct vgpu_readbacks *readbacks);

/*
 * Posts a read of `bytes` at `source` to `destination` on a stream. False: not one to be deferred (too
 * long, or too much is on its way already); then the caller waits for it instead. *result: CUresult.
 */
bool vgpu_readback_post(struct vgpu_driver *driver, void *destination, uint64_t context, uint64_t stream,
                        uint64_t source, size_t bytes, int *result);

enum vgpu_wait_scope {
  VGPU_WAIT_STREAM = 1,  /* brings the reads of `stream` */
  VGPU_WAIT_EVENT = 2,   /* brings those of the stream that it was recorded on, if they are ready */
  VGPU_WAIT_CONTEXT = 3, /* brings none itself */
};

/*
 * Waits with `opcode` (a synchronize whose body is given), then delivers all other reads that are ready.
 * Asks again as long as the host says NOT_READY.
 */
int vgpu_readback_wait(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                       uint64_t context, uint64_t stream, enum vgpu_wait_scope scope);

/* Delivers what has been read, after something else told that there may be more. */
int vgpu_readback_settle(struct vgpu_driver *driver, uint64_t context);

/* Waits for the reads that still go to any of these bytes. */
int vgpu_readback_flush(struct vgpu_driver *driver, const void *memory, size_t bytes);

/* The context is gone, and what was to be read in it. */
void vgpu_readback_drop(struct vgpu_driver *driver, uint64_t context);

#endif
