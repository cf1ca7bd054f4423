/* Shared by the files of libcuda and the private tables. */
#ifndef VGPU_GUEST_CUDA_H
#define VGPU_GUEST_CUDA_H

#include "cuda_results.h"
#include "guest/session.h"
#include "guest/transport.h"

typedef int CUresult_t;
struct vgpu_context;

/* 0: cuInit has succeeded in this process. Else NOT_INITIALIZED, or the error of the lost session. */
int vgpu_cuda_ready(void);

/* A vgpu_transport_tell. It needs no cuInit and no host. */
int vgpu_cuda_transport(struct vgpu_transport_word *word, size_t size);

/* 13000 for 13.0. Before cuInit the host's, or without a host the version that this library was built for. */
int vgpu_cuda_driver_version(void);

/* The devices that CUDA_VISIBLE_DEVICES leaves; 0 before cuInit. */
int vgpu_cuda_device_count(void);

/* NULL: no such ordinal. The facts live until the process ends. */
const struct vgpu_device_facts *vgpu_cuda_device_facts(int ordinal);

struct vgpu_context *vgpu_cuda_current_context(void);

/* CONTEXT_IS_DESTROYED: a primary context that nobody retains. INVALID_CONTEXT: no live context. */
int vgpu_cuda_context_check(const void *context);

/* Makes the primary context if needed, not current, and leaves its reference count. Returns a CUresult. */
int vgpu_cuda_primary_context(int ordinal, struct vgpu_context **context);

/* True for a live CUcontext of this process. Takes any value. */
bool vgpu_cuda_context_live(const void *context);

/* True for a CUcontext that lives or lived in this process. Takes any value. */
bool vgpu_cuda_context_ever(const void *context);

/* `destroyed` is called for each context that is destroyed (CONTEXT_LOCAL_STORAGE needs it). NULL: none. */
void vgpu_cuda_on_context_destroyed(void (*destroyed)(struct vgpu_context *context));

#endif
