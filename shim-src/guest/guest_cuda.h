/* The state of this process's driver, shared by the files of libcuda and by the private tables. */
#ifndef VGPU_GUEST_CUDA_H
#define VGPU_GUEST_CUDA_H

#include "cuda_results.h"
#include "guest/session.h"
#include "guest/transport.h"

typedef int CUresult_t;
struct vgpu_context;

/*
 * Returns 0 once cuInit has succeeded in this process, else the CUresult for the program: NOT_INITIALIZED, or
 * the error of the lost session.
 */
int vgpu_cuda_ready(void);

/* A vgpu_transport_tell. It needs no cuInit and no host. */
int vgpu_cuda_transport(struct vgpu_transport_word *word, size_t size);

/*
 * Returns the CUDA version that programs see: 13000 for 13.0. Before cuInit it is known only if a host
 * answers; without a host it is the version that this library was built for.
 */
int vgpu_cuda_driver_version(void);

/* Count of the devices that the program may see, after CUDA_VISIBLE_DEVICES; 0 before cuInit. */
int vgpu_cuda_device_count(void);

/* Facts of a visible device; NULL if there is no such ordinal. They live until the process ends. */
const struct vgpu_device_facts *vgpu_cuda_device_facts(int ordinal);

/* The context current to the calling thread (a CUcontext), or NULL. */
struct vgpu_context *vgpu_cuda_current_context(void);

/*
 * CUDA_ERROR_CONTEXT_IS_DESTROYED: a primary context that nobody retains. CUDA_ERROR_INVALID_CONTEXT: any
 * other value that is not a live context. `context` is not dereferenced unless it is live.
 */
int vgpu_cuda_context_check(const void *context);

/*
 * Gives the primary context of a device. It is made if needed, but not made current, and its reference count
 * does not change. Returns 0 and *context, or a CUresult.
 */
int vgpu_cuda_primary_context(int ordinal, struct vgpu_context **context);

/*
 * True if the pointer is a live CUcontext of this process. The pointer may be any value: it is not
 * dereferenced unless it is live.
 */
bool vgpu_cuda_context_live(const void *context);

/* True if the pointer is or was a CUcontext of this process. It is never dereferenced. */
bool vgpu_cuda_context_ever(const void *context);

/*
 * Registers the function that is called for each context that is destroyed. The private tables need it,
 * because programs attach values to contexts (CONTEXT_LOCAL_STORAGE). NULL removes the function.
 */
void vgpu_cuda_on_context_destroyed(void (*destroyed)(struct vgpu_context *context));

#endif
