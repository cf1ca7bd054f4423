#include "wire/read_ahead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void vgpu_read_ahead_init(struct vgpu_read_ahead *ahead, int descriptor) {
  *ahead = (struct vgpu_read_ahead){.descriptor = descriptor};
  vgpu_spin_init(&ahead->spin);
}

void vgpu_read_ahead_destroy(struct vgpu_read_ahead *ahead) {
  free(ahead->bytes);
  ahead->bytes = NULL;
  ahead->begin = ahead->end = 0;
}

static bool nothing_yet(ssize_t got) {
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

static enum vgpu_stream_result receive_some(struct vgpu_read_ahead *ahead, void *bytes, size_t size,
                                            size_t *came, int64_t deadline) {
  if (!vgpu_owned_socket_holds(ahead->own)) return VGPU_STREAM_CLOSED;
  ssize_t got = recv(ahead->descriptor, bytes, size, MSG_DONTWAIT);
  if (nothing_yet(got)) {
    struct vgpu_spinning spinning = {0};
    while (nothing_yet(got) && vgpu_spin_call(&ahead->spin, &spinning)) {
      got = recv(ahead->descriptor, bytes, size, MSG_DONTWAIT);
    }
    (void)vgpu_spin_learn(&ahead->spin, &spinning, nothing_yet(got));
  }
  while (nothing_yet(got)) {
    enum vgpu_stream_result result = vgpu_stream_wait_readable(ahead->descriptor, deadline);
    if (result != VGPU_STREAM_OK) return result;
    if (!vgpu_owned_socket_holds(ahead->own)) return VGPU_STREAM_CLOSED;
    got = recv(ahead->descriptor, bytes, size, MSG_DONTWAIT);
  }
  if (got <= 0) return VGPU_STREAM_CLOSED;
  *came = (size_t)got;
  return VGPU_STREAM_OK;
}

static bool has_memory(struct vgpu_read_ahead *ahead) {
  if (ahead->bytes == NULL) ahead->bytes = malloc(VGPU_READ_AHEAD_BYTES);
  return ahead->bytes != NULL;
}

bool vgpu_read_ahead_has_come(struct vgpu_read_ahead *ahead) {
  if (ahead->end > ahead->begin || !has_memory(ahead) || !vgpu_owned_socket_holds(ahead->own)) return true;
  ssize_t got = recv(ahead->descriptor, ahead->bytes, VGPU_READ_AHEAD_BYTES, MSG_DONTWAIT);
  if (nothing_yet(got)) return false;
  ahead->begin = 0;
  ahead->end = got > 0 ? (size_t)got : 0;
  return true;
}

static size_t take(struct vgpu_read_ahead *ahead, void *bytes, size_t size) {
  size_t there = ahead->end - ahead->begin, taken = there < size ? there : size;
  if (taken > 0) memcpy(bytes, ahead->bytes + ahead->begin, taken);
  ahead->begin += taken;
  return taken;
}

enum vgpu_stream_result vgpu_read_ahead_read(struct vgpu_read_ahead *ahead, void *bytes, size_t size,
                                             int64_t deadline) {
  if (!has_memory(ahead)) return VGPU_STREAM_CLOSED;
  unsigned char *at = bytes;
  size_t taken = take(ahead, at, size);
  while (taken < size) {
    size_t left = size - taken, came = 0;
    /* Long data is read directly to its place. */
    bool straight = left >= VGPU_READ_AHEAD_BYTES / 2;
    enum vgpu_stream_result result = receive_some(ahead, straight ? (void *)(at + taken) : ahead->bytes,
                                                  straight ? left : VGPU_READ_AHEAD_BYTES, &came, deadline);
    if (result != VGPU_STREAM_OK) return result;
    if (straight) {
      taken += came;
      continue;
    }
    ahead->begin = 0;
    ahead->end = came;
    taken += take(ahead, at + taken, left);
  }
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result vgpu_read_ahead_read_header(struct vgpu_read_ahead *ahead, struct vgpu_frame *frame,
                                                    int64_t deadline) {
  enum vgpu_stream_result result = vgpu_read_ahead_read(ahead, frame, sizeof *frame, deadline);
  if (result != VGPU_STREAM_OK) return result;
  return vgpu_frame_sound(frame) ? VGPU_STREAM_OK : VGPU_STREAM_UNSOUND;
}

enum vgpu_stream_result vgpu_read_ahead_skip(struct vgpu_read_ahead *ahead, size_t size, int64_t deadline) {
  unsigned char sink[4096];
  while (size > 0) {
    size_t step = size < sizeof sink ? size : sizeof sink;
    enum vgpu_stream_result result = vgpu_read_ahead_read(ahead, sink, step, deadline);
    if (result != VGPU_STREAM_OK) return result;
    size -= step;
  }
  return VGPU_STREAM_OK;
}
