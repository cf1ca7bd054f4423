/*
 * Bytes over a non-blocking stream socket, each step with a deadline (vgpu_now_ms). Writing to a closed
 * socket raises no signal, and EINTR is not an error.
 */
#ifndef VGPU_WIRE_STREAM_H
#define VGPU_WIRE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "wire/address.h"
#include "wire/frame.h"

enum vgpu_stream_result {
  VGPU_STREAM_OK = 0,
  VGPU_STREAM_CLOSED = 1, /* the peer closed between frames, or an error of the socket */
  VGPU_STREAM_TIMEOUT = 2,
  VGPU_STREAM_UNSOUND = 3 /* a header that breaks the rules of frame.h */
};

#define VGPU_NO_DEADLINE INT64_MAX

/* Returns a connected, close-on-exec, non-blocking socket, or -1 with errno. */
int vgpu_stream_connect(const struct vgpu_address *address, int64_t deadline);

/* Waits until there is something to read, or the stream has ended. */
enum vgpu_stream_result vgpu_stream_wait_readable(int descriptor, int64_t deadline);

enum vgpu_stream_result vgpu_stream_read(int descriptor, void *bytes, size_t size, int64_t deadline);

/* Writes header, body, bulk and padding. Sets the sizes in `frame`. */
enum vgpu_stream_result vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame, const void *body,
                                                uint32_t body_size, const void *bulk, uint32_t bulk_size,
                                                int64_t deadline);

/* Like vgpu_stream_write_frame, but first writes `before_size` bytes of whole frames. */
enum vgpu_stream_result vgpu_stream_write_after(int descriptor, const void *before, size_t before_size,
                                                struct vgpu_frame *frame, const void *body,
                                                uint32_t body_size, const void *bulk, uint32_t bulk_size,
                                                int64_t deadline);

/* Writes bytes of whole frames. */
enum vgpu_stream_result vgpu_stream_write(int descriptor, const void *bytes, size_t size, int64_t deadline);

/* Writes one frame and passes the descriptor `passed` with it (unix sockets only; -1: none). */
enum vgpu_stream_result vgpu_stream_pass_frame(int descriptor, struct vgpu_frame *frame, const void *body,
                                               uint32_t body_size, int passed, int64_t deadline);

/* Writes one byte and passes the descriptor `passed` with it. */
enum vgpu_stream_result vgpu_stream_pass(int descriptor, int passed, int64_t deadline);

/*
 * Like recv() without waiting. A descriptor that arrived is stored in *passed, and the caller closes it; else
 * *passed is unchanged.
 */
ssize_t vgpu_stream_receive(int descriptor, void *bytes, size_t size, int *passed);

/* Like vgpu_stream_read, for bytes that may come with a descriptor. */
enum vgpu_stream_result vgpu_stream_read_passed(int descriptor, void *bytes, size_t size, int *passed,
                                                int64_t deadline);

/* Reads one header and checks it. Does not read the body. */
enum vgpu_stream_result vgpu_stream_read_header(int descriptor, struct vgpu_frame *frame, int64_t deadline);

/* Reads `size` bytes and drops them. */
enum vgpu_stream_result vgpu_stream_skip(int descriptor, size_t size, int64_t deadline);

/* Returns the bytes of padding behind a frame's bulk. */
uint32_t vgpu_stream_padding(const struct vgpu_frame *frame);

#endif
