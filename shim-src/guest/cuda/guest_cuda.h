/*
 * What libcuda's files (and the private tables beside them) share: the state of this process's driver.
 */
#ifndef VGPU_GUEST_CUDA_H
#define VGPU_GUEST_CUDA_H

#include "guest/session.h"

typedef int CUresult_t;
struct vgpu_context;

/* The CUresult values our own code gives. Numbers are those of the CUDA driver API. */
enum vgpu_cuda_result {
  VGPU_CUDA_SUCCESS = 0,
  VGPU_CUDA_INVALID_VALUE = 1,
  VGPU_CUDA_OUT_OF_MEMORY = 2,
  VGPU_CUDA_NOT_INITIALIZED = 3,
  VGPU_CUDA_DEINITIALIZED = 4,
  VGPU_CUDA_NO_DEVICE = 100,
  VGPU_CUDA_INVALID_DEVICE = 101,
  VGPU_CUDA_INVALID_CONTEXT = 201,
  VGPU_CUDA_PRIMARY_CONTEXT_ACTIVE = 208,
  VGPU_CUDA_OPERATING_SYSTEM = 304,
  VGPU_CUDA_INVALID_HANDLE = 400,
  VGPU_CUDA_ILLEGAL_STATE = 401,
  VGPU_CUDA_LOSSY_QUERY = 402,
  VGPU_CUDA_NOT_FOUND = 500,
  VGPU_CUDA_NOT_READY = 600,
  VGPU_CUDA_PRIMARY_CONTEXT_NOT_SUPPORTED = 708,
  VGPU_CUDA_CONTEXT_IS_DESTROYED = 709,
  VGPU_CUDA_NOT_PERMITTED = 800,
  VGPU_CUDA_NOT_SUPPORTED = 801,
  VGPU_CUDA_SYSTEM_NOT_READY = 802,
  VGPU_CUDA_UNKNOWN = 999
};

/* 0 once cuInit has succeeded in this process, else the CUresult to give (NOT_INITIALIZED, or the loss). */
int vgpu_cuda_ready(void);

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
