#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/module/code.h"

struct vgpu_callable *vgpu_callable_find(struct vgpu_driver *driver, const void *handle) {
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, handle, VGPU_OBJECT_FUNCTION) ||
              vgpu_objects_has(&driver->objects, handle, VGPU_OBJECT_KERNEL);
  pthread_mutex_unlock(&driver->lock);
  return live ? (struct vgpu_callable *)(uintptr_t)handle : NULL;
}

int32_t vgpu_callable_device(struct vgpu_driver *driver, const struct vgpu_callable *callable) {
  if (callable->module != NULL) return callable->module->context->ordinal;
  struct vgpu_context *context = NULL;
  return vgpu_cuda_current(driver, &context) == CUDA_SUCCESS ? context->ordinal : 0;
}

void vgpu_callable_free(struct vgpu_callable *callable) {
  free(callable->name);
  free(callable->parameters);
  free(callable->attributes);
  free(callable->old_launch);
  free(callable);
}

/* Reads the facts and parameters of a host's answer. False: the answer contradicts itself. */
static bool take_facts(struct vgpu_callable *callable, int32_t ordinal, const unsigned char *bulk,
                       uint32_t size) {
  struct vgpu_function_facts facts;
  if (size < sizeof facts) return false;
  memcpy(&facts, bulk, sizeof facts);
  uint64_t told = sizeof facts + (uint64_t)facts.parameter_count * sizeof *callable->parameters;
  if (facts.parameter_count > VGPU_PARAMETERS_MAX || facts.parameter_bytes > VGPU_PARAMETER_BYTES_MAX ||
      (size != told && size != told + sizeof callable->refused)) {
    return false;
  }
  if (size > told) memcpy(&callable->refused, bulk + told, sizeof callable->refused);
  memcpy(callable->attributes[ordinal], facts.attributes, sizeof facts.attributes);
  __atomic_or_fetch(&callable->known, 1u << ordinal, __ATOMIC_RELEASE);
  if (callable->parameters != NULL) return true; /* parameters are the same on every device */
  struct vgpu_parameter *parameters = malloc(facts.parameter_count * sizeof *parameters + 1);
  if (parameters == NULL) return false;
  memcpy(parameters, bulk + sizeof facts, facts.parameter_count * sizeof *parameters);
  for (uint32_t i = 0; i < facts.parameter_count; i++) {
    if ((uint64_t)parameters[i].offset + parameters[i].size > facts.parameter_bytes) {
      free(parameters);
      return false;
    }
  }
  callable->parameters = parameters;
  callable->parameter_count = facts.parameter_count;
  callable->parameter_bytes = facts.parameter_bytes;
  return true;
}

#define FACTS_MAX                                                                                            \
  (sizeof(struct vgpu_function_facts) + VGPU_PARAMETERS_MAX * sizeof(struct vgpu_parameter) + sizeof(int32_t))

