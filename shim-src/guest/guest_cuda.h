/* The state of this process's driver, shared by the files of libcuda and by the private tables. */
#ifndef VGPU_GUEST_CUDA_H
#define VGPU_GUEST_CUDA_H

#include "cuda_results.h"
#include "guest/session.h"
#include "guest/transport.h"

typedef int CUresult_t;
struct vgpu_context;

/*
 * Returns 0 once cuInit has succeeded in this process; else NOT_INITIALIZED, or the error of the lost
 * session.
 */
int vgpu_cuda_ready(void);

/* A vgpu_transport_tell. It needs no cuInit and no host. */
int vgpu_cuda_transport(struct vgpu_transport_word *word, size_t size);

/*
 * Returns the CUDA version that programs see: 13000 for 13.0. Before cuInit this is the host's version, or
 * without a host the version that this library was built for.
 */
int vgpu_cuda_driver_version(void);

/* Returns how many devices the program may see, after CUDA_VISIBLE_DEVICES; 0 before cuInit. */
int vgpu_cuda_device_count(void);

/*
 * Returns the facts of a visible device; NULL if there is no such ordinal. The facts live until the process
 * ends.
 */
const struct vgpu_device_facts *vgpu_cuda_device_facts(int ordinal);

/* Returns the context (a CUcontext) that is current to the calling thread, or NULL. */
struct vgpu_context *vgpu_cuda_current_context(void);

/*
 * Returns 0 for a live context. CONTEXT_IS_DESTROYED: a primary context that nobody retains. INVALID_CONTEXT:
 * any other value. `context` is not dereferenced unless it is live.
 */
int vgpu_cuda_context_check(const void *context);

/*
 * Gives the primary context of a device. The context is made if needed, but not made current, and its
 * reference count does not change. Returns a CUresult.
 */
int vgpu_cuda_primary_context(int ordinal, struct vgpu_context **context);

/*
 * True if `context` is a live CUcontext of this process. Any value is allowed: only a live context is
 * dereferenced.
 */
bool vgpu_cuda_context_live(const void *context);

/* True if `context` is or was a CUcontext of this process. Any value is allowed: it is never dereferenced. */
bool vgpu_cuda_context_ever(const void *context);

/*
 * Registers the function that is called for each context that is destroyed, because programs attach values to
 * contexts (CONTEXT_LOCAL_STORAGE). NULL removes the function.
 */
void vgpu_cuda_on_context_destroyed(void (*destroyed)(struct vgpu_context *context));

#endif
