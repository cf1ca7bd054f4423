#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/module/code.h"
#include "guest/cuda/texture/array.h"

static struct vgpu_module *find(struct vgpu_driver *driver, const void *handle) {
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, handle, VGPU_OBJECT_MODULE);
  pthread_mutex_unlock(&driver->lock);
  return live ? (struct vgpu_module *)(uintptr_t)handle : NULL;
}

void vgpu_module_forget(struct vgpu_driver *driver, struct vgpu_module *module) {
  vgpu_objects_remove(&driver->objects, module, VGPU_OBJECT_MODULE);
  while (module->functions != NULL) {
    struct vgpu_callable *function = module->functions;
    module->functions = function->next;
    vgpu_objects_remove(&driver->objects, function, VGPU_OBJECT_FUNCTION);
    vgpu_callable_free(function);
  }
  vgpu_references_module_ended(driver, module->number);
  vgpu_regions_drop_module(&driver->regions, module->number);
  free(module);
}

struct ended {
  struct vgpu_context *context;
  struct vgpu_module *modules; /* linked by `next` */
};

/* Only collects: freeing a module would change the list that is being searched. */
static bool of_context(void *handle, void *with) {
  struct vgpu_module *module = handle;
  struct ended *ended = with;
  if (module->context != ended->context) return false;
  if (module->library != NULL) {
    struct vgpu_module **link = &module->library->modules;
    while (*link != module) link = &(*link)->next;
    *link = module->next;
  }
  module->next = ended->modules;
  ended->modules = module;
  return true;
}

void vgpu_code_context_ended(struct vgpu_driver *driver, struct vgpu_context *context) {
  struct ended ended = {.context = context};
  vgpu_objects_sweep(&driver->objects, VGPU_OBJECT_MODULE, of_context, &ended);
  while (ended.modules != NULL) {
    struct vgpu_module *module = ended.modules;
    ended.modules = module->next;
    vgpu_module_forget(driver, module);
  }
}

/* Makes a module of the current context, which the host does not have yet. */
static int begin(struct vgpu_driver *driver, struct vgpu_module **made) {
  struct vgpu_context *context = NULL;
  uint64_t number = 0;
  int result = vgpu_cuda_owner(driver, &context, &number);
  if (result != CUDA_SUCCESS) return result;
  struct vgpu_module *module = malloc(sizeof *module);
  if (module == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&driver->lock);
  *module = (struct vgpu_module){
      .number = vgpu_cuda_next_number(driver), .context = context, .context_number = number};
  pthread_mutex_unlock(&driver->lock);
  *made = module;
  return CUDA_SUCCESS;
}

