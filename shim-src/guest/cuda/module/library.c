/* Loaded when first used, as in the driver's lazy mode: programs use few registered libraries. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/module/code.h"

static struct vgpu_code_library *find(struct vgpu_driver *driver, const void *handle) {
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, handle, VGPU_OBJECT_LIBRARY);
  pthread_mutex_unlock(&driver->lock);
  return live ? (struct vgpu_code_library *)(uintptr_t)handle : NULL;
}

/* Facts are requested for the current device, or the first. */
static int32_t ordinal_now(struct vgpu_driver *driver) {
  struct vgpu_context *context = NULL;
  return vgpu_cuda_current(driver, &context) == CUDA_SUCCESS ? context->ordinal : 0;
}

static int load_at_host(struct vgpu_driver *driver, struct vgpu_code_library *library,
                        const struct vgpu_jit *jit) {
  if (__atomic_load_n(&library->at_host, __ATOMIC_ACQUIRE)) return CUDA_SUCCESS;
  pthread_mutex_lock(&library->loading);
  int result = CUDA_SUCCESS;
  if (!library->at_host) {
    struct vgpu_send_cuLibraryLoadData send = {.library = library->number,
                                               .hash_0 = library->image.hash.words[0],
                                               .hash_1 = library->image.hash.words[1],
                                               .hash_2 = library->image.hash.words[2],
                                               .hash_3 = library->image.hash.words[3],
                                               .bytes = library->image.size,
                                               .device = driver->host_index[ordinal_now(driver)]};
    struct vgpu_reply_cuLibraryLoadData reply = {0};
    const struct vgpu_image_request request = {.opcode = VGPU_OP_cuLibraryLoadData,
                                               .send = &send,
                                               .send_size = sizeof send,
                                               .reply = &reply,
                                               .reply_size = sizeof reply};
    result = vgpu_image_load(&request, &library->image, jit);
    if (result == CUDA_SUCCESS) {
      __atomic_store_n(&library->at_host, true, __ATOMIC_RELEASE);
      vgpu_image_free(&library->image); /* the host keeps its own copy */
    }
  }
  pthread_mutex_unlock(&library->loading);
  return result;
}

static const struct vgpu_jit no_options;

