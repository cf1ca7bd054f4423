/*
 * Confines a worker before it serves a guest. A guest that uses a mistake in the worker then controls a
 * process that can compute and answer, and nothing else: no files, no sockets, no programs, no other process.
 */
#ifndef VGPU_HOST_CONFINE_H
#define VGPU_HOST_CONFINE_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

#define VGPU_FILTER_MOST 4096u       /* instructions, as the kernel has it */
#define VGPU_FILTER_SELF 0x76677075u /* in a filter: the worker's own process */

struct vgpu_filter_program {
  uint32_t count;
  struct sock_filter instructions[VGPU_FILTER_MOST];
};

/* By the daemon: whether this kernel filters system calls, and what making a filter costs is paid here. */
bool vgpu_confine_prepare(void *(*make_filter)(void), struct vgpu_filter_program *program, char *error,
                          uint64_t error_size);

/*
 * In a worker, for good; without a program all but the filter. `denied` is where the number of a system call
 * that ends it is left for the daemon to tell, in memory shared with it. False with errno: the worker must
 * not go on.
 */
bool vgpu_confine(const struct vgpu_filter_program *program, bool reads_itself, int32_t *denied);

/* No capability can be had again; before root becomes somebody else, who could not see to it. */
void vgpu_confine_bounds(void);

/* "execve" for 59; "?" for what has no name here. For free(); NULL when there is no memory. */
char *vgpu_confine_name(int32_t number);

#endif
