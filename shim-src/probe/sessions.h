/* `vgpu-probe --sessions`: what the host says of this guest's sessions. */
#ifndef VGPU_PROBE_SESSIONS_H
#define VGPU_PROBE_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Prints one JSON document. `host`: its address; NULL: the configured one. False: the host did not tell. */
bool vgpu_probe_sessions(const char *host, int64_t limit_ms, FILE *out);

#endif
