/*
 * A primary context is made at the host only when a call needs it there: the runtime retains one in every
 * process.
 */
#include <stdlib.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/texture/array.h"
#include "guest/cuda/module/code.h"
#include "guest/cuda/stream/capture.h"
#include "guest/cuda/stream/gate.h"
#include "guest/reentry.h"

#define STACK_DEPTH 64

/*
 * An entry keeps the context's number, because a context that is made later at the same address has another
 * number.
 */
struct stack_entry {
  struct vgpu_context *context;
  uint64_t number;
};

static __thread struct {
  uint64_t epoch; /* epoch of the driver that the entries belong to */
  unsigned depth;
  struct stack_entry entries[STACK_DEPTH];
} stack;

static void (*on_destroyed)(struct vgpu_context *context);

void vgpu_cuda_on_context_destroyed(void (*destroyed)(struct vgpu_context *context)) {
  __atomic_store_n(&on_destroyed, destroyed, __ATOMIC_RELEASE);
}

uint64_t vgpu_cuda_next_number(struct vgpu_driver *driver) {
  return driver->next_number++;
}

/* Empties the stack when its driver is gone: the host was lost, or this is a fork()ed child. */
static void refresh_stack(const struct vgpu_driver *driver) {
  if (stack.epoch == driver->epoch) return;
  stack.epoch = driver->epoch;
  stack.depth = 0;
}

static bool is_primary(const struct vgpu_driver *driver, const void *context) {
  for (int32_t i = 0; i < driver->device_count; i++) {
    if (context == &driver->primary[i]) return true;
  }
  return false;
}

static bool is_live(const struct vgpu_driver *driver, const void *context) {
  return is_primary(driver, context) || vgpu_objects_has(&driver->objects, context, VGPU_OBJECT_CONTEXT);
}

bool vgpu_cuda_context_live(const void *context) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL || context == NULL) return false;
  pthread_mutex_lock(&driver->lock);
  bool live = is_live(driver, context);
  pthread_mutex_unlock(&driver->lock);
  return live;
}

int vgpu_cuda_context_check(const void *handle) {
  const struct vgpu_context *context = handle;
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  if (!is_live(driver, context)) result = CUDA_ERROR_INVALID_CONTEXT;
  else if (!context->active) result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  else result = CUDA_SUCCESS;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

bool vgpu_cuda_context_ever(const void *context) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL || context == NULL) return false;
  pthread_mutex_lock(&driver->lock);
  bool ever = is_live(driver, context);
  for (const struct vgpu_context *spare = driver->spare; spare != NULL && !ever; spare = spare->next)
    ever = spare == context;
  pthread_mutex_unlock(&driver->lock);
  return ever;
}

int vgpu_cuda_primary_context(int ordinal, struct vgpu_context **context) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (ordinal < 0 || ordinal >= driver->device_count) return CUDA_ERROR_INVALID_DEVICE;
  *context = &driver->primary[ordinal];
  return CUDA_SUCCESS;
}

static struct stack_entry *top(const struct vgpu_driver *driver) {
  refresh_stack(driver);
  return stack.depth == 0 ? NULL : &stack.entries[stack.depth - 1];
}

struct vgpu_context *vgpu_cuda_current_context(void) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return NULL;
  struct stack_entry *entry = top(driver);
  return entry == NULL ? NULL : entry->context;
}

