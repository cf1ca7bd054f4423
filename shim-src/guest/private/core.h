/*
 * The functions of libcuda that the private tables call. core.c implements them with the guest session; the
 * tests implement them with devices of their own. Functions that return int return a CUresult.
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

/* The calling thread's context; NULL with success when it has none. */
int vgpu_private_core_current(void **context);
/* False also of a primary context that nobody retains. */
bool vgpu_private_core_active(const void *context);

/* cuCtxGetId. */
int vgpu_private_core_number(void *context, uint64_t *number);

/* cuStreamGetId. */
int vgpu_private_core_stream(void *stream, uint64_t *number);

/* The handle of a device's primary context, neither retained nor activated. */
int vgpu_private_core_primary(int device, void **context);

/* Calls `destroyed` for each context that goes, before its handle can be given out again. */
void vgpu_private_core_on_destroyed(void (*destroyed)(void *context));

/* 0 in the process that loaded the library, another number in each fork()ed child. */
unsigned vgpu_private_core_generation(void);

/*
 * Calls `take` for each function of a module; how many there are, 0 if it is no module. `owner` is the
 * module.
 */
typedef void vgpu_private_function(void *user, void *function, uint64_t owner);
uint64_t vgpu_private_core_functions(void *module, vgpu_private_function *take, void *user);

/* cuModuleLoadData. */
int vgpu_private_core_load(void **module, const void *image);

/* How the library last got on with its host. */
vgpu_transport_tell vgpu_private_core_transport;

/* A slot that is not known was called: for VGPU_LOG. */
void vgpu_private_core_refused(const char *table, unsigned slot);

/* A table that is not known was asked for: for VGPU_LOG. */
void vgpu_private_core_unknown(const unsigned char uuid[16]);

#endif
