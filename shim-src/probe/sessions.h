#ifndef VGPU_PROBE_SESSIONS_H
#define VGPU_PROBE_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Prints what the host reports about this guest's sessions, as one JSON document. `host` is its address;
 * NULL: the configured hosts. False: no host answered, and the document says why, or `out` could not be
 * written.
 */
bool vgpu_probe_sessions(const char *host, int64_t limit_ms, FILE *out);

#endif
