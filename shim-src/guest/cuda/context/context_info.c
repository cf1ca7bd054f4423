#include "cuda_api.h"
#include "api/device_attributes.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"

/* CUlimit numbers that a context does not keep as the program sets them. */
enum {
  LIMIT_STACK = 0,
  LIMIT_SYNC_DEPTH = 3,
  LIMIT_SHARED_MEMORY = 7,
  LIMIT_CIG_ENABLED = 8,
  LIMIT_CIG_SHARED_FALLBACK = 9
};

/* LIMIT_CIG_SHARED_FALLBACK is for contexts that share the device with a graphics queue. Here none does. */
static bool is_unsupported(const int32_t *device, int32_t limit) {
  return limit == LIMIT_CIG_SHARED_FALLBACK ||
         (limit == LIMIT_SYNC_DEPTH && device[VGPU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] >= 9);
}

/* Gives `given`, or the current context if `given` is NULL. */
static int choose(struct vgpu_context *given, struct vgpu_driver **driver, struct vgpu_context **context) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  *context = given != NULL ? given : vgpu_cuda_current_context();
  return given != NULL ? vgpu_cuda_context_check(given) : vgpu_cuda_current(*driver, context);
}

/*
 * Like choose(), but accepts a primary context that nobody retains: the runtime asks for its device and flags
 * before it retains the context again.
 */
static int choose_known(struct vgpu_context *given, struct vgpu_driver **driver,
                        struct vgpu_context **context) {
  const int result = choose(given, driver, context);
  return result == CUDA_ERROR_CONTEXT_IS_DESTROYED && (*context)->primary ? CUDA_SUCCESS : result;
}

/*
 * Returns the context that a caller of NAME_v2 means. CUDA 13 added the parameter; older programs that prefer
 * NAME_v2 to NAME (numba up to 0.61) pass none, so the register holds any value. A value that never was a
 * context means the current one; a destroyed context is an error.
 */
static struct vgpu_context *meant(struct vgpu_context *given) {
  return vgpu_cuda_context_ever(given) ? given : NULL;
}

int cuCtxGetDevice_v2(int32_t *device, struct vgpu_context *ctx) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose_known(meant(ctx), &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  *device = context->ordinal;
  return CUDA_SUCCESS;
}

int cuCtxGetDevice(int32_t *device) {
  return cuCtxGetDevice_v2(device, NULL);
}

