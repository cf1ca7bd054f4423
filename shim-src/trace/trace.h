/*
 * libvgpu-trace.so, for LD_PRELOAD: traces to which library each CUDA and NVML symbol of a process is bound.
 * Does nothing unless VGPU_TRACE names a file to append to ("-": stderr). An event is a line of key=value
 * pairs.
 */
#ifndef VGPU_TRACE_TRACE_H
#define VGPU_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- lines (line.c) ---- */

#define VGPU_TRACE_LINE 2048

struct vgpu_trace_line {
  char text[VGPU_TRACE_LINE];
  size_t length;
};

/*
 * Returns the descriptor for lines, which is opened at the first use. -1: no trace is wanted, or the file has
 * reached VGPU_TRACE_LIMIT bytes.
 */
int vgpu_trace_output(void);

void vgpu_trace_begin(struct vgpu_trace_line *line, const char *event);
/* Adds a value. A value with blanks, quotes or control characters is quoted. NULL is written as "-". */
void vgpu_trace_text(struct vgpu_trace_line *line, const char *key, const char *value);
void vgpu_trace_number(struct vgpu_trace_line *line, const char *key, int64_t value);
/* Adds the file that contains an address, or "-". */
void vgpu_trace_holder(struct vgpu_trace_line *line, const char *key, const void *address);
void vgpu_trace_end(struct vgpu_trace_line *line);

/* ---- what objects are bound to (bindings.c) ---- */

/* True for cuX... and nvmlX...: entry points of the driver API and of NVML. */
bool vgpu_trace_is_ours(const char *symbol);

/*
 * Traces each object that was loaded since the last call: the libraries to which its own references to entry
 * points are bound, and whether its dlopen and dlsym go through this library. `last`: also the symbols that
 * were bound lazily meanwhile.
 */
void vgpu_trace_scan(bool last);

/* ---- interposition (hooks.c, called by entry-*.S) ---- */

struct vgpu_trace_way {
  void *answer; /* if not NULL, it is returned to the caller */
  void *next;   /* else: jumped to, as if this library were not there */
};
struct vgpu_trace_way vgpu_trace_dlsym(void *handle, const char *symbol, const void *caller);
void *vgpu_trace_dlopen(const char *file, int flags, const void *caller);

/* ---- cuGetProcAddress (lookups.c) ---- */

/*
 * Returns the replacement for a library's cuGetProcAddress or cuGetProcAddress_v2; for other symbols returns
 * `real`.
 */
void *vgpu_trace_wrap(const char *symbol, void *real);

#endif
