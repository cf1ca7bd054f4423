/* Asks a host for the sessions of this guest. For vgpu-probe and vgpu-watch. */
#ifndef VGPU_WIRE_SESSIONS_H
#define VGPU_WIRE_SESSIONS_H

#include <stdbool.h>

#include "wire/address.h"
#include "wire/frame.h"

#define VGPU_SESSIONS_LISTED_MAX 256u

enum vgpu_sessions_result {
  VGPU_SESSIONS_OK = 0,
  VGPU_SESSIONS_UNREACHED = 1, /* the connection failed; errno says why */
  VGPU_SESSIONS_REFUSED =
      2, /* `status` is the host's; VGPU_STATUS_REFUSED: the host is too old for this question */
  VGPU_SESSIONS_TIMEOUT = 3,
  VGPU_SESSIONS_UNSOUND = 4, /* the answer is not from vgpu-hostd */
};

struct vgpu_sessions_list {
  int32_t status;
  struct vgpu_sessions_reply reply; /* its `count` is that of `sessions`; of a host with another version: only
                                       the welcome, if it arrived */
  bool memory_is_told;              /* false for older hosts */
  struct vgpu_memory_told memory;
  struct vgpu_session_facts sessions[VGPU_SESSIONS_LISTED_MAX];
};

/* Connects, asks and closes, all before the deadline (vgpu_now_ms). All text is zero-terminated and plain. */
enum vgpu_sessions_result vgpu_sessions_ask(const struct vgpu_address *address,
                                            struct vgpu_sessions_list *list, int64_t deadline);

/* Like vgpu_sessions_ask, on a connection that has just been made. */
enum vgpu_sessions_result vgpu_sessions_ask_on(int descriptor, struct vgpu_sessions_list *list,
                                               int64_t deadline);

#endif
