/* The daemon's messages: a line each on stderr, for people or (--json) as a JSON object. */
#ifndef VGPU_HOST_LOG_H
#define VGPU_HOST_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* Before anything is said. */
void vgpu_host_log_json(bool json);

/* `event` is a closed word ("listening", "session", "refused", "error", ...); session 0: none. */
__attribute__((format(printf, 3, 4))) void vgpu_host_log(const char *event, uint64_t session,
                                                         const char *format, ...);

/* The same with more members for the JSON object: `"name":value,...`, already JSON. */
__attribute__((format(printf, 4, 5))) void
vgpu_host_log_members(const char *event, uint64_t session, const char *members, const char *format, ...);

/*
 * For lines that any client can cause at will: only so many a second, and then how many were left out.
 */
__attribute__((format(printf, 3, 4))) void vgpu_host_log_limited(const char *event, uint64_t session,
                                                                 const char *format, ...);

/*
 * In a worker, before it serves: from now on every line is such a line, with a burst of its own, because all
 * of them are caused by one guest. `session`: for the line that says how many were left out.
 */
void vgpu_host_log_limit_all(uint64_t session);

/* Says how many lines were left out, if any and not said yet. At the end of a session. */
void vgpu_host_log_flush(void);

#endif