static int check_entry(const struct vgpu_driver *driver, const struct stack_entry *entry) {
  const struct vgpu_context *context = entry->context;
  /* A primary context keeps its handle when it ends and begins again. */
  if (is_primary(driver, context)) {
    return context->active ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (!vgpu_objects_has(&driver->objects, context, VGPU_OBJECT_CONTEXT) || context->number != entry->number) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

int vgpu_cuda_current(struct vgpu_driver *driver, struct vgpu_context **context) {
  struct stack_entry *entry = top(driver);
  if (entry == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&driver->lock);
  int result = check_entry(driver, entry);
  pthread_mutex_unlock(&driver->lock);
  if (result == CUDA_SUCCESS) *context = entry->context;
  return result;
}

int vgpu_cuda_context_at_host(struct vgpu_driver *driver, struct vgpu_context *context) {
  while (context->begins) pthread_cond_wait(&driver->begun, &driver->lock);
  if (context->at_host) return CUDA_SUCCESS;
  if (context->number == 0) context->number = vgpu_cuda_next_number(driver);
  struct vgpu_send_cuDevicePrimaryCtxRetain send = {
      .context = context->number, .device = driver->host_index[context->ordinal], .flags = context->flags};
  context->begins = true;
  pthread_mutex_unlock(&driver->lock);
  int result = vgpu_cuda_call(VGPU_OP_cuDevicePrimaryCtxRetain, &send, sizeof send, NULL, 0);
  pthread_mutex_lock(&driver->lock);
  context->begins = false;
  pthread_cond_broadcast(&driver->begun);
  if (result != CUDA_SUCCESS) return result;
  if (context->number != send.context) { /* another thread has reset it */
    const struct vgpu_send_cuCtxDestroy_v2 end = {.context = send.context};
    vgpu_cuda_post(VGPU_OP_cuCtxDestroy_v2, &end, sizeof end, NULL, 0);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  context->at_host = true;
  return CUDA_SUCCESS;
}

int vgpu_cuda_context_number(uint64_t *number) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (vgpu_host_function_runs()) return CUDA_ERROR_NOT_PERMITTED;
  struct stack_entry *entry = top(driver);
  if (entry == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&driver->lock);
  result = check_entry(driver, entry);
  if (result == CUDA_SUCCESS) result = vgpu_cuda_context_at_host(driver, entry->context);
  if (result == CUDA_SUCCESS) *number = entry->context->number;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

int vgpu_cuda_context_given(struct vgpu_driver *driver, struct vgpu_context *context, uint64_t *number) {
  if (context == NULL) return vgpu_cuda_context_number(number);
  pthread_mutex_lock(&driver->lock);
  int result = is_live(driver, context) && context->active ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) result = vgpu_cuda_context_at_host(driver, context);
  if (result == CUDA_SUCCESS) *number = context->number;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

uint64_t vgpu_cuda_context_own_number(struct vgpu_driver *driver, struct vgpu_context *context) {
  pthread_mutex_lock(&driver->lock);
  if (context->number == 0) context->number = vgpu_cuda_next_number(driver);
  uint64_t number = context->number;
  pthread_mutex_unlock(&driver->lock);
  return number;
}

/*
 * False: not a live context. Reads the number under the lock, because another thread may assign one to a
 * primary context, or destroy this context.
 */
static bool entry_for(struct vgpu_driver *driver, struct vgpu_context *context, struct stack_entry *entry) {
  pthread_mutex_lock(&driver->lock);
  bool live = context != NULL && is_live(driver, context);
  if (live) *entry = (struct stack_entry){.context = context, .number = context->number};
  pthread_mutex_unlock(&driver->lock);
  return live;
}

static int push(struct vgpu_driver *driver, const struct stack_entry *entry) {
  refresh_stack(driver);
  if (stack.depth == STACK_DEPTH) return CUDA_ERROR_OUT_OF_MEMORY;
  stack.entries[stack.depth++] = *entry;
  return CUDA_SUCCESS;
}

static bool made_in(void *handle, void *context) {
  struct vgpu_stream *stream = handle; /* streams and events both begin with number and context */
  if (stream->context != context) return false;
  free(stream);
  return true;
}

_Static_assert(offsetof(struct vgpu_stream, context) == offsetof(struct vgpu_event, context), "made_in");

/*
 * Ends all objects of a context, in the guest and at the host. The caller holds driver->lock. Returns the
 * number that the context had.
 */
static uint64_t end_context(struct vgpu_driver *driver, struct vgpu_context *context) {
  uint64_t number = context->number;
  vgpu_gates_context_ends(context);
  if (context->at_host) {
    struct vgpu_send_cuCtxDestroy_v2 send = {.context = context->number};
    vgpu_cuda_post(VGPU_OP_cuCtxDestroy_v2, &send, sizeof send, NULL, 0);
  }
  vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_STREAM, made_in, context);
  vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_EVENT, made_in, context);
  vgpu_code_context_ended(driver, context);
  vgpu_texture_objects_context_ended(driver, context);
  vgpu_arrays_context_ended(driver, context);
  if (context->number != 0) {
    vgpu_regions_drop_context(&driver->regions, context->number);
    vgpu_readback_drop(driver, context->number);
  }
  context->covered = 0;
  context->legacy_covered = 0;
  context->at_host = false;
  context->number = 0;
  context->active = false;
  return number;
}

/* The part of destroying a context that must run without driver->lock. */
static void tell_destroyed(struct vgpu_driver *driver, struct vgpu_context *context, uint64_t number) {
  vgpu_capture_streams_ended(driver);
  if (number != 0) {
    vgpu_managed_code_give(driver, number);
    vgpu_staging_context_ended(driver, number);
  }
  /* A new context begins without the error of former work. */
  (void)vgpu_session_take_deferred(driver->session);
  void (*tell)(struct vgpu_context *) = __atomic_load_n(&on_destroyed, __ATOMIC_ACQUIRE);
  if (tell == NULL) return;
  uintptr_t inside = vgpu_step_out();
  tell(context);
  vgpu_step_in(inside);
}

static void set_defaults(struct vgpu_context *context) {
  static const size_t limits[VGPU_LIMITS] = {1024, 1048576, 8388608, 2, 2048, 64, 0};
  for (int i = 0; i < VGPU_LIMITS; i++) context->limits[i] = limits[i];
  context->cache_config = 0;
  context->shared_config = 1; /* CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE: the only one since Maxwell */
}

int cuDevicePrimaryCtxRetain(struct vgpu_context **pctx, int32_t dev) {
  if (pctx == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_context *context = NULL;
  int result = vgpu_cuda_primary_context(dev, &context);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  pthread_mutex_lock(&driver->lock);
  context->references++;
  if (!context->active) set_defaults(context);
  context->active = true;
  pthread_mutex_unlock(&driver->lock);
  *pctx = context;
  return CUDA_SUCCESS;
}

static int primary_down(int32_t dev, bool reset, int unretained) {
  struct vgpu_context *context = NULL;
  int result = vgpu_cuda_primary_context(dev, &context);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  pthread_mutex_lock(&driver->lock);
  if (!reset && context->references == 0) result = unretained;
  else if (!reset) context->references--;
  else if (context->greens > 0) result = CUDA_ERROR_NOT_PERMITTED;
  bool ends = result == CUDA_SUCCESS && context->active && (reset || context->references == 0);
  uint64_t number = ends ? end_context(driver, context) : 0;
  pthread_mutex_unlock(&driver->lock);
  if (ends) tell_destroyed(driver, context, number);
  return result;
}

int vgpu_cuda_hold_primary(struct vgpu_driver *driver, struct vgpu_context *context, bool *holds,
                           uint64_t *number) {
  pthread_mutex_lock(&driver->lock);
  if (!*holds) context->held++;
  *holds = true;
  int result = vgpu_cuda_context_at_host(driver, context);
  if (result == CUDA_SUCCESS) *number = context->number;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

void vgpu_cuda_let_primary_go(struct vgpu_driver *driver, struct vgpu_context *context) {
  pthread_mutex_lock(&driver->lock);
  const bool ends = --context->held == 0 && !context->active && context->at_host;
  uint64_t number = ends ? end_context(driver, context) : 0;
  pthread_mutex_unlock(&driver->lock);
  if (ends) tell_destroyed(driver, context, number);
}

int cuDevicePrimaryCtxRelease_v2(int32_t dev) {
  return primary_down(dev, false, CUDA_ERROR_INVALID_CONTEXT);
}

/*
 * When other code has released the primary context, the runtime of CUDA 12 and 13 calls this before it
 * retains the context again, and stops if it fails. Driver 580 succeeds here without a reference.
 */
int cuDevicePrimaryCtxRelease(int32_t dev) {
  return primary_down(dev, false, CUDA_SUCCESS);
}

int cuDevicePrimaryCtxReset_v2(int32_t dev) {
  return primary_down(dev, true, CUDA_SUCCESS);
}

int cuDevicePrimaryCtxReset(int32_t dev) {
  return primary_down(dev, true, CUDA_SUCCESS);
}

#define KNOWN_FLAGS 0xffu

static int primary_flags(int32_t dev, uint32_t flags, bool refuse_active) {
  struct vgpu_context *context = NULL;
  int result = vgpu_cuda_primary_context(dev, &context);
  if (result != CUDA_SUCCESS) return result;
  if ((flags & ~KNOWN_FLAGS) != 0) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  pthread_mutex_lock(&driver->lock);
  if (refuse_active && context->active && context->flags != flags) {
    result = CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  } else {
    context->flags = flags;
  }
  pthread_mutex_unlock(&driver->lock);
  return result;
}

int cuDevicePrimaryCtxSetFlags(int32_t dev, uint32_t flags) {
  return primary_flags(dev, flags, true);
}

/* Since CUDA 11 the flags of an active context can be changed, too. */
int cuDevicePrimaryCtxSetFlags_v2(int32_t dev, uint32_t flags) {
  return primary_flags(dev, flags, false);
}

int cuDevicePrimaryCtxGetState(int32_t dev, uint32_t *flags, int32_t *active) {
  struct vgpu_context *context = NULL;
  int result = vgpu_cuda_primary_context(dev, &context);
  if (result != CUDA_SUCCESS) return result;
  if (flags == NULL || active == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  pthread_mutex_lock(&driver->lock);
  *flags = context->flags;
  *active = context->active;
  pthread_mutex_unlock(&driver->lock);
  return CUDA_SUCCESS;
}

int cuCtxCreate_v2(struct vgpu_context **pctx, uint32_t flags, int32_t dev) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (pctx == NULL || (flags & ~KNOWN_FLAGS) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (dev < 0 || dev >= driver->device_count) return CUDA_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&driver->lock);
  struct vgpu_context *context = driver->spare;
  if (context != NULL) driver->spare = context->next;
  else context = malloc(sizeof *context);
  uint64_t number = vgpu_cuda_next_number(driver);
  bool added = context != NULL;
  if (added) {
    *context = (struct vgpu_context){
        .number = number, .ordinal = dev, .flags = flags, .references = 1, .active = true, .at_host = true};
    set_defaults(context);
    added = vgpu_objects_add(&driver->objects, context, VGPU_OBJECT_CONTEXT);
    if (!added) free(context);
  }
  pthread_mutex_unlock(&driver->lock);
  if (!added) return CUDA_ERROR_OUT_OF_MEMORY;

  struct vgpu_send_cuCtxCreate_v2 send = {
      .context = number, .device = driver->host_index[dev], .flags = flags};
  result = vgpu_cuda_call(VGPU_OP_cuCtxCreate_v2, &send, sizeof send, NULL, 0);
  bool made = result == CUDA_SUCCESS;
  if (made) result = push(driver, &(struct stack_entry){.context = context, .number = number});
  if (result != CUDA_SUCCESS) {
    pthread_mutex_lock(&driver->lock);
    context->at_host = made;
    vgpu_objects_remove(&driver->objects, context, VGPU_OBJECT_CONTEXT);
    (void)end_context(driver, context);
    context->next = driver->spare;
    driver->spare = context;
    pthread_mutex_unlock(&driver->lock);
    return result;
  }
  *pctx = context;
  return CUDA_SUCCESS;
}

int cuCtxCreate(struct vgpu_context **pctx, uint32_t flags, int32_t dev) {
  return cuCtxCreate_v2(pctx, flags, dev);
}

/* Execution affinity is a feature of MPS and not carried. */
int cuCtxCreate_v3(struct vgpu_context **pctx, void *paramsArray, int32_t numParams, uint32_t flags,
                   int32_t dev) {
  if (numParams < 0 || (paramsArray == NULL) != (numParams == 0)) return CUDA_ERROR_INVALID_VALUE;
  if (numParams > 0) return CUDA_ERROR_NOT_SUPPORTED;
  return cuCtxCreate_v2(pctx, flags, dev);
}

struct create_params {
  void *affinity;
  int32_t count;
  void *cig;
};

int cuCtxCreate_v4(struct vgpu_context **pctx, void *ctxCreateParams, uint32_t flags, int32_t dev) {
  const struct create_params *params = ctxCreateParams;
  if (params != NULL && params->cig != NULL) return CUDA_ERROR_NOT_SUPPORTED;
  if (params == NULL) return cuCtxCreate_v2(pctx, flags, dev);
  return cuCtxCreate_v3(pctx, params->affinity, params->count, flags, dev);
}

int cuCtxDestroy_v2(struct vgpu_context *ctx) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (cuGreenCtxDestroy(ctx) == CUDA_SUCCESS) return CUDA_SUCCESS;
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_remove(&driver->objects, ctx, VGPU_OBJECT_CONTEXT);
  uint64_t number = live ? end_context(driver, ctx) : 0;
  pthread_mutex_unlock(&driver->lock);
  if (!live) return CUDA_ERROR_INVALID_CONTEXT;
  struct stack_entry *entry = top(driver);
  if (entry != NULL && entry->context == ctx) stack.depth--;
  tell_destroyed(driver, ctx, number);
  pthread_mutex_lock(&driver->lock);
  ctx->next = driver->spare;
  driver->spare = ctx;
  pthread_mutex_unlock(&driver->lock);
  return CUDA_SUCCESS;
}

int cuCtxDestroy(struct vgpu_context *ctx) {
  return cuCtxDestroy_v2(ctx);
}

int cuCtxPushCurrent_v2(struct vgpu_context *ctx) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct stack_entry entry;
  return entry_for(driver, ctx, &entry) ? push(driver, &entry) : CUDA_ERROR_INVALID_CONTEXT;
}

int cuCtxPushCurrent(struct vgpu_context *ctx) {
  return cuCtxPushCurrent_v2(ctx);
}

int cuCtxPopCurrent_v2(struct vgpu_context **pctx) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct stack_entry *entry = top(driver);
  if (entry == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != NULL) *pctx = entry->context;
  stack.depth--;
  return CUDA_SUCCESS;
}

int cuCtxPopCurrent(struct vgpu_context **pctx) {
  return cuCtxPopCurrent_v2(pctx);
}

int cuCtxSetCurrent(struct vgpu_context *ctx) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct stack_entry entry;
  if (ctx != NULL && !entry_for(driver, ctx, &entry)) return CUDA_ERROR_INVALID_CONTEXT;
  refresh_stack(driver);
  if (stack.depth > 0) stack.depth--;
  return ctx == NULL ? CUDA_SUCCESS : push(driver, &entry);
}

int cuCtxGetCurrent(struct vgpu_context **pctx) {
  int result;
  if (vgpu_cuda_driver(&result) == NULL) return result;
  if (pctx == NULL) return CUDA_ERROR_INVALID_VALUE;
  *pctx = vgpu_cuda_current_context();
  return CUDA_SUCCESS;
}