static int publish(struct vgpu_driver *driver, struct vgpu_module *module) {
  pthread_mutex_lock(&driver->lock);
  bool added = vgpu_objects_add(&driver->objects, module, VGPU_OBJECT_MODULE);
  pthread_mutex_unlock(&driver->lock);
  return added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static int load(struct vgpu_driver *driver, struct vgpu_image *image, const struct vgpu_jit *jit,
                void **result) {
  struct vgpu_module *module = NULL;
  int status = begin(driver, &module);
  if (status != CUDA_SUCCESS) return status;
  struct vgpu_send_cuModuleLoadDataEx send = {.context = module->context_number,
                                              .module = module->number,
                                              .hash_0 = image->hash.words[0],
                                              .hash_1 = image->hash.words[1],
                                              .hash_2 = image->hash.words[2],
                                              .hash_3 = image->hash.words[3],
                                              .bytes = image->size};
  struct vgpu_reply_cuModuleLoadDataEx reply = {0};
  const struct vgpu_image_request request = {.opcode = VGPU_OP_cuModuleLoadDataEx,
                                             .send = &send,
                                             .send_size = sizeof send,
                                             .reply = &reply,
                                             .reply_size = sizeof reply};
  status = vgpu_image_load(&request, image, jit);
  if (status == CUDA_SUCCESS) status = publish(driver, module);
  if (status == CUDA_SUCCESS) *result = module;
  else free(module);
  return status;
}

int cuModuleLoadDataEx(void **module, const void *image, uint32_t numOptions, int32_t *options,
                       void **optionValues) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (module == NULL || image == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_jit jit = {.count = numOptions, .options = options, .values = optionValues};
  struct vgpu_image taken;
  result = vgpu_image_take(driver, image, &taken);
  if (result == CUDA_SUCCESS) result = load(driver, &taken, &jit, module);
  vgpu_image_free(&taken);
  return result;
}

int cuModuleLoadData(void **module, const void *image) {
  return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

int cuModuleLoadFatBinary(void **module, const void *fatCubin) {
  return cuModuleLoadDataEx(module, fatCubin, 0, NULL, NULL);
}

int cuModuleLoad(void **module, const char *fname) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (module == NULL || fname == NULL) return CUDA_ERROR_INVALID_VALUE;
  unsigned char *bytes;
  uint64_t size;
  result = vgpu_image_read_file(fname, &bytes, &size);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_jit none = {0};
  struct vgpu_image image;
  result = vgpu_image_take_bytes(driver, bytes, size, &image);
  if (result == CUDA_SUCCESS) result = load(driver, &image, &none, module);
  vgpu_image_free(&image);
  free(bytes);
  return result;
}

int cuModuleUnload(void *hmod) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  pthread_mutex_lock(&driver->lock);
  struct vgpu_module *module = hmod;
  bool live = vgpu_objects_has(&driver->objects, module, VGPU_OBJECT_MODULE) && module->library == NULL;
  struct vgpu_send_cuModuleUnload send = {0};
  if (live) {
    send.module = module->number;
    vgpu_module_forget(driver, module);
  }
  pthread_mutex_unlock(&driver->lock);
  if (!live) return CUDA_ERROR_INVALID_HANDLE;
  result = vgpu_cuda_post(VGPU_OP_cuModuleUnload, &send, sizeof send, NULL, 0);
  vgpu_managed_code_give(driver, send.module);
  return result;
}

static struct vgpu_callable *known_function(struct vgpu_driver *driver, struct vgpu_module *module,
                                            const char *name) {
  pthread_mutex_lock(&driver->lock);
  struct vgpu_callable *function = module->functions;
  while (function != NULL && strcmp(function->name, name) != 0) function = function->next;
  pthread_mutex_unlock(&driver->lock);
  return function;
}

int cuModuleGetFunction(void **hfunc, void *hmod, const char *name) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (hfunc == NULL || name == NULL || name[0] == '\0') return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_module *module = find(driver, hmod);
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_callable *function = known_function(driver, module, name);
  if (function != NULL) {
    *hfunc = function;
    return CUDA_SUCCESS;
  }
  function = calloc(1, sizeof *function);
  if (function == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&driver->lock);
  function->number = vgpu_cuda_next_number(driver);
  pthread_mutex_unlock(&driver->lock);
  function->module = module;
  struct vgpu_send_cuModuleGetFunction send = {.module = module->number, .function = function->number};
  result = vgpu_callable_get(driver, VGPU_OP_cuModuleGetFunction, &send, sizeof send, name,
                             module->context->ordinal, function);
  if (result == CUDA_SUCCESS) {
    pthread_mutex_lock(&driver->lock);
    if (!vgpu_objects_add(&driver->objects, function, VGPU_OBJECT_FUNCTION))
      result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
      function->next = module->functions;
      module->functions = function;
    }
    pthread_mutex_unlock(&driver->lock);
  }
  if (result == CUDA_SUCCESS) *hfunc = function;
  else vgpu_callable_free(function);
  return result;
}

int vgpu_code_variable(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                       const char *name, const struct vgpu_region *like, uint64_t *address, size_t *bytes) {
  struct vgpu_reply_cuModuleGetGlobal_v2 reply = {0};
  struct vgpu_cuda_exchange exchange = {.send = send,
                                        .send_size = send_size,
                                        .send_bulk = name,
                                        .send_bulk_size = (uint32_t)strlen(name),
                                        .reply = &reply,
                                        .reply_size = sizeof reply};
  int result = vgpu_cuda_exchange(opcode, &exchange);
  if (result != CUDA_SUCCESS) return result;
  /* Copies recognise device memory by the regions. A variable may be there already. */
  struct vgpu_region region = *like;
  region.start = reply.address;
  region.size = reply.bytes;
  if (vgpu_regions_add(&driver->regions, &region) == VGPU_REGIONS_NO_MEMORY) return CUDA_ERROR_OUT_OF_MEMORY;
  if (address != NULL) *address = reply.address;
  if (bytes != NULL) *bytes = reply.bytes;
  return CUDA_SUCCESS;
}

