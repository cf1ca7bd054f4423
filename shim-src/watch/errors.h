#ifndef VGPU_WATCH_ERRORS_H
#define VGPU_WATCH_ERRORS_H

#include <stdbool.h>

/* Copies what can be read without waiting to stderr, but not V8's line for --jitless. False: ended. */
bool vgpu_watch_pass_errors(int from);

#endif
