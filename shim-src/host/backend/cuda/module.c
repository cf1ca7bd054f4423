/* Modules and libraries on the host's GPU, their functions, kernels and variables. */
#include "host/backend/cuda/module.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/cuda/load.h"
#include "host/backend/cuda/session.h"
#include "host/log.h"
#include "wire/module.h"
#include "cuda_results.h"

#define LOCAL_SIZE_BYTES 3 /* CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES */
#define STACK_SIZE 0       /* CU_LIMIT_STACK_SIZE */

#define NAME_MAX_BYTES 65536u

static bool remember_of(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                        uint64_t context, uint64_t owner, void *object) {
  if (!vgpu_cuda_remember(worker, number, type, context, object)) return false;
  vgpu_handles_find(&worker->handles, number, type)->owner = owner;
  return true;
}

/* Removes the objects of a module or library, and the objects of those. */
static void forget_owned(struct vgpu_worker *worker, uint64_t owner) {
  struct vgpu_range removed;
  while (vgpu_ranges_remove_owned(&cuda_of(worker)->ranges, owner, &removed)) continue;
  for (size_t at = 0; at < worker->handles.capacity; at++) {
    const struct vgpu_handle handle = worker->handles.places[at];
    if (handle.number == 0 || handle.owner != owner) continue;
    vgpu_handles_remove(&worker->handles, handle.number, handle.type);
    if (handle.type == VGPU_HANDLE_MODULE) forget_owned(worker, handle.number);
    at = (size_t)-1; /* others moved into the gap */
  }
}

int32_t vgpu_cuda_cuModuleLoadDataEx(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuModuleLoadDataEx *send,
                                     struct vgpu_reply_cuModuleLoadDataEx *reply, struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_hash hash = {{send->hash_0, send->hash_1, send->hash_2, send->hash_3}};
  struct vgpu_cuda_load *load;
  result = vgpu_cuda_load(worker, VGPU_LOAD_MODULE, send->context, &hash, send->bytes, bulk, &load,
                          &reply->missing, &reply->result);
  if (result != CUDA_SUCCESS) return result;
  if (load != NULL && reply->result == CUDA_SUCCESS &&
      !vgpu_cuda_remember(worker, send->module, VGPU_HANDLE_MODULE, send->context, load->object)) {
    vgpu_cuda_unload(worker, load);
    reply->result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  vgpu_cuda_load_end(worker, load, &reply->info_bytes, &reply->error_bytes, bulk);
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_cuModuleUnload(struct vgpu_worker *worker, const struct vgpu_send_cuModuleUnload *send) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, send->module, VGPU_HANDLE_MODULE);
  if (handle == NULL || handle->owner != 0) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_cuda_ending ending = {.end = vgpu_cuda_unload_module,
                                    .context = vgpu_cuda_object(worker, handle->context, VGPU_HANDLE_CONTEXT),
                                    .object = handle->driver};
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, handle->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  forget_owned(worker, send->module);
  vgpu_handles_remove(&worker->handles, send->module, VGPU_HANDLE_MODULE);
  return vgpu_cuda_end(worker, &ending);
}