int cuModuleGetGlobal_v2(uint64_t *dptr, size_t *bytes, void *hmod, const char *name) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (name == NULL || name[0] == '\0') return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_module *module = find(driver, hmod);
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_send_cuModuleGetGlobal_v2 send = {.module = module->number};
  const struct vgpu_code_in in = {.code = module->library != NULL ? module->library->number : module->number,
                                  .context = module->context_number,
                                  .library = module->library != NULL};
  struct vgpu_region like;
  result = vgpu_managed_code_ready(driver, &in, name, &like);
  if (result != CUDA_SUCCESS) return result;
  like.ordinal = module->context->ordinal;
  return vgpu_code_variable(driver, VGPU_OP_cuModuleGetGlobal_v2, &send, sizeof send, name, &like, dptr,
                            bytes);
}

int vgpu_code_names(uint32_t opcode, void *body, uint32_t body_size, uint32_t *first, char **names,
                    uint32_t *count) {
  struct vgpu_reply_cuModuleEnumerateFunctions reply = {.total = 1};
  char *all = NULL, *piece = malloc(VGPU_BULK_MAX);
  size_t used = 0;
  int result = piece == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  *count = 0;
  while (result == CUDA_SUCCESS && *count < reply.total) {
    *first = *count;
    struct vgpu_cuda_exchange exchange = {.send = body,
                                          .send_size = body_size,
                                          .reply = &reply,
                                          .reply_size = sizeof reply,
                                          .bulk = piece,
                                          .bulk_capacity = VGPU_BULK_MAX};
    result = vgpu_cuda_exchange(opcode, &exchange);
    if (result != CUDA_SUCCESS || reply.total == 0) break;
    uint32_t ends = 0;
    for (uint32_t i = 0; i < exchange.bulk_size; i++) ends += piece[i] == '\0';
    if (reply.count == 0 || ends != reply.count || piece[exchange.bulk_size - 1] != '\0') {
      result = CUDA_ERROR_UNKNOWN;
      break;
    }
    char *grown = realloc(all, used + exchange.bulk_size);
    if (grown == NULL) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
      break;
    }
    all = grown;
    memcpy(all + used, piece, exchange.bulk_size);
    used += exchange.bulk_size;
    *count += reply.count;
  }
  free(piece);
  if (result != CUDA_SUCCESS) {
    free(all);
    all = NULL;
    *count = 0;
  }
  *names = all;
  return result;
}

static int names_of(void *hmod, struct vgpu_module **module, char **names, uint32_t *count) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  *module = find(driver, hmod);
  if (*module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_send_cuModuleEnumerateFunctions send = {.module = (*module)->number};
  return vgpu_code_names(VGPU_OP_cuModuleEnumerateFunctions, &send, sizeof send, &send.first, names, count);
}

int cuModuleGetFunctionCount(uint32_t *count, void *mod) {
  struct vgpu_module *module = NULL;
  char *names = NULL;
  uint32_t found = 0;
  int result = names_of(mod, &module, &names, &found);
  free(names);
  if (result != CUDA_SUCCESS) return result;
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = found;
  return CUDA_SUCCESS;
}

int cuModuleEnumerateFunctions(void **functions, uint32_t numFunctions, void *mod) {
  struct vgpu_module *module = NULL;
  char *names = NULL;
  uint32_t found = 0;
  int result = names_of(mod, &module, &names, &found);
  if (result == CUDA_SUCCESS && (functions == NULL || numFunctions == 0)) result = CUDA_ERROR_INVALID_VALUE;
  const char *name = names;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < numFunctions && i < found; i++) {
    result = cuModuleGetFunction(&functions[i], module, name);
    name += strlen(name) + 1;
  }
  free(names);
  return result;
}
