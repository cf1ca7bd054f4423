/* The daemon's messages: a line each on stderr, for people or (--json) as a JSON object. */
#ifndef VGPU_HOST_LOG_H
#define VGPU_HOST_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "host/bucket.h"

/* Selects the form of the messages, before the first one. */
void vgpu_host_log_json(bool json);

/* `event` is a closed word ("listening", "session", "refused", "error", ...); session 0: none. */
__attribute__((format(printf, 3, 4))) void vgpu_host_log(const char *event, uint64_t session,
                                                         const char *format, ...);

/* The same with more members for the JSON object: `"name":value,...`, already JSON. */
__attribute__((format(printf, 4, 5))) void
vgpu_host_log_members(const char *event, uint64_t session, const char *members, const char *format, ...);

/* The lines of a peer: of all its workers, also those that have ended. */
struct vgpu_log_budget {
  struct vgpu_bucket bucket;
  uint64_t left_out; /* and not told yet */
  uint64_t session;  /* of the last line */
};

/* True if one more line may be written; how many were left out is told before. Else it counts as left out. */
bool vgpu_host_log_spend(struct vgpu_log_budget *budget);

/* Counts lines that a worker has left out by itself. */
void vgpu_host_log_leave_out(struct vgpu_log_budget *budget, uint64_t count);

/* Tells how many were left out. False: not yet. */
bool vgpu_host_log_tell_left_out(struct vgpu_log_budget *budget);

/*
 * A worker's message, on its standard error: this header, then event, members and text, each with a zero byte
 * at its end. Whatever else comes there has another first byte.
 */
#define VGPU_LOG_MESSAGE 1
#define VGPU_LOG_MESSAGE_MOST 4096u
struct vgpu_log_header {
  unsigned char kind; /* VGPU_LOG_MESSAGE */
  unsigned char reserved[7];
  uint64_t left_out; /* lines before this one */
};

/* From here on the messages of this process, a worker, go to its daemon. */
void vgpu_host_log_of_worker(void);

/*
 * For messages that a client can cause at any rate: only a limited number a second is written, then the
 * number of those that were left out.
 */
__attribute__((format(printf, 3, 4))) void vgpu_host_log_limited(const char *event, uint64_t session,
                                                                 const char *format, ...);

/*
 * Limits all messages of a worker in this way, with a burst of its own, because one guest causes all of them.
 * To be called before the worker serves.
 */
void vgpu_host_log_limit_all(void);

/* Writes the number of messages that were left out since the last such message. For the end of a session. */
void vgpu_host_log_flush(void);

#endif
