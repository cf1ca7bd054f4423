/*
 * What a worker may still do once it serves a guest. A guest that finds a mistake in it then holds a process
 * that can compute and answer, and nothing else: no files, no sockets, no programs, no other process.
 */
#ifndef VGPU_HOST_CONFINE_H
#define VGPU_HOST_CONFINE_H

#include <stdbool.h>
#include <stdint.h>

/* Before the first session: whether this kernel filters system calls, and what a filter costs is paid here.
 */
bool vgpu_confine_prepare(void *(*make_filter)(void), char *error, uint64_t error_size);

/*
 * In a worker, for good. `denied` is where the number of a system call that ends it is left for the daemon to
 * tell, in memory shared with it. False with errno: the worker must not go on.
 */
bool vgpu_confine(bool filter, bool reads_itself, int32_t *denied);

/* "execve" for 59; "?" for what has no name here. For free(); NULL when there is no memory. */
char *vgpu_confine_name(int32_t number);

#endif
