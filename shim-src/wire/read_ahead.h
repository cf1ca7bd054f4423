/*
 * Reads ahead on a stream socket: one system call reads all small frames that have arrived. A wait polls for
 * a moment before it sleeps (spin.h). Only one thread at a time may read.
 */
#ifndef VGPU_WIRE_READ_AHEAD_H
#define VGPU_WIRE_READ_AHEAD_H

#include "wire/owned_socket.h"
#include "wire/spin.h"
#include "wire/stream.h"

#define VGPU_READ_AHEAD_BYTES (64u << 10)

/* Initially zero; vgpu_read_ahead_init() completes it. */
struct vgpu_read_ahead {
  int descriptor; /* of a non-blocking socket; the owner closes it */
  const struct vgpu_owned_socket
      *own;             /* checked before each wait; NULL: the descriptor always is this socket */
  unsigned char *bytes; /* VGPU_READ_AHEAD_BYTES of memory, made at the first read */
  size_t begin, end;    /* the bytes that were read and not yet taken */
  struct vgpu_spin spin;
};

void vgpu_read_ahead_init(struct vgpu_read_ahead *ahead, int descriptor);

/* Frees the memory. Bytes that were read ahead and not taken are lost. */
void vgpu_read_ahead_destroy(struct vgpu_read_ahead *ahead);

/* True if a read would not block: there are bytes, or the socket has ended. */
bool vgpu_read_ahead_has_come(struct vgpu_read_ahead *ahead);

/* Like vgpu_stream_read, vgpu_stream_read_header and vgpu_stream_skip. */
enum vgpu_stream_result vgpu_read_ahead_read(struct vgpu_read_ahead *ahead, void *bytes, size_t size,
                                             int64_t deadline);
enum vgpu_stream_result vgpu_read_ahead_read_header(struct vgpu_read_ahead *ahead, struct vgpu_frame *frame,
                                                    int64_t deadline);
enum vgpu_stream_result vgpu_read_ahead_skip(struct vgpu_read_ahead *ahead, size_t size, int64_t deadline);

#endif
