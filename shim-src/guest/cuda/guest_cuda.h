/* The state of this process's driver, shared by the files of libcuda and by the private tables. */
#ifndef VGPU_GUEST_CUDA_H
#define VGPU_GUEST_CUDA_H

#include "cuda_results.h"
#include "guest/session.h"
#include "guest/transport.h"

typedef int CUresult_t;
struct vgpu_context;

/* 0 once cuInit has succeeded in this process, else the CUresult to give (NOT_INITIALIZED, or the loss). */
int vgpu_cuda_ready(void);

/* A vgpu_transport_tell: needs no cuInit and no host. */
int vgpu_cuda_transport(struct vgpu_transport_word *word, size_t size);

/* CUDA version advertised to programs, 13000 for 13.0; known before cuInit only if a host answers (else
 * the one this library was built for). */
int vgpu_cuda_driver_version(void);

/* Devices the program may see, after CUDA_VISIBLE_DEVICES; 0 before cuInit. */
int vgpu_cuda_device_count(void);

/* Facts of a visible device; NULL if there is no such ordinal. Live until the process ends. */
const struct vgpu_device_facts *vgpu_cuda_device_facts(int ordinal);

/* The context current to the calling thread (a CUcontext), or NULL. */
struct vgpu_context *vgpu_cuda_current_context(void);

/*
 * The primary context of a device, its reference count left alone: made if need be, not made current.
 * 0 and *context, or a CUresult.
 */
int vgpu_cuda_primary_context(int ordinal, struct vgpu_context **context);

/* True if the pointer is a live CUcontext of this process; never dereferences it before knowing. */
bool vgpu_cuda_context_live(const void *context);

/* True if the pointer is or was a CUcontext of this process; never dereferences it. */
bool vgpu_cuda_context_ever(const void *context);

/*
 * Values that others hang on a context (CONTEXT_LOCAL_STORAGE): called for each when the context goes.
 * The private tables register one function; NULL takes it away.
 */
void vgpu_cuda_on_context_destroyed(void (*destroyed)(struct vgpu_context *context));

#endif
