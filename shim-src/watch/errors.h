#ifndef VGPU_WATCH_ERRORS_H
#define VGPU_WATCH_ERRORS_H

#include <stdbool.h>

/*
 * Copies what can be read at `from`, without waiting, to standard error, except the line that V8 writes for
 * --jitless. False: `from` has ended.
 */
bool vgpu_watch_pass_errors(int from);

#endif
