/*
 * The functions of libcuda that the private tables call. core.c implements them with the guest session; the
 * tests have their own implementation. Functions that return int return a CUresult.
 */
#ifndef VGPU_PRIVATE_CORE_H
#define VGPU_PRIVATE_CORE_H

#include <stdbool.h>

#include "guest/private/integrity.h"
#include "guest/transport.h"

enum {
  VGPU_PRIVATE_SUCCESS = 0,
  VGPU_PRIVATE_INVALID_VALUE = 1,
  VGPU_PRIVATE_OUT_OF_MEMORY = 2,
  VGPU_PRIVATE_DEINITIALIZED = 4,
  VGPU_PRIVATE_INVALID_CONTEXT = 201,
  VGPU_PRIVATE_INVALID_HANDLE = 400,
  VGPU_PRIVATE_NOT_SUPPORTED = 801,

  VGPU_PRIVATE_MAX_DEVICES = 64,
};

/* Fails with CUDA_ERROR_NOT_INITIALIZED before cuInit, as the real table does. */
int vgpu_private_core_devices(uint32_t *driver_version,
                              struct vgpu_integrity_device devices[VGPU_PRIVATE_MAX_DEVICES],
                              unsigned *count);

/* Gives the calling thread's context; NULL with success if the thread has none. */
int vgpu_private_core_current(void **context);
/* False also of a primary context that nobody retains. */
bool vgpu_private_core_active(const void *context);

int vgpu_private_core_number(void *context, uint64_t *number);

int vgpu_private_core_stream(void *stream, uint64_t *number);

/* The handle of a device's primary context, neither retained nor activated. */
int vgpu_private_core_primary(int device, void **context);

/*
 * Registers a function that is called for each context that ends, before the context's handle can be reused.
 */
void vgpu_private_core_on_destroyed(void (*destroyed)(void *context));

/* 0 in the process that loaded the library, another number in each fork()ed child. */
unsigned vgpu_private_core_generation(void);

/*
 * vgpu_private_core_functions calls `take` for each function of a module, with the module as `owner`. Returns
 * the number of functions; 0 if `module` is not a module.
 */
typedef void vgpu_private_function(void *user, void *function, uint64_t owner);
uint64_t vgpu_private_core_functions(void *module, vgpu_private_function *take, void *user);

int vgpu_private_core_load(void **module, const void *image);

vgpu_transport_tell vgpu_private_core_transport;

void vgpu_private_core_refused(const char *table, unsigned slot);

void vgpu_private_core_unknown(const unsigned char uuid[16]);

#endif