int cuCtxGetFlags(uint32_t *flags) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose_known(NULL, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

int cuCtxSetFlags(uint32_t flags) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(NULL, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if ((flags & ~0xffu) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

int cuCtxSynchronize_v2(struct vgpu_context *ctx) {
  ctx = meant(ctx);
  if (ctx == NULL) return cuCtxSynchronize();
  int result = cuCtxPushCurrent_v2(ctx);
  if (result != CUDA_SUCCESS) return result;
  result = cuCtxSynchronize();
  cuCtxPopCurrent_v2(NULL);
  return result;
}

int cuCtxGetApiVersion(struct vgpu_context *ctx, uint32_t *version) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(ctx, &driver, &context);
  /*
   * Driver 580 returns this for a primary context that nobody retains. The runtime then retains the context
   * again.
   */
  if (ctx != NULL && result == CUDA_ERROR_CONTEXT_IS_DESTROYED) return CUDA_ERROR_INVALID_CONTEXT;
  if (result != CUDA_SUCCESS) return result;
  if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020; /* the API of 64-bit device pointers; all our contexts have it */
  return CUDA_SUCCESS;
}

int cuCtxGetLimit(size_t *pvalue, int32_t limit) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(NULL, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (pvalue == NULL || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  const int32_t *device = driver->facts[context->ordinal].attributes;
  if (is_unsupported(device, limit)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == LIMIT_SHARED_MEMORY || limit == LIMIT_CIG_ENABLED) {
    *pvalue =
        limit == LIMIT_CIG_ENABLED ? 0 : (size_t)device[VGPU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN];
    return CUDA_SUCCESS;
  }
  if (limit >= VGPU_LIMITS) return CUDA_ERROR_INVALID_VALUE;
  *pvalue = context->limits[limit];
  return CUDA_SUCCESS;
}

int cuCtxSetLimit(int32_t limit, size_t value) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(NULL, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (limit < 0) return CUDA_ERROR_INVALID_VALUE;
  if (is_unsupported(driver->facts[context->ordinal].attributes, limit)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == LIMIT_SHARED_MEMORY || limit == LIMIT_CIG_ENABLED) return CUDA_ERROR_NOT_PERMITTED;
  if (limit >= VGPU_LIMITS) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_send_cuCtxSetLimit send = {.value = value, .limit = (uint32_t)limit};
  result = vgpu_cuda_context_number(&send.context);
  /* "the device will block until all preceding requested tasks are complete" (CUDA driver API). */
  if (result == CUDA_SUCCESS && limit == LIMIT_STACK && __atomic_load_n(&driver->holds, __ATOMIC_ACQUIRE))
    result = vgpu_cuda_wait_context(send.context);
  if (result != CUDA_SUCCESS) return result;
  context->limits[limit] = value;
  return vgpu_cuda_post(VGPU_OP_cuCtxSetLimit, &send, sizeof send, NULL, 0);
}

int cuCtxResetPersistingL2Cache(void) {
  struct vgpu_send_cuCtxResetPersistingL2Cache send = {0};
  int result = vgpu_cuda_context_number(&send.context);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_cuda_post(VGPU_OP_cuCtxResetPersistingL2Cache, &send, sizeof send, NULL, 0);
}

int cuCtxGetCacheConfig(int32_t *pconfig) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(NULL, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (pconfig == NULL) return CUDA_ERROR_INVALID_VALUE;
  *pconfig = context->cache_config;
  return CUDA_SUCCESS;
}

int cuCtxSetCacheConfig(int32_t config) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(NULL, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (config < 0 || config > 3) return CUDA_ERROR_INVALID_VALUE;
  context->cache_config = config;
  return CUDA_SUCCESS;
}

int cuCtxGetSharedMemConfig(int32_t *pConfig) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(NULL, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (pConfig == NULL) return CUDA_ERROR_INVALID_VALUE;
  *pConfig = context->shared_config;
  return CUDA_SUCCESS;
}

/* No device since Maxwell follows this preference. */
int cuCtxSetSharedMemConfig(int32_t config) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(NULL, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  return config < 0 || config > 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

int cuCtxGetStreamPriorityRange(int32_t *leastPriority, int32_t *greatestPriority) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(NULL, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (leastPriority != NULL) *leastPriority = 0;
  if (greatestPriority != NULL) *greatestPriority = VGPU_GREATEST_PRIORITY;
  return CUDA_SUCCESS;
}

int cuCtxGetId(struct vgpu_context *ctx, uint64_t *ctxId) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(ctx, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (ctxId == NULL) return CUDA_ERROR_INVALID_VALUE;
  *ctxId = vgpu_cuda_context_own_number(driver, context);
  return CUDA_SUCCESS;
}

/* Like the real driver, counts only the current context. */
int cuCtxAttach(struct vgpu_context **pctx, uint32_t flags) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(NULL, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (pctx == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&driver->lock);
  context->references++;
  pthread_mutex_unlock(&driver->lock);
  *pctx = context;
  return CUDA_SUCCESS;
}

int cuCtxDetach(struct vgpu_context *ctx) {
  struct vgpu_driver *driver;
  struct vgpu_context *context = NULL;
  int result = choose(ctx, &driver, &context);
  if (result != CUDA_SUCCESS) return result;
  if (context->primary) return cuDevicePrimaryCtxRelease_v2(context->ordinal);
  pthread_mutex_lock(&driver->lock);
  bool last = context->references <= 1;
  if (!last) context->references--;
  pthread_mutex_unlock(&driver->lock);
  return last ? cuCtxDestroy_v2(context) : CUDA_SUCCESS;
}

static int peers(struct vgpu_context *peer, uint64_t *context, uint64_t *other, bool *possible) {
  struct vgpu_driver *driver;
  struct vgpu_context *current = NULL;
  int result = choose(NULL, &driver, &current);
  if (result != CUDA_SUCCESS) return result;
  if (peer == NULL || !vgpu_cuda_context_live(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  *possible = vgpu_peer_possible(current->ordinal, peer->ordinal);
  if (!*possible) return CUDA_SUCCESS;
  result = vgpu_cuda_context_number(context);
  return result == CUDA_SUCCESS ? vgpu_cuda_context_given(driver, peer, other) : result;
}

int cuCtxEnablePeerAccess(struct vgpu_context *peerContext, uint32_t Flags) {
  struct vgpu_send_cuCtxEnablePeerAccess send = {0};
  bool possible = false;
  int result = peers(peerContext, &send.context, &send.peer, &possible);
  if (result != CUDA_SUCCESS) return result;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!possible) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return vgpu_cuda_call(VGPU_OP_cuCtxEnablePeerAccess, &send, sizeof send, NULL, 0);
}

int cuCtxDisablePeerAccess(struct vgpu_context *peerContext) {
  struct vgpu_send_cuCtxDisablePeerAccess send = {0};
  bool possible = false;
  int result = peers(peerContext, &send.context, &send.peer, &possible);
  if (result != CUDA_SUCCESS) return result;
  if (!possible) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  return vgpu_cuda_call(VGPU_OP_cuCtxDisablePeerAccess, &send, sizeof send, NULL, 0);
}