static int find_loaded(const void *handle, struct vgpu_driver **driver, struct vgpu_code_library **library) {
  int result;
  *driver = vgpu_cuda_driver(&result);
  if (*driver == NULL) return result;
  *library = find(*driver, handle);
  if (*library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return load_at_host(*driver, *library, &no_options);
}

/*
 * Makes a library and takes the image over. An image that may be invalid is loaded at once, so that this call
 * reports the error.
 */
static int make(struct vgpu_driver *driver, struct vgpu_image *image, const struct vgpu_jit *jit,
                void **result) {
  struct vgpu_code_library *library = calloc(1, sizeof *library);
  if (library == NULL) {
    vgpu_image_free(image);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  library->image = *image;
  pthread_mutex_init(&library->loading, NULL);
  pthread_mutex_lock(&driver->lock);
  library->number = vgpu_cuda_next_number(driver);
  bool added = vgpu_objects_add(&driver->objects, library, VGPU_OBJECT_LIBRARY);
  pthread_mutex_unlock(&driver->lock);
  int status = added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  if (added && (!image->container || jit->count > 0)) status = load_at_host(driver, library, jit);
  if (status == CUDA_SUCCESS) {
    *result = library;
    return status;
  }
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_remove(&driver->objects, library, VGPU_OBJECT_LIBRARY);
  pthread_mutex_unlock(&driver->lock);
  vgpu_image_free(&library->image);
  free(library);
  return status;
}

/* CUlibraryOption: host universal functions, binary preserved. Neither is needed here. */
#define LIBRARY_OPTIONS 2

static int check_options(const int32_t *options, uint32_t count) {
  if (count > 0 && options == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < count; i++) {
    if (options[i] < 0 || options[i] >= LIBRARY_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

/* Returns the driver if library, code and options are valid; else NULL, with the error in *result. */
static struct vgpu_driver *begin_load(void *const *library, const void *code, const int32_t *options,
                                      uint32_t count, int *result) {
  struct vgpu_driver *driver = vgpu_cuda_driver(result);
  if (driver == NULL) return NULL;
  *result = library == NULL || code == NULL ? CUDA_ERROR_INVALID_VALUE : check_options(options, count);
  return *result == CUDA_SUCCESS ? driver : NULL;
}

int cuLibraryLoadData(void **library, const void *code, int32_t *jitOptions, void **jitOptionsValues,
                      uint32_t numJitOptions, int32_t *libraryOptions, void **libraryOptionValues,
                      uint32_t numLibraryOptions) {
  (void)libraryOptionValues;
  int result;
  struct vgpu_driver *driver = begin_load(library, code, libraryOptions, numLibraryOptions, &result);
  if (driver == NULL) return result;
  struct vgpu_jit jit = {.count = numJitOptions, .options = jitOptions, .values = jitOptionsValues};
  struct vgpu_image image;
  result = vgpu_image_take(driver, code, &image);
  return result == CUDA_SUCCESS ? make(driver, &image, &jit, library) : result;
}

int cuLibraryLoadFromFile(void **library, const char *fileName, int32_t *jitOptions, void **jitOptionsValues,
                          uint32_t numJitOptions, int32_t *libraryOptions, void **libraryOptionValues,
                          uint32_t numLibraryOptions) {
  (void)libraryOptionValues;
  int result;
  struct vgpu_driver *driver = begin_load(library, fileName, libraryOptions, numLibraryOptions, &result);
  if (driver == NULL) return result;
  unsigned char *bytes;
  uint64_t size;
  result = vgpu_image_read_file(fileName, &bytes, &size);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_jit jit = {.count = numJitOptions, .options = jitOptions, .values = jitOptionsValues};
  struct vgpu_image image;
  result = vgpu_image_take_bytes(driver, bytes, size, &image);
  free(bytes);
  return result == CUDA_SUCCESS ? make(driver, &image, &jit, library) : result;
}

/* Removes the handles of the library's contents. The caller holds driver->lock. */
static void forget(struct vgpu_driver *driver, struct vgpu_code_library *library) {
  vgpu_objects_remove(&driver->objects, library, VGPU_OBJECT_LIBRARY);
  while (library->kernels != NULL) {
    struct vgpu_callable *kernel = library->kernels;
    library->kernels = kernel->next;
    vgpu_objects_remove(&driver->objects, kernel, VGPU_OBJECT_KERNEL);
    vgpu_callable_free(kernel);
  }
  while (library->modules != NULL) {
    struct vgpu_module *module = library->modules;
    library->modules = module->next;
    vgpu_module_forget(driver, module);
  }
  vgpu_regions_drop_module(&driver->regions, library->number);
}

int cuLibraryUnload(void *handle) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_code_library *library = handle;
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, library, VGPU_OBJECT_LIBRARY);
  if (live) forget(driver, library);
  pthread_mutex_unlock(&driver->lock);
  if (!live) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_send_cuLibraryUnload send = {.library = library->number};
  if (library->at_host) result = vgpu_cuda_post(VGPU_OP_cuLibraryUnload, &send, sizeof send, NULL, 0);
  vgpu_managed_code_give(driver, library->number);
  if (library->holds_primary) vgpu_cuda_let_primary_go(driver, &driver->primary[0]);
  vgpu_image_free(&library->image);
  pthread_mutex_destroy(&library->loading);
  free(library);
  return result;
}

static struct vgpu_callable *known_kernel(struct vgpu_driver *driver, struct vgpu_code_library *library,
                                          const char *name) {
  pthread_mutex_lock(&driver->lock);
  struct vgpu_callable *kernel = library->kernels;
  while (kernel != NULL && strcmp(kernel->name, name) != 0) kernel = kernel->next;
  pthread_mutex_unlock(&driver->lock);
  return kernel;
}

int cuLibraryGetKernel(void **pKernel, void *handle, const char *name) {
  struct vgpu_driver *driver;
  struct vgpu_code_library *library = NULL;
  int result = find_loaded(handle, &driver, &library);
  if (result != CUDA_SUCCESS) return result;
  if (pKernel == NULL || name == NULL || name[0] == '\0') return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_callable *kernel = known_kernel(driver, library, name);
  if (kernel != NULL) {
    *pKernel = kernel;
    return CUDA_SUCCESS;
  }
  kernel = calloc(1, sizeof *kernel);
  if (kernel == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&driver->lock);
  kernel->number = vgpu_cuda_next_number(driver);
  pthread_mutex_unlock(&driver->lock);
  kernel->library = library;
  int32_t ordinal = ordinal_now(driver);
  struct vgpu_send_cuLibraryGetKernel send = {
      .library = library->number, .kernel = kernel->number, .device = driver->host_index[ordinal]};
  result = vgpu_callable_get(driver, VGPU_OP_cuLibraryGetKernel, &send, sizeof send, name, ordinal, kernel);
  if (result == CUDA_SUCCESS) {
    pthread_mutex_lock(&driver->lock);
    if (!vgpu_objects_add(&driver->objects, kernel, VGPU_OBJECT_KERNEL)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
      kernel->next = library->kernels;
      library->kernels = kernel;
    }
    pthread_mutex_unlock(&driver->lock);
  }
  if (result == CUDA_SUCCESS) *pKernel = kernel;
  else vgpu_callable_free(kernel);
  return result;
}

static struct vgpu_module *known_module(const struct vgpu_code_library *library, uint64_t context) {
  struct vgpu_module *module = library->modules;
  while (module != NULL && module->context_number != context) module = module->next;
  return module;
}

int cuLibraryGetModule(void **pMod, void *handle) {
  struct vgpu_driver *driver;
  struct vgpu_code_library *library = NULL;
  int result = find_loaded(handle, &driver, &library);
  if (result != CUDA_SUCCESS) return result;
  if (pMod == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_context *context = NULL;
  uint64_t number = 0;
  result = vgpu_cuda_owner(driver, &context, &number);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&library->loading); /* two threads must not load it at once */
  pthread_mutex_lock(&driver->lock);
  struct vgpu_module *module = known_module(library, number);
  uint64_t next = module == NULL ? vgpu_cuda_next_number(driver) : 0;
  pthread_mutex_unlock(&driver->lock);
  if (module == NULL) {
    struct vgpu_send_cuLibraryGetModule send = {
        .context = number, .library = library->number, .module = next};
    result = vgpu_cuda_call(VGPU_OP_cuLibraryGetModule, &send, sizeof send, NULL, 0);
    if (result == CUDA_SUCCESS) {
      module = malloc(sizeof *module);
      if (module == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
      *module = (struct vgpu_module){
          .number = next, .context = context, .context_number = number, .library = library};
      pthread_mutex_lock(&driver->lock);
      if (vgpu_objects_add(&driver->objects, module, VGPU_OBJECT_MODULE)) {
        module->next = library->modules;
        library->modules = module;
      } else {
        result = CUDA_ERROR_OUT_OF_MEMORY;
      }
      pthread_mutex_unlock(&driver->lock);
    }
  }
  pthread_mutex_unlock(&library->loading);
  if (result == CUDA_SUCCESS) *pMod = module;
  return result;
}

/*
 * Gives the address of a variable in the context `primary`, whether or not the program has retained it; NULL:
 * in the current context.
 */
static int variable(uint64_t *dptr, size_t *bytes, void *handle, const char *name, bool managed,
                    struct vgpu_context *primary) {
  struct vgpu_driver *driver;
  struct vgpu_code_library *library = NULL;
  int result = find_loaded(handle, &driver, &library);
  if (result != CUDA_SUCCESS) return result;
  if (name == NULL || name[0] == '\0') return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_context *context = primary;
  struct vgpu_send_cuLibraryGetGlobal send = {.library = library->number};
  result = primary == NULL ? vgpu_cuda_owner(driver, &context, &send.context)
                           : vgpu_cuda_hold_primary(driver, primary, &library->holds_primary, &send.context);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_code_in in = {.code = library->number, .context = send.context, .library = true};
  struct vgpu_region like;
  result = vgpu_managed_code_ready(driver, &in, name, &like);
  if (result != CUDA_SUCCESS) return result;
  if (managed && like.kind != VGPU_REGION_MANAGED) return CUDA_ERROR_NOT_FOUND;
  like.ordinal = context->ordinal;
  return vgpu_code_variable(driver, VGPU_OP_cuLibraryGetGlobal, &send, sizeof send, name, &like, dptr, bytes);
}

int cuLibraryGetGlobal(uint64_t *dptr, size_t *bytes, void *handle, const char *name) {
  return variable(dptr, bytes, handle, name, false, NULL);
}

int cuLibraryGetManaged(uint64_t *dptr, size_t *bytes, void *library, const char *name) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!vgpu_lent_possible()) return CUDA_ERROR_NOT_SUPPORTED;
  struct vgpu_context *context = NULL, *primary = NULL;
  result = cuCtxGetCurrent(&context);
  /* The runtime asks before it has a context. It gets the variables of the device that it starts with. */
  if (result == CUDA_SUCCESS && context == NULL) result = vgpu_cuda_primary_context(0, &primary);
  return result == CUDA_SUCCESS ? variable(dptr, bytes, library, name, true, primary) : result;
}

static int names_of(void *handle, char **names, uint32_t *count) {
  struct vgpu_driver *driver;
  struct vgpu_code_library *library = NULL;
  int result = find_loaded(handle, &driver, &library);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_send_cuLibraryEnumerateKernels send = {.library = library->number,
                                                     .device = driver->host_index[ordinal_now(driver)]};
  return vgpu_code_names(VGPU_OP_cuLibraryEnumerateKernels, &send, sizeof send, &send.first, names, count);
}

int cuLibraryGetKernelCount(uint32_t *count, void *lib) {
  char *names = NULL;
  uint32_t found = 0;
  int result = names_of(lib, &names, &found);
  free(names);
  if (result != CUDA_SUCCESS) return result;
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = found;
  return CUDA_SUCCESS;
}

int cuLibraryEnumerateKernels(void **kernels, uint32_t numKernels, void *lib) {
  char *names = NULL;
  uint32_t found = 0;
  int result = names_of(lib, &names, &found);
  if (result == CUDA_SUCCESS && (kernels == NULL || numKernels == 0)) result = CUDA_ERROR_INVALID_VALUE;
  const char *name = names;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < numKernels && i < found; i++) {
    result = cuLibraryGetKernel(&kernels[i], lib, name);
    name += strlen(name) + 1;
  }
  free(names);
  return result;
}
