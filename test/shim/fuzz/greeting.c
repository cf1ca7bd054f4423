/*
 * Fuzzes both sides of the messages before a session. If bit 0 of the first byte is set, the rest is a host's
 * answer to a query for sessions. Else the rest is a guest's greeting, which the daemon reads in pieces of
 * sizes that the first byte gives.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/greeting.h"
#include "wire/sessions.h"
#include "wire/stream.h"

static const uint8_t *at;
static size_t left;

enum vgpu_stream_result __wrap_vgpu_stream_read(int descriptor, void *to, size_t size, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_skip(int descriptor, size_t size, int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_read_header(int descriptor, struct vgpu_frame *frame,
                                                       int64_t deadline);
enum vgpu_stream_result __wrap_vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame,
                                                       const void *body, uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum vgpu_stream_result __wrap_vgpu_stream_read(int descriptor, void *to, size_t size, int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  if (size > left) return VGPU_STREAM_CLOSED;
  memcpy(to, at, size);
  at += size;
  left -= size;
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result __wrap_vgpu_stream_skip(int descriptor, size_t size, int64_t deadline) {
  (void)descriptor;
  (void)deadline;
  if (size > left) return VGPU_STREAM_CLOSED;
  at += size;
  left -= size;
  return VGPU_STREAM_OK;
}

enum vgpu_stream_result __wrap_vgpu_stream_read_header(int descriptor, struct vgpu_frame *frame,
                                                       int64_t deadline) {
  enum vgpu_stream_result result = __wrap_vgpu_stream_read(descriptor, frame, sizeof *frame, deadline);
  if (result != VGPU_STREAM_OK) return result;
  return vgpu_frame_sound(frame) ? VGPU_STREAM_OK : VGPU_STREAM_UNSOUND;
}

enum vgpu_stream_result __wrap_vgpu_stream_write_frame(int descriptor, struct vgpu_frame *frame,
                                                       const void *body, uint32_t body_size, const void *bulk,
                                                       uint32_t bulk_size, int64_t deadline) {
  (void)descriptor;
  (void)body;
  (void)bulk;
  (void)deadline;
  frame->length = vgpu_frame_length(body_size, bulk_size);
  return VGPU_STREAM_OK;
}

static void is_plain(const char *text, size_t size) {
  if (memchr(text, '\0', size) == NULL) abort();
  for (; *text != '\0'; text++) {
    if (*text < ' ' || *text > '~') abort();
  }
}

static void ask(void) {
  struct vgpu_sessions_list *list = malloc(sizeof *list);
  if (list == NULL) exit(2);
  if (vgpu_sessions_ask_on(-1, list, 0) == VGPU_SESSIONS_OK) {
    if (list->reply.count > VGPU_SESSIONS_LISTED_MAX) abort();
    for (uint32_t i = 0; i < list->reply.count; i++)
      is_plain(list->sessions[i].program, sizeof list->sessions[i].program);
    if (list->memory_is_told) is_plain(list->memory.refused_program, sizeof list->memory.refused_program);
  }
  free(list);
}

static void greet(size_t step) {
  struct vgpu_hello hello;
  size_t wanted = 0, filled = 0;
  for (;;) {
    unsigned char *bytes = malloc(filled + 1); /* of exact size, for the sanitizer */
    if (bytes == NULL) exit(2);
    memcpy(bytes, at, filled);
    enum vgpu_greeting_result result = vgpu_greeting_read(bytes, filled, &wanted, &hello);
    free(bytes);
    if (wanted > VGPU_GREETING_MAX) abort();
    if (result == VGPU_GREETING_WHOLE) (void)vgpu_greeting_status(&hello);
    if (result != VGPU_GREETING_PART) return;
    if (wanted <= filled) abort(); /* it would wait forever */
    size_t more = wanted - filled < step ? wanted - filled : step;
    if (filled + more > left) return;
    filled += more;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  at = data + 1;
  left = size - 1;
  if ((data[0] & 1) != 0) ask();
  else greet(1 + (data[0] >> 1));
  return 0;
}