static int ask(uint32_t opcode, const void *send, uint32_t send_size, const char *name, int32_t ordinal,
               struct vgpu_callable *callable) {
  unsigned char *bulk = malloc(FACTS_MAX);
  if (bulk == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_cuda_exchange exchange = {.send = send,
                                        .send_size = send_size,
                                        .send_bulk = name,
                                        .send_bulk_size = name == NULL ? 0 : (uint32_t)strlen(name),
                                        .bulk = bulk,
                                        .bulk_capacity = FACTS_MAX};
  int result = vgpu_cuda_exchange(opcode, &exchange);
  if (result == CUDA_SUCCESS && !take_facts(callable, ordinal, bulk, exchange.bulk_size)) {
    result = CUDA_ERROR_UNKNOWN;
  }
  free(bulk);
  return result;
}

int vgpu_callable_get(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                      const char *name, int32_t ordinal, struct vgpu_callable *made) {
  if (name == NULL || strlen(name) > VGPU_BULK_MAX) return CUDA_ERROR_INVALID_VALUE;
  made->name = strdup(name);
  made->attributes = calloc((size_t)driver->device_count, sizeof *made->attributes);
  if (made->name == NULL || made->attributes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  return ask(opcode, send, send_size, name, ordinal, made);
}

int vgpu_callable_attributes(struct vgpu_driver *driver, struct vgpu_callable *callable, int32_t ordinal,
                             const int32_t **attributes) {
  if (ordinal < 0 || ordinal >= driver->device_count) return CUDA_ERROR_INVALID_DEVICE;
  int result = CUDA_SUCCESS;
  if ((__atomic_load_n(&callable->known, __ATOMIC_ACQUIRE) >> ordinal & 1) == 0) {
    struct vgpu_send_cuKernelGetAttribute send = {.kernel = callable->number,
                                                  .device = driver->host_index[ordinal]};
    result = ask(VGPU_OP_cuKernelGetAttribute, &send, sizeof send, NULL, ordinal, callable);
  }
  *attributes = callable->attributes[ordinal];
  return result;
}

static int find(const void *handle, struct vgpu_driver **driver, struct vgpu_callable **callable) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  *callable = vgpu_callable_find(*driver, handle);
  return *callable == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static int get_attribute(int32_t *value, int32_t attribute, const void *handle, const int32_t *device) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(handle, &driver, &callable);
  if (result != CUDA_SUCCESS) return result;
  if (value == NULL || attribute < 0 || attribute >= (int32_t)VGPU_FUNCTION_ATTRIBUTES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int32_t *attributes;
  int32_t ordinal = device == NULL ? vgpu_callable_device(driver, callable) : *device;
  if (callable->module != NULL && ordinal != callable->module->context->ordinal)
    return CUDA_ERROR_INVALID_DEVICE;
  result = vgpu_callable_attributes(driver, callable, ordinal, &attributes);
  if (result == CUDA_SUCCESS) *value = __atomic_load_n(&attributes[attribute], __ATOMIC_RELAXED);
  return result;
}

int cuFuncGetAttribute(int32_t *pi, int32_t attrib, void *hfunc) {
  return get_attribute(pi, attrib, hfunc, NULL);
}

int cuKernelGetAttribute(int32_t *pi, int32_t attrib, void *kernel, int32_t dev) {
  return get_attribute(pi, attrib, kernel, &dev);
}

static int set_attribute(const void *handle, int32_t attribute, int32_t value, const int32_t *device) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(handle, &driver, &callable);
  if (result != CUDA_SUCCESS) return result;
  const int32_t *attributes;
  int32_t ordinal = device == NULL ? vgpu_callable_device(driver, callable) : *device;
  result = vgpu_callable_attributes(driver, callable, ordinal, &attributes);
  if (result != CUDA_SUCCESS) return result;
  if (attribute < 0 || attribute >= (int32_t)VGPU_FUNCTION_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
  /* Programs set the same value before every launch; it is sent once. */
  if (__atomic_load_n(&attributes[attribute], __ATOMIC_RELAXED) == value &&
      attribute == VGPU_FUNCTION_MAX_DYNAMIC) {
    return CUDA_SUCCESS;
  }
  if (callable->module != NULL) {
    struct vgpu_send_cuFuncSetAttribute send = {.context = callable->module->context_number,
                                                .function = callable->number,
                                                .attribute = attribute,
                                                .value = value};
    result = vgpu_cuda_call(VGPU_OP_cuFuncSetAttribute, &send, sizeof send, NULL, 0);
  } else {
    struct vgpu_send_cuKernelSetAttribute send = {.kernel = callable->number,
                                                  .device = driver->host_index[ordinal],
                                                  .attribute = attribute,
                                                  .value = value};
    result = vgpu_cuda_call(VGPU_OP_cuKernelSetAttribute, &send, sizeof send, NULL, 0);
  }
  if (result == CUDA_SUCCESS) {
    __atomic_store_n(&callable->attributes[ordinal][attribute], value, __ATOMIC_RELAXED);
  }
  return result;
}

int cuFuncSetAttribute(void *hfunc, int32_t attrib, int32_t value) {
  return set_attribute(hfunc, attrib, value, NULL);
}

int cuKernelSetAttribute(int32_t attrib, int32_t val, void *kernel, int32_t dev) {
  return set_attribute(kernel, attrib, val, &dev);
}

/* Only a preference: since Volta the L1 cache and shared memory are one. */
int cuFuncSetCacheConfig(void *hfunc, int32_t config) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(hfunc, &driver, &callable);
  if (result == CUDA_SUCCESS && (config < 0 || config > 3)) result = CUDA_ERROR_INVALID_VALUE;
  return result;
}

int cuKernelSetCacheConfig(void *kernel, int32_t config, int32_t dev) {
  int result = cuFuncSetCacheConfig(kernel, config);
  if (result == CUDA_SUCCESS && vgpu_cuda_device_facts(dev) == NULL) result = CUDA_ERROR_INVALID_DEVICE;
  return result;
}

/* Banks are four bytes wide on every GPU since Maxwell. */
int cuFuncSetSharedMemConfig(void *hfunc, int32_t config) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(hfunc, &driver, &callable);
  if (result == CUDA_SUCCESS && (config < 0 || config > 2)) result = CUDA_ERROR_INVALID_VALUE;
  return result;
}

