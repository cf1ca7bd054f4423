/*
 * Confines a worker before it serves a guest. A guest that exploits a fault of the worker then controls a
 * process that can compute and answer, but has no files, sockets, programs or other processes.
 */
#ifndef VGPU_HOST_CONFINE_H
#define VGPU_HOST_CONFINE_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

#define VGPU_FILTER_MOST 4096u       /* instructions; the kernel's limit (BPF_MAXINSNS) */
#define VGPU_FILTER_SELF 0x76677075u /* placeholder in a filter for the worker's own process id */

struct vgpu_filter_program {
  uint32_t count;
  struct sock_filter instructions[VGPU_FILTER_MOST];
};

/*
 * For the daemon: makes the filter once for all workers. False: this kernel cannot filter system calls, for
 * the reason in `error`.
 */
bool vgpu_confine_prepare(void *(*make_filter)(void), struct vgpu_filter_program *program, char *error,
                          uint64_t error_size);

/*
 * For a worker: confines it permanently. If `program` is NULL, no system call filter is installed. When a
 * denied system call ends the worker, its number is written to `denied`, which is memory that the daemon
 * reads. False with errno: the worker must not continue.
 */
bool vgpu_confine(const struct vgpu_filter_program *program, bool reads_itself, int32_t *denied);

/* Called as root, before the change of user: no capability can be acquired afterwards. */
void vgpu_confine_bounds(void);

/*
 * The name of a system call: "execve" for 59; "?" if it is not known. The caller frees it; NULL: no memory.
 */
char *vgpu_confine_name(int32_t number);

#endif
