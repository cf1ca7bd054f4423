/* The daemon's messages: a line each on stderr, for people or (--json) as a JSON object. */
#ifndef VGPU_HOST_LOG_H
#define VGPU_HOST_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* Selects the form of the messages, before the first one. */
void vgpu_host_log_json(bool json);

/* `event` is a closed word ("listening", "session", "refused", "error", ...); session 0: none. */
__attribute__((format(printf, 3, 4))) void vgpu_host_log(const char *event, uint64_t session,
                                                         const char *format, ...);

/* The same with more members for the JSON object: `"name":value,...`, already JSON. */
__attribute__((format(printf, 4, 5))) void
vgpu_host_log_members(const char *event, uint64_t session, const char *members, const char *format, ...);

/*
 * For messages that a client can cause at any rate: only a limited number a second is written, then the
 * number of those that were left out.
 */
__attribute__((format(printf, 3, 4))) void vgpu_host_log_limited(const char *event, uint64_t session,
                                                                 const char *format, ...);

/*
 * Limits all messages of a worker in this way, with a burst of its own, because one guest causes all of them.
 * To be called before the worker serves. `session`: for the message about those that were left out.
 */
void vgpu_host_log_limit_all(uint64_t session);

/* Writes the number of messages that were left out since the last such message. For the end of a session. */
void vgpu_host_log_flush(void);

#endif
