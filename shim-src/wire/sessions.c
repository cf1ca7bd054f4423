#include "wire/sessions.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "wire/greeting.h"
#include "wire/stream.h"

static enum vgpu_sessions_result failure(enum vgpu_stream_result result) {
  return result == VGPU_STREAM_TIMEOUT ? VGPU_SESSIONS_TIMEOUT : VGPU_SESSIONS_UNSOUND;
}

/* Replaces control characters, which could change the terminal of a caller that prints the text. */
static void make_plain(char *text, size_t size) {
  text[size - 1] = '\0';
  size_t length = strlen(text);
  for (size_t i = 0; i < length; i++) {
    if (text[i] < ' ' || text[i] > '~') text[i] = '?';
  }
  memset(text + length, 0, size - length);
}

static enum vgpu_stream_result read_memory(int descriptor, struct vgpu_sessions_list *list, uint64_t size,
                                           int64_t deadline) {
  struct vgpu_memory_told *memory = &list->memory;
  enum vgpu_stream_result result = vgpu_stream_read(descriptor, memory, sizeof *memory, deadline);
  if (result == VGPU_STREAM_OK) result = vgpu_stream_skip(descriptor, size - sizeof *memory, deadline);
  make_plain(memory->refused_program, sizeof memory->refused_program);
  list->memory_is_told = result == VGPU_STREAM_OK;
  return result;
}

/* An older host sends shorter elements. A newer host sends longer elements, whose unknown rest is skipped. */
static enum vgpu_stream_result read_elements(int descriptor, struct vgpu_sessions_list *list,
                                             int64_t deadline) {
  enum vgpu_stream_result result = VGPU_STREAM_OK;
  const uint32_t size = list->reply.element_size;
  const uint32_t known =
      size < sizeof list->sessions[0] ? VGPU_SESSION_FACTS_FIRST : (uint32_t)sizeof list->sessions[0];
  for (uint32_t i = 0; i < list->reply.count && result == VGPU_STREAM_OK; i++) {
    struct vgpu_session_facts *facts = &list->sessions[i];
    result = vgpu_stream_read(descriptor, facts, known, deadline);
    if (result == VGPU_STREAM_OK) result = vgpu_stream_skip(descriptor, size - known, deadline);
    make_plain(facts->program, sizeof facts->program);
  }
  return result;
}

enum vgpu_sessions_result vgpu_sessions_ask_on(int descriptor, struct vgpu_sessions_list *list,
                                               int64_t deadline) {
  memset(list, 0, sizeof *list);
  struct vgpu_hello hello = {.major = VGPU_WIRE_MAJOR,
                             .minor = VGPU_WIRE_MINOR,
                             .features = VGPU_FEATURE_MEMORY,
                             .frame_max = VGPU_FRAME_MAX,
                             .library = VGPU_LIBRARY_SESSIONS};
  vgpu_hello_introduce(&hello);
  struct vgpu_frame frame = {.opcode = VGPU_OP_HELLO};
  /*
   * A host that refuses may have closed already. The error is ignored, because its answer can still be read.
   */
  (void)vgpu_stream_write_frame(descriptor, &frame, &hello, sizeof hello, NULL, 0, deadline);
  enum vgpu_stream_result result = vgpu_stream_read_header(descriptor, &frame, deadline);
  if (result != VGPU_STREAM_OK) return failure(result);
  if (frame.opcode != VGPU_OP_HELLO || frame.flags != VGPU_FLAG_REPLY || frame.sequence != 0) {
    return VGPU_SESSIONS_UNSOUND;
  }
  list->status = frame.status;
  if (frame.status != 0) {
    struct vgpu_welcome *welcome = &list->reply.welcome;
    bool version = frame.status == VGPU_STATUS_VERSION && frame.body >= sizeof *welcome;
    if (!version || vgpu_stream_read(descriptor, welcome, sizeof *welcome, deadline) != VGPU_STREAM_OK)
      memset(welcome, 0, sizeof *welcome);
    make_plain(welcome->host, sizeof welcome->host);
    return VGPU_SESSIONS_REFUSED;
  }
  if (frame.body < VGPU_SESSIONS_REPLY_FIRST) return VGPU_SESSIONS_UNSOUND;
  /* An older host sends a shorter reply, a newer host a longer one. */
  uint32_t known = frame.body < sizeof list->reply ? frame.body : (uint32_t)sizeof list->reply;
  result = vgpu_stream_read(descriptor, &list->reply, known, deadline);
  if (result == VGPU_STREAM_OK) result = vgpu_stream_skip(descriptor, frame.body - known, deadline);
  if (result != VGPU_STREAM_OK) return failure(result);
  struct vgpu_sessions_reply *reply = &list->reply;
  uint64_t listed = (uint64_t)reply->count * reply->element_size;
  bool memory = (reply->welcome.features & VGPU_FEATURE_MEMORY) != 0;
  if (memcmp(reply->welcome.magic, VGPU_WIRE_MAGIC, sizeof reply->welcome.magic) != 0 ||
      reply->count > VGPU_SESSIONS_LISTED_MAX || reply->element_size < VGPU_SESSION_FACTS_FIRST ||
      reply->element_size > VGPU_BULK_MAX ||
      (memory ? frame.bulk < listed + sizeof list->memory : frame.bulk != listed)) {
    return VGPU_SESSIONS_UNSOUND;
  }
  make_plain(reply->welcome.host, sizeof reply->welcome.host);
  make_plain(reply->welcome.nvml_version, sizeof reply->welcome.nvml_version);
  make_plain(reply->refused_program, sizeof reply->refused_program);
  make_plain(reply->refused_kernel, sizeof reply->refused_kernel);
  result = read_elements(descriptor, list, deadline);
  if (result == VGPU_STREAM_OK && memory)
    result = read_memory(descriptor, list, frame.bulk - listed, deadline);
  return result == VGPU_STREAM_OK ? VGPU_SESSIONS_OK : failure(result);
}

enum vgpu_sessions_result vgpu_sessions_ask(const struct vgpu_address *address,
                                            struct vgpu_sessions_list *list, int64_t deadline) {
  memset(list, 0, sizeof *list);
  int descriptor = vgpu_stream_connect(address, deadline);
  if (descriptor < 0) return errno == ETIMEDOUT ? VGPU_SESSIONS_TIMEOUT : VGPU_SESSIONS_UNREACHED;
  enum vgpu_sessions_result result = vgpu_sessions_ask_on(descriptor, list, deadline);
  close(descriptor);
  return result;
}
