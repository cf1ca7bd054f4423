/* The daemon's messages: a line each on stderr, for people or (--json) as a JSON object. */
#ifndef VGPU_HOST_LOG_H
#define VGPU_HOST_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "host/bucket.h"

/* Selects the form of the messages. Call this before the first message. */
void vgpu_host_log_json(bool json);

/* `event` is a word of a fixed set ("listening", "session", "refused", "error", ...). `session` 0: none. */
__attribute__((format(printf, 3, 4))) void vgpu_host_log(const char *event, uint64_t session,
                                                         const char *format, ...);

/* `members`: more members of the JSON object: `"name":value,...`. */
__attribute__((format(printf, 4, 5))) void
vgpu_host_log_members(const char *event, uint64_t session, const char *members, const char *format, ...);

/* The rate of lines of one peer, over all of its workers. */
struct vgpu_log_budget {
  struct vgpu_bucket bucket;
  uint64_t left_out; /* not reported yet */
  uint64_t session;  /* that caused the last line */
};

/*
 * True if one more line may be written; reports the omitted lines first. False: the line counts as omitted.
 */
bool vgpu_host_log_spend(struct vgpu_log_budget *budget);

/* Counts lines that a worker has omitted. */
void vgpu_host_log_leave_out(struct vgpu_log_budget *budget, uint64_t count);

/* Reports the number of omitted lines. False: the limit is still exceeded. */
bool vgpu_host_log_tell_left_out(struct vgpu_log_budget *budget);

/*
 * A worker's message on its standard error: this header, then event, members and text, each with a zero byte
 * at its end. Other output of the process begins with another byte.
 */
#define VGPU_LOG_MESSAGE 1
#define VGPU_LOG_MESSAGE_MOST 4096u
struct vgpu_log_header {
  unsigned char kind; /* VGPU_LOG_MESSAGE */
  unsigned char reserved[7];
  uint64_t left_out; /* lines omitted before this one */
};

/* Called by a worker: from now on this process sends its messages to the daemon. */
void vgpu_host_log_of_worker(void);

/* For messages that a client causes: a limited number a second, then the number of omitted ones. */
__attribute__((format(printf, 3, 4))) void vgpu_host_log_limited(const char *event, uint64_t session,
                                                                 const char *format, ...);

/* Limits all messages of this process, a worker, as vgpu_host_log_limited does. Called before it serves. */
void vgpu_host_log_limit_all(void);

/* Reports the number of omitted messages at the end of a session. */
void vgpu_host_log_flush(void);

#endif
