/*
 * CONTEXT_LOCAL_STORAGE: what a program (each copy of the CUDA runtime) keeps
 * per context, under a key of its own. All functions are safe from any thread and
 * after fork(), where a child starts with nothing. When a context goes, the
 * destructors of its values run.
 */
#ifndef VGPU_PRIVATE_LOCAL_STORAGE_H
#define VGPU_PRIVATE_LOCAL_STORAGE_H

typedef void (*vgpu_local_destructor)(void *context, void *key, void *value);

/* A NULL context means the calling thread's; CUDA_ERROR_INVALID_CONTEXT if it has none. */
int vgpu_local_put(void *context, void *key, void *value, vgpu_local_destructor destructor);
/* Forgets the value without running its destructor; an unknown key is no error. */
int vgpu_local_delete(void *context, void *key);
/*
 * CUDA_ERROR_INVALID_HANDLE: nothing was put. The runtime then puts. CUDA_ERROR_INVALID_CONTEXT: the context
 * has ended. The runtime then retains the primary context again.
 */
int vgpu_local_get(void **value, void *context, void *key);

#endif
