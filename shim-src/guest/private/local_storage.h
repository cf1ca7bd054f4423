/*
 * CONTEXT_LOCAL_STORAGE: values that each copy of the CUDA runtime attaches to a context, by a key. Any
 * thread may call; a fork()ed child starts empty. When a context ends, the destructors of its values run.
 */
#ifndef VGPU_PRIVATE_LOCAL_STORAGE_H
#define VGPU_PRIVATE_LOCAL_STORAGE_H

typedef void (*vgpu_local_destructor)(void *context, void *key, void *value);

/*
 * Stores a value. If `context` is NULL, these functions use the calling thread's context, or return
 * CUDA_ERROR_INVALID_CONTEXT if it has none.
 */
int vgpu_local_put(void *context, void *key, void *value, vgpu_local_destructor destructor);
/* Removes the value without running its destructor. An unknown key is no error. */
int vgpu_local_delete(void *context, void *key);
/*
 * CUDA_ERROR_INVALID_HANDLE: there is no value; the runtime then stores one. CUDA_ERROR_INVALID_CONTEXT: the
 * context has ended; the runtime then retains the primary context again.
 */
int vgpu_local_get(void **value, void *context, void *key);

#endif