int32_t vgpu_cuda_cuLibraryLoadData(struct vgpu_worker *worker,
                                    const struct vgpu_send_cuLibraryLoadData *send,
                                    struct vgpu_reply_cuLibraryLoadData *reply, struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_hash hash = {{send->hash_0, send->hash_1, send->hash_2, send->hash_3}};
  struct vgpu_cuda_load *load;
  result = vgpu_cuda_load(worker, VGPU_LOAD_LIBRARY, 0, &hash, send->bytes, bulk, &load, &reply->missing,
                          &reply->result);
  if (result != CUDA_SUCCESS) return result;
  if (load != NULL && reply->result == CUDA_SUCCESS &&
      !vgpu_cuda_remember(worker, send->library, VGPU_HANDLE_LIBRARY, 0, load->object)) {
    vgpu_cuda_unload(worker, load);
    reply->result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  vgpu_cuda_load_end(worker, load, &reply->info_bytes, &reply->error_bytes, bulk);
  return CUDA_SUCCESS;
}

static int32_t find_object(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                           struct vgpu_cuda **cuda, void **object) {
  int32_t result = vgpu_cuda_open(worker, cuda);
  if (result != CUDA_SUCCESS) return result;
  *object = vgpu_cuda_object(worker, number, type);
  return *object == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

int32_t vgpu_cuda_cuLibraryUnload(struct vgpu_worker *worker, const struct vgpu_send_cuLibraryUnload *send) {
  struct vgpu_cuda *cuda;
  void *library;
  int32_t result = find_object(worker, send->library, VGPU_HANDLE_LIBRARY, &cuda, &library);
  if (result != CUDA_SUCCESS) return result;
  forget_owned(worker, send->library);
  vgpu_handles_remove(&worker->handles, send->library, VGPU_HANDLE_LIBRARY);
  return vgpu_cuda_end(worker,
                       &(struct vgpu_cuda_ending){.end = vgpu_cuda_unload_library, .object = library});
}

/* Returns a name from the bulk as text for free(); NULL: it is not a name. */
static char *name_of(const struct vgpu_bulk *bulk) {
  if (bulk->in_size == 0 || bulk->in_size > NAME_MAX_BYTES) return NULL;
  if (memchr(bulk->in, '\0', bulk->in_size) != NULL) return NULL;
  return strndup((const char *)bulk->in, bulk->in_size);
}

/* Sends facts and parameters of a function, or of a kernel on a device (device >= 0). */
static int32_t tell_function(struct vgpu_worker *worker, void *object, int32_t device,
                             struct vgpu_bulk *bulk) {
  const struct vgpu_driver_api *api = &cuda_of(worker)->api;
  struct vgpu_function_facts facts = {.parameter_count = 0};
  for (int i = 0; i < (int)VGPU_FUNCTION_ATTRIBUTES; i++) {
    int32_t value = 0;
    int result = device >= 0 ? VGPU_DRIVER(api, cuKernelGetAttribute, &value, i, object, device)
                             : VGPU_DRIVER(api, cuFuncGetAttribute, &value, i, object);
    if (result == CUDA_SUCCESS) facts.attributes[i] = value;
  }
  /* A guessed layout would corrupt the parameters. */
  if ((device >= 0 && api->cuKernelGetParamInfo == NULL) || (device < 0 && api->cuFuncGetParamInfo == NULL))
    return CUDA_ERROR_NOT_SUPPORTED;
  unsigned char *to = bulk->out + sizeof facts;
  for (size_t i = 0; i < VGPU_PARAMETERS_MAX; i++) {
    size_t offset = 0, size = 0;
    int result = device >= 0 ? api->cuKernelGetParamInfo(object, i, &offset, &size)
                             : api->cuFuncGetParamInfo(object, i, &offset, &size);
    if (result != CUDA_SUCCESS) break; /* past the last one */
    struct vgpu_parameter parameter = {.offset = (uint32_t)offset, .size = (uint32_t)size};
    memcpy(to + i * sizeof parameter, &parameter, sizeof parameter);
    facts.parameter_count++;
    if (offset + size > facts.parameter_bytes) facts.parameter_bytes = (uint32_t)(offset + size);
  }
  memcpy(bulk->out, &facts, sizeof facts);
  bulk->out_size = (uint32_t)(sizeof facts + facts.parameter_count * sizeof(struct vgpu_parameter));
  return CUDA_SUCCESS;
}

static int32_t get_function(const struct vgpu_driver_api *api, struct vgpu_cuda_side_call *call) {
  return VGPU_DRIVER(api, cuModuleGetFunction, &call->made, call->object, call->name);
}

int32_t vgpu_cuda_cuModuleGetFunction(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuModuleGetFunction *send,
                                      struct vgpu_bulk *bulk) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, send->module, VGPU_HANDLE_MODULE);
  if (handle == NULL) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t context = handle->context;
  struct vgpu_cuda_side_call call = {.call = get_function,
                                     .context = vgpu_cuda_object(worker, context, VGPU_HANDLE_CONTEXT),
                                     .object = handle->driver};
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  call.name = name_of(bulk);
  if (call.name == NULL) return CUDA_ERROR_INVALID_VALUE;
  result = vgpu_cuda_side_call(worker, &call);
  if (result == CUDA_SUCCESS) result = tell_function(worker, call.made, -1, bulk);
  if (result == CUDA_SUCCESS &&
      !remember_of(worker, send->function, VGPU_HANDLE_FUNCTION, context, send->module, call.made)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return result;
}

int32_t vgpu_cuda_cuLibraryGetKernel(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuLibraryGetKernel *send,
                                     struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  void *library, *kernel = NULL;
  int32_t result = find_object(worker, send->library, VGPU_HANDLE_LIBRARY, &cuda, &library);
  if (result != CUDA_SUCCESS) return result;
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  char *name = name_of(bulk);
  if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
  result = VGPU_DRIVER(&cuda->api, cuLibraryGetKernel, &kernel, library, name);
  free(name);
  if (result == CUDA_SUCCESS) result = tell_function(worker, kernel, (int32_t)send->device, bulk);
  if (result == CUDA_SUCCESS &&
      !remember_of(worker, send->kernel, VGPU_HANDLE_KERNEL, 0, send->library, kernel)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return result;
}

/*
 * Sends names of a module's functions or a library's kernels from `first` on, each zero-terminated, as many
 * as fit, and the count of all.
 */
static int32_t tell_names(struct vgpu_worker *worker, uint64_t number, bool kernels, uint32_t first,
                          uint32_t *total, uint32_t *count, struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  void *owner;
  int32_t result =
      find_object(worker, number, kernels ? VGPU_HANDLE_LIBRARY : VGPU_HANDLE_MODULE, &cuda, &owner);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_driver_api *api = &cuda->api;
  result = kernels ? VGPU_DRIVER(api, cuLibraryGetKernelCount, total, owner)
                   : VGPU_DRIVER(api, cuModuleGetFunctionCount, total, owner);
  if (result != CUDA_SUCCESS) return result;
  void **list = calloc((size_t)*total + 1, sizeof *list);
  if (list == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  result = kernels ? VGPU_DRIVER(api, cuLibraryEnumerateKernels, list, *total, owner)
                   : VGPU_DRIVER(api, cuModuleEnumerateFunctions, list, *total, owner);
  for (uint32_t i = first; result == CUDA_SUCCESS && i < *total; i++) {
    const char *name = NULL;
    int told = kernels ? VGPU_DRIVER(api, cuKernelGetName, &name, list[i])
                       : VGPU_DRIVER(api, cuFuncGetName, &name, list[i]);
    size_t length = told == CUDA_SUCCESS && name != NULL ? strlen(name) + 1 : 0;
    if (length == 0 || length > bulk->out_capacity - bulk->out_size) break;
    memcpy(bulk->out + bulk->out_size, name, length);
    bulk->out_size += (uint32_t)length;
    (*count)++;
  }
  free(list);
  return result;
}

int32_t vgpu_cuda_cuModuleEnumerateFunctions(struct vgpu_worker *worker,
                                             const struct vgpu_send_cuModuleEnumerateFunctions *send,
                                             struct vgpu_reply_cuModuleEnumerateFunctions *reply,
                                             struct vgpu_bulk *bulk) {
  return tell_names(worker, send->module, false, send->first, &reply->total, &reply->count, bulk);
}

int32_t vgpu_cuda_cuLibraryEnumerateKernels(struct vgpu_worker *worker,
                                            const struct vgpu_send_cuLibraryEnumerateKernels *send,
                                            struct vgpu_reply_cuLibraryEnumerateKernels *reply,
                                            struct vgpu_bulk *bulk) {
  return tell_names(worker, send->library, true, send->first, &reply->total, &reply->count, bulk);
}

static int32_t get_module(const struct vgpu_driver_api *api, struct vgpu_cuda_side_call *call) {
  return VGPU_DRIVER(api, cuLibraryGetModule, &call->made, call->object);
}

int32_t vgpu_cuda_cuLibraryGetModule(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuLibraryGetModule *send) {
  struct vgpu_cuda *cuda;
  void *library;
  int32_t result = find_object(worker, send->library, VGPU_HANDLE_LIBRARY, &cuda, &library);
  if (result == CUDA_SUCCESS) result = vgpu_cuda_enter(worker, send->context, &cuda);
  struct vgpu_cuda_side_call call = {.call = get_module,
                                     .context = vgpu_cuda_object(worker, send->context, VGPU_HANDLE_CONTEXT),
                                     .object = library};
  if (result == CUDA_SUCCESS) result = vgpu_cuda_side_call(worker, &call);
  if (result != CUDA_SUCCESS) return result;
  bool known = remember_of(worker, send->module, VGPU_HANDLE_MODULE, send->context, send->library, call.made);
  return known ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Adds a variable's bytes to the session's memory, as long as its module or library exists. */
static void own_variable(struct vgpu_cuda *cuda, uint64_t context, uint64_t owner, uint64_t address,
                         uint64_t bytes) {
  struct vgpu_range range = {
      .address = address, .size = bytes, .context = context, .owner = owner, .kind = VGPU_RANGE_VARIABLE};
  vgpu_ranges_add(&cuda->ranges, &range); /* false: requested before */
}

/* The driver has a separate call for managed variables of a library. */
static int32_t find_variable(const struct vgpu_driver_api *api, struct vgpu_cuda_side_call *call) {
  uint64_t *address = &call->address;
  if (!call->other)
    return VGPU_DRIVER(api, cuModuleGetGlobal_v2, address, &call->bytes, call->object, call->name);
  const int32_t result =
      VGPU_DRIVER(api, cuLibraryGetGlobal, address, &call->bytes, call->object, call->name);
  return result == CUDA_ERROR_NOT_FOUND
             ? VGPU_DRIVER(api, cuLibraryGetManaged, address, &call->bytes, call->object, call->name)
             : result;
}

int32_t vgpu_cuda_variable(struct vgpu_worker *worker, uint64_t context, uint64_t code,
                           const struct vgpu_bulk *bulk, uint64_t *address, uint64_t *bytes) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, code, VGPU_HANDLE_MODULE);
  if (handle != NULL) context = handle->context;
  else handle = vgpu_handles_find(&worker->handles, code, VGPU_HANDLE_LIBRARY);
  if (handle == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_side_call call = {.call = find_variable,
                                     .context = vgpu_cuda_object(worker, context, VGPU_HANDLE_CONTEXT),
                                     .object = handle->driver,
                                     .name = name_of(bulk),
                                     .other = handle->type == VGPU_HANDLE_LIBRARY};
  if (call.name == NULL) return CUDA_ERROR_INVALID_VALUE;
  result = vgpu_cuda_side_call(worker, &call);
  *address = call.address;
  *bytes = call.bytes;
  if (result == CUDA_SUCCESS) own_variable(cuda, context, code, *address, *bytes);
  return result;
}

int32_t vgpu_cuda_cuModuleGetGlobal_v2(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuModuleGetGlobal_v2 *send,
                                       struct vgpu_reply_cuModuleGetGlobal_v2 *reply,
                                       struct vgpu_bulk *bulk) {
  return vgpu_cuda_variable(worker, 0, send->module, bulk, &reply->address, &reply->bytes);
}

int32_t vgpu_cuda_cuLibraryGetGlobal(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuLibraryGetGlobal *send,
                                     struct vgpu_reply_cuLibraryGetGlobal *reply, struct vgpu_bulk *bulk) {
  return vgpu_cuda_variable(worker, send->context, send->library, bulk, &reply->address, &reply->bytes);
}

int32_t vgpu_cuda_cuKernelGetAttribute(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuKernelGetAttribute *send,
                                       struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  void *kernel;
  int32_t result = find_object(worker, send->kernel, VGPU_HANDLE_KERNEL, &cuda, &kernel);
  if (result != CUDA_SUCCESS) return result;
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  return tell_function(worker, kernel, (int32_t)send->device, bulk);
}

int32_t vgpu_cuda_cuKernelSetAttribute(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuKernelSetAttribute *send) {
  struct vgpu_cuda *cuda;
  void *kernel;
  int32_t result = find_object(worker, send->kernel, VGPU_HANDLE_KERNEL, &cuda, &kernel);
  if (result != CUDA_SUCCESS) return result;
  return VGPU_DRIVER(&cuda->api, cuKernelSetAttribute, send->attribute, send->value, kernel,
                     (int32_t)send->device);
}

int32_t vgpu_cuda_cuFuncSetAttribute(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuFuncSetAttribute *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  void *function = vgpu_cuda_function(worker, send->function);
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return VGPU_DRIVER(&cuda->api, cuFuncSetAttribute, function, send->attribute, send->value);
}

/*
 * A launch that needs more local memory than there is waits for the device ("The driver automatically
 * increases the per-thread stack size", cuCtxSetLimit, CUDA driver API).
 */
static void raise_stack(const struct vgpu_driver_api *api, size_t bytes) {
  /* Of two threads, the one that needs less must not set its own limit after the other's. */
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  size_t stack = 0;
  pthread_mutex_lock(&lock);
  if (VGPU_DRIVER(api, cuCtxGetLimit, &stack, STACK_SIZE) == CUDA_SUCCESS && bytes > stack)
    VGPU_DRIVER(api, cuCtxSetLimit, STACK_SIZE, bytes); /* if it fails, the launch says why */
  pthread_mutex_unlock(&lock);
}

/* A kernel of a library has a function in each context. */
static int32_t load_function(const struct vgpu_driver_api *api, struct vgpu_cuda_side_call *call) {
  void *function = call->object;
  int32_t local = 0;
  int32_t result =
      call->other ? VGPU_DRIVER(api, cuKernelGetFunction, &function, call->object) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && api->cuFuncLoad != NULL) result = api->cuFuncLoad(function);
  if (result == CUDA_SUCCESS &&
      VGPU_DRIVER(api, cuFuncGetAttribute, &local, LOCAL_SIZE_BYTES, function) == CUDA_SUCCESS && local > 0) {
    call->bytes = (size_t)local;
    raise_stack(api, call->bytes);
  }
  return result;
}

int32_t vgpu_cuda_function_load(struct vgpu_worker *worker, const struct vgpu_send_function_load *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_cuda_side_call call = {
      .call = load_function,
      .context = vgpu_cuda_object(worker, send->context, VGPU_HANDLE_CONTEXT),
      .object = vgpu_cuda_function(worker, send->function),
      .other = vgpu_cuda_object(worker, send->function, VGPU_HANDLE_FUNCTION) == NULL};
  if (call.object == NULL) return CUDA_ERROR_INVALID_HANDLE;
  result = vgpu_cuda_side_call(worker, &call);
  struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, send->context, VGPU_HANDLE_CONTEXT);
  if (result == CUDA_SUCCESS && handle != NULL && call.bytes > handle->stack)
    handle->stack = (uint32_t)call.bytes;
  switch (result) {
    case VGPU_WAITS:
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_NOT_SUPPORTED:
      return result;
    default:
      return CUDA_SUCCESS; /* an error of the context, which the launch reports */
  }
}
