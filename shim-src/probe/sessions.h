#ifndef VGPU_PROBE_SESSIONS_H
#define VGPU_PROBE_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* `host`: NULL: the configured one. False: no answer; the document says why. */
bool vgpu_probe_sessions(const char *host, int64_t limit_ms, FILE *out);

#endif