int cuFuncGetParamInfo(void *func, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(func, &driver, &callable);
  if (result != CUDA_SUCCESS) return result;
  if (paramOffset == NULL || paramIndex >= callable->parameter_count) return CUDA_ERROR_INVALID_VALUE;
  *paramOffset = callable->parameters[paramIndex].offset;
  if (paramSize != NULL) *paramSize = callable->parameters[paramIndex].size;
  return CUDA_SUCCESS;
}

int cuKernelGetParamInfo(void *kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
  return cuFuncGetParamInfo(kernel, paramIndex, paramOffset, paramSize);
}

int cuFuncGetParamCount(void *func, size_t *paramCount) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(func, &driver, &callable);
  if (result != CUDA_SUCCESS) return result;
  if (paramCount == NULL) return CUDA_ERROR_INVALID_VALUE;
  *paramCount = callable->parameter_count;
  return CUDA_SUCCESS;
}

int cuKernelGetParamCount(void *kernel, size_t *paramCount) {
  return cuFuncGetParamCount(kernel, paramCount);
}

int cuFuncGetName(const char **name, void *hfunc) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = vgpu_cuda_ready();
  if (result == CUDA_SUCCESS && (name == NULL || hfunc == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = find(hfunc, &driver, &callable);
  if (result != CUDA_SUCCESS) return result;
  *name = callable->name;
  return CUDA_SUCCESS;
}

int cuKernelGetName(const char **name, void *hfunc) {
  return cuFuncGetName(name, hfunc);
}

int cuFuncGetModule(void **hmod, void *hfunc) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(hfunc, &driver, &callable);
  if (result != CUDA_SUCCESS) return result;
  if (hmod == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (callable->module == NULL) return cuLibraryGetModule(hmod, callable->library);
  *hmod = callable->module;
  return CUDA_SUCCESS;
}

/* A function that has a handle is loaded. */
int cuFuncIsLoaded(int32_t *state, void *function) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(function, &driver, &callable);
  if (result != CUDA_SUCCESS) return result;
  if (state == NULL) return CUDA_ERROR_INVALID_VALUE;
  *state = 1; /* CU_FUNCTION_LOADING_STATE_LOADED */
  return CUDA_SUCCESS;
}

int vgpu_callable_load(struct vgpu_driver *driver, const struct vgpu_callable *callable, uint64_t context) {
  const struct vgpu_send_function_load send = {.context = context, .function = callable->number};
  if (!vgpu_session_loads(driver->session)) return CUDA_SUCCESS;
  return vgpu_cuda_call(VGPU_OP_function_load, &send, sizeof send, NULL, 0);
}

int cuFuncLoad(void *function) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(function, &driver, &callable);
  if (result != CUDA_SUCCESS || callable->refused != CUDA_SUCCESS) return result;
  uint64_t context = 0;
  if (callable->module != NULL) context = callable->module->context_number;
  else result = vgpu_cuda_context_number(&context);
  return result == CUDA_SUCCESS ? vgpu_callable_load(driver, callable, context) : result;
}

/* A kernel is valid as a function: the host finds the function of each context. */
int cuKernelGetFunction(void **pFunc, void *kernel) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(kernel, &driver, &callable);
  if (result != CUDA_SUCCESS) return result;
  if (pFunc == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_context *context = NULL;
  result = vgpu_cuda_current(driver, &context);
  if (result == CUDA_SUCCESS) *pFunc = callable;
  return result;
}

int cuKernelGetLibrary(void **pLib, void *kernel) {
  struct vgpu_driver *driver;
  struct vgpu_callable *callable = NULL;
  int result = find(kernel, &driver, &callable);
  if (result != CUDA_SUCCESS) return result;
  if (pLib == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (callable->library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  *pLib = callable->library;
  return CUDA_SUCCESS;
}
