/*
 * Asynchronous reads into pinned memory are posted like any other call. The host keeps the bytes under a
 * ticket and sends them with the answer to the call with which the program waits. CUDA does not promise this
 * for other memory, so reads into other memory wait at once.
 */
#ifndef VGPU_GUEST_CUDA_READBACK_H
#define VGPU_GUEST_CUDA_READBACK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_driver;
struct vgpu_readback;
struct vgpu_readback_batch;

struct vgpu_readbacks {
  pthread_mutex_t lock;
  pthread_cond_t delivered;
  struct vgpu_readback *first, *last; /* sorted by ticket */
  uint64_t next_ticket;
  uint64_t posted; /* count of reads that have been posted */
  size_t count;    /* read without the lock: while it is 0 there is nothing to do */
  size_t bytes;
  struct vgpu_readback_batch *batches; /* the threads that ask for entries now */
};

void vgpu_readbacks_init(struct vgpu_readbacks *readbacks);

/*
 * Posts a read of `bytes` at `source` to `destination` on a stream. Returns how many bytes will be read: 0,
 * if too much is in progress for all of them, or fewer, if other threads were quicker. The caller waits for
 * the others. *result: CUresult.
 */
size_t vgpu_readback_post(struct vgpu_driver *driver, void *destination, uint64_t context, uint64_t stream,
                          uint64_t source, size_t bytes, int *result);

enum vgpu_wait_scope {
  VGPU_WAIT_STREAM = 1,  /* delivers the reads of `stream` */
  VGPU_WAIT_EVENT = 2,   /* delivers those of the stream that it was recorded on, if they are ready */
  VGPU_WAIT_CONTEXT = 3, /* delivers none itself */
};

/* Waits with a synchronize call (`opcode`, body `send`), then delivers all reads that are ready. */
int vgpu_readback_wait(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                       uint64_t context, uint64_t stream, enum vgpu_wait_scope scope);

/* Delivers bytes that have been read. Called when another answer said that there may be some. */
int vgpu_readback_settle(struct vgpu_driver *driver, uint64_t context);

bool vgpu_readback_pending(const struct vgpu_driver *driver);

/* Waits for the pending reads that write to any of these bytes. */
int vgpu_readback_flush(struct vgpu_driver *driver, const void *memory, size_t bytes);

void vgpu_readback_drop(struct vgpu_driver *driver, uint64_t context);

#endif
