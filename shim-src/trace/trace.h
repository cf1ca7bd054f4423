/*
 * libvgpu-trace.so: for LD_PRELOAD, tells which library each CUDA and NVML symbol of a process binds to. It
 * is a tool to look with and nothing of the shim needs it. Off unless VGPU_TRACE names a file to append to
 * ("-" is standard error); a line an event, as key=value pairs. VGPU_TRACE_LIMIT is the length in bytes from
 * which on nothing is added.
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

/* Where lines go, opened at the first use: -1 when nothing is wanted, or VGPU_TRACE_LIMIT is reached. */
int vgpu_trace_output(void);

void vgpu_trace_begin(struct vgpu_trace_line *line, const char *event);
/* A value with blanks, quotes or control characters is quoted. NULL is written as "-". */
void vgpu_trace_text(struct vgpu_trace_line *line, const char *key, const char *value);
void vgpu_trace_number(struct vgpu_trace_line *line, const char *key, int64_t value);
/* The file that holds an address, or "-". */
void vgpu_trace_holder(struct vgpu_trace_line *line, const char *key, const void *address);
void vgpu_trace_end(struct vgpu_trace_line *line);

/* ---- what objects are bound to (bindings.c) ---- */

/* cuX..., nvmlX...: an entry point of the driver API or of NVML. */
bool vgpu_trace_is_ours(const char *symbol);

/*
 * Tells of each object that was loaded since it was called last, what its own references to entry points
 * are bound to, and whether its dlopen and dlsym come by this library at all. `last`: also what was bound
 * lazily in the meantime.
 */
void vgpu_trace_scan(bool last);

/* ---- interposition (hooks.c, called by entry-*.S) ---- */

struct vgpu_trace_way {
  void *answer; /* given back if not NULL */
  void *next;   /* else: jumped to, as if we were not there */
};
struct vgpu_trace_way vgpu_trace_dlsym(void *handle, const char *symbol, const void *caller);
void *vgpu_trace_dlopen(const char *file, int flags, const void *caller);

/* ---- cuGetProcAddress (lookups.c) ---- */

/*
 * The replacement for a library's cuGetProcAddress or cuGetProcAddress_v2; for all other symbols `real`
 * itself.
 */
void *vgpu_trace_wrap(const char *symbol, void *real);

#endif
