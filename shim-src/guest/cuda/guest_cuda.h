/*
 * What libcuda's files (and the private tables beside them) share: the state of this process's driver.
 */
#ifndef VGPU_GUEST_CUDA_H
#define VGPU_GUEST_CUDA_H

#include "cuda_results.h"
#include "guest/session.h"
#include "guest/transport.h"

typedef int CUresult_t;
struct vgpu_context;

/* The CUresult values our own code gives. */
enum vgpu_cuda_result {
  VGPU_CUDA_SUCCESS = CUDA_SUCCESS,
  VGPU_CUDA_INVALID_VALUE = CUDA_ERROR_INVALID_VALUE,
  VGPU_CUDA_OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY,
  VGPU_CUDA_NOT_INITIALIZED = CUDA_ERROR_NOT_INITIALIZED,
  VGPU_CUDA_DEINITIALIZED = CUDA_ERROR_DEINITIALIZED,
  VGPU_CUDA_NO_DEVICE = CUDA_ERROR_NO_DEVICE,
  VGPU_CUDA_INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE,
  VGPU_CUDA_INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT,
  VGPU_CUDA_OPERATING_SYSTEM = CUDA_ERROR_OPERATING_SYSTEM,
  VGPU_CUDA_INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE,
  VGPU_CUDA_ILLEGAL_STATE = CUDA_ERROR_ILLEGAL_STATE,
  VGPU_CUDA_LOSSY_QUERY = CUDA_ERROR_LOSSY_QUERY,
  VGPU_CUDA_NOT_FOUND = CUDA_ERROR_NOT_FOUND,
  VGPU_CUDA_NOT_READY = CUDA_ERROR_NOT_READY,
  VGPU_CUDA_PRIMARY_CONTEXT_ACTIVE = CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
  VGPU_CUDA_CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED,
  VGPU_CUDA_NOT_PERMITTED = CUDA_ERROR_NOT_PERMITTED,
  VGPU_CUDA_NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED,
  VGPU_CUDA_SYSTEM_NOT_READY = CUDA_ERROR_SYSTEM_NOT_READY,
  VGPU_CUDA_UNKNOWN = CUDA_ERROR_UNKNOWN
};

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
