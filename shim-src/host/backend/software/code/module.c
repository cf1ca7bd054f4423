#include "host/backend/software/code/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/device_attributes.h"
#include "host/backend/software/kernel/run.h"

#define VARIABLE_ALIGNMENT 256u
#define NAME_MAX_BYTES 65536u
#define LOG_MAX 65536u

void *vgpu_programs_object(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type) {
  struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, number, type);
  return handle == NULL ? NULL : handle->object;
}

int32_t vgpu_programs_name_handle(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                                  uint64_t context, void *object) {
  if (number < VGPU_FIRST_HANDLE) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_handle *handle = vgpu_handles_add(&worker->handles, number, type);
  if (handle == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  handle->context = context;
  handle->object = object;
  return CUDA_SUCCESS;
}

uint32_t vgpu_programs_device(struct vgpu_worker *worker, uint64_t context) {
  struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, context, VGPU_HANDLE_CONTEXT);
  return handle == NULL ? UINT32_MAX : handle->device;
}

static void free_functions(struct vgpu_worker *worker, struct vgpu_module_object *module) {
  while (module->functions != NULL) {
    struct vgpu_function_object *function = module->functions;
    module->functions = function->next;
    vgpu_handles_remove(&worker->handles, function->number, VGPU_HANDLE_FUNCTION);
    free(function);
  }
}

void vgpu_module_end(struct vgpu_worker *worker, struct vgpu_module_object **link) {
  struct vgpu_module_object *module = *link;
  *link = module->next;
  free_functions(worker, module);
  if (module->number != 0) vgpu_handles_remove(&worker->handles, module->number, VGPU_HANDLE_MODULE);
  if (module->managed != 0) vgpu_managed_end(worker, module);
  else if (module->data != 0) vgpu_device_free(worker, module->data);
  vgpu_run_unload(worker, module);
  vgpu_programs_release(worker, module->loaded);
  free(module->globals);
  free(module);
}

void vgpu_programs_drop_context(struct vgpu_worker *worker, uint64_t context) {
  if (worker->sticky_context == context) worker->sticky = worker->deferred = 0;
  vgpu_graph_drop_context(worker, context);
  for (struct vgpu_module_object **link = &software_of(worker)->programs.modules; *link != NULL;) {
    if ((*link)->context == context) vgpu_module_end(worker, link);
    else link = &(*link)->next;
  }
}

static int32_t place_variables(struct vgpu_worker *worker, struct vgpu_module_object *module) {
  const struct vgpu_program *program = &module->loaded->program;
  uint64_t bytes = 0;
  for (size_t i = 0; i < program->global_count; i++) {
    bytes = (bytes + VARIABLE_ALIGNMENT - 1) / VARIABLE_ALIGNMENT * VARIABLE_ALIGNMENT;
    module->globals[i] = bytes;
    if (__builtin_add_overflow(bytes, program->globals[i].size, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  int32_t result = vgpu_device_allocate(worker, module->context, bytes, &module->data);
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < program->global_count; i++) {
    module->globals[i] += module->data;
    if (program->globals[i].initial == NULL) continue;
    unsigned char *to =
        vgpu_memory_at(&software_of(worker)->memory, module->globals[i], program->globals[i].size);
    if (to != NULL) memcpy(to, program->globals[i].initial, program->globals[i].size);
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_module_make(struct vgpu_worker *worker, uint64_t context, struct vgpu_loaded *loaded,
                         struct vgpu_library_object *library, struct vgpu_load_log *log,
                         struct vgpu_module_object **result) {
  struct vgpu_module_object *module = malloc(sizeof *module);
  uint64_t *globals = calloc(loaded->program.global_count + 1, sizeof *globals);
  if (module == NULL || globals == NULL) {
    free(module);
    free(globals);
    vgpu_programs_release(worker, loaded);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *module = (struct vgpu_module_object){.next = software_of(worker)->programs.modules,
                                        .context = context,
                                        .device = vgpu_programs_device(worker, context),
                                        .library = library,
                                        .wants_log = log != NULL && log->wanted,
                                        .loaded = loaded,
                                        .globals = globals};
  software_of(worker)->programs.modules = module;
  int32_t status = vgpu_run_load(worker, module);
  if (log != NULL) snprintf(log->text, sizeof log->text, "%s", module->unrunnable);
  if (status == CUDA_SUCCESS && module->code == NULL) status = place_variables(worker, module);
  if (status != CUDA_SUCCESS) {
    vgpu_module_end(worker, &software_of(worker)->programs.modules);
    return status;
  }
  *result = module;
  return CUDA_SUCCESS;
}

enum { JIT_INFO_LOG_SIZE = 4, JIT_ERROR_LOG_SIZE = 6 };

static uint32_t log_room(const struct vgpu_bulk *bulk, uint32_t wanted) {
  uint32_t room = 0;
  for (uint32_t at = 0; bulk->in_size - at >= sizeof(struct vgpu_jit_option);
       at += (uint32_t)sizeof(struct vgpu_jit_option)) {
    struct vgpu_jit_option option;
    memcpy(&option, bulk->in + at, sizeof option);
    if (option.option == wanted) room = option.value < LOG_MAX ? (uint32_t)option.value : LOG_MAX;
  }
  return room;
}

bool vgpu_code_wants_log(const struct vgpu_bulk *bulk) {
  return log_room(bulk, JIT_INFO_LOG_SIZE) > 0 || log_room(bulk, JIT_ERROR_LOG_SIZE) > 0;
}

/* Appends a log to the bulk, cut to `room`. Returns its length in bytes. */
static uint32_t put_log(struct vgpu_bulk *bulk, uint32_t room, const char *text) {
  size_t length = strlen(text) + 1;
  if (length > room) length = room;
  if (length > bulk->out_capacity - bulk->out_size) length = bulk->out_capacity - bulk->out_size;
  if (length == 0) return 0;
  memcpy(bulk->out + bulk->out_size, text, length);
  bulk->out[bulk->out_size + length - 1] = '\0';
  bulk->out_size += (uint32_t)length;
  return (uint32_t)length;
}

int32_t vgpu_code_answer_load(struct vgpu_load_reply reply, int32_t status, const char *why,
                              struct vgpu_bulk *bulk) {
  *reply.missing = status == VGPU_CODE_MISSING;
  *reply.result = status == VGPU_CODE_MISSING ? CUDA_SUCCESS : status;
  if (status < 0 || why[0] == '\0') return CUDA_SUCCESS;
  /* A kernel that cannot run does not fail the load. Programs read one log, so both name the kernel. */
  uint32_t info = log_room(bulk, JIT_INFO_LOG_SIZE), error = log_room(bulk, JIT_ERROR_LOG_SIZE);
  *reply.info_bytes = put_log(bulk, info, why);
  *reply.error_bytes = put_log(bulk, error, why);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuModuleLoadDataEx(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuModuleLoadDataEx *send,
                                         struct vgpu_reply_cuModuleLoadDataEx *reply,
                                         struct vgpu_bulk *bulk) {
  struct vgpu_load_reply answer = {&reply->result, &reply->missing, &reply->info_bytes, &reply->error_bytes};
  uint32_t device = vgpu_programs_device(worker, send->context);
  if (device == UINT32_MAX) return CUDA_ERROR_INVALID_CONTEXT;
  struct vgpu_hash hash = {{send->hash_0, send->hash_1, send->hash_2, send->hash_3}};
  struct vgpu_loaded *loaded;
  char why[sizeof((struct vgpu_load_log *)NULL)->text] = "";
  int32_t result = vgpu_programs_load(worker, &hash, send->bytes, device, &loaded, why, sizeof why);
  struct vgpu_module_object *module;
  struct vgpu_load_log log = {.wanted = vgpu_code_wants_log(bulk)};
  if (result == CUDA_SUCCESS) {
    result = vgpu_module_make(worker, send->context, loaded, NULL, &log, &module);
    memcpy(why, log.text, sizeof why);
  }
  if (result == CUDA_SUCCESS) {
    result = vgpu_programs_name_handle(worker, send->module, VGPU_HANDLE_MODULE, send->context, module);
    if (result == CUDA_SUCCESS) module->number = send->module;
    else vgpu_module_end(worker, &software_of(worker)->programs.modules);
  }
  if (result != VGPU_CODE_MISSING) vgpu_code_forget_upload(worker, &hash);
  return vgpu_code_answer_load(answer, result, why, bulk);
}

int32_t vgpu_software_cuModuleUnload(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuModuleUnload *send) {
  struct vgpu_module_object *module = vgpu_programs_object(worker, send->module, VGPU_HANDLE_MODULE);
  if (module == NULL || module->library != NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_module_object **link = &software_of(worker)->programs.modules;
  while (*link != module) link = &(*link)->next;
  vgpu_module_end(worker, link);
  return CUDA_SUCCESS;
}

struct vgpu_function_settings vgpu_function_settings_of(const struct vgpu_program_function *function) {
  return (struct vgpu_function_settings){
      .max_dynamic = function->attributes[VGPU_FUNCTION_MAX_DYNAMIC],
      .carveout = function->attributes[VGPU_FUNCTION_CARVEOUT],
      .cluster = {function->attributes[VGPU_FUNCTION_CLUSTER_WIDTH],
                  function->attributes[VGPU_FUNCTION_CLUSTER_HEIGHT],
                  function->attributes[VGPU_FUNCTION_CLUSTER_DEPTH]},
  };
}

static void fill_attributes(const struct vgpu_program_function *function,
                            const struct vgpu_function_settings *settings, int32_t *attributes) {
  memcpy(attributes, function->attributes, sizeof function->attributes);
  attributes[VGPU_FUNCTION_MAX_DYNAMIC] = settings->max_dynamic;
  attributes[VGPU_FUNCTION_CARVEOUT] = settings->carveout;
  for (int i = 0; i < 3; i++) attributes[VGPU_FUNCTION_CLUSTER_WIDTH + i] = settings->cluster[i];
  attributes[VGPU_FUNCTION_NON_PORTABLE] = settings->non_portable;
  attributes[VGPU_FUNCTION_SCHEDULING] = settings->scheduling;
}

void vgpu_function_tell(const struct vgpu_program_function *function,
                        const struct vgpu_function_settings *settings, struct vgpu_bulk *bulk) {
  struct vgpu_function_facts facts = {.parameter_count = function->parameter_count,
                                      .parameter_bytes = function->parameter_bytes};
  fill_attributes(function, settings, facts.attributes);
  size_t bytes = function->parameter_count * sizeof *function->parameters;
  memcpy(bulk->out, &facts, sizeof facts);
  if (bytes > 0) memcpy(bulk->out + sizeof facts, function->parameters, bytes);
  bulk->out_size = (uint32_t)(sizeof facts + bytes);
  if (function->refused == CUDA_SUCCESS) return;
  memcpy(bulk->out + bulk->out_size, &function->refused, sizeof function->refused);
  bulk->out_size += (uint32_t)sizeof function->refused;
}

static int32_t make_function(struct vgpu_worker *worker, struct vgpu_module_object *module, uint64_t number,
                             const struct vgpu_program_function *function,
                             const struct vgpu_function_settings *settings) {
  struct vgpu_function_object *object = malloc(sizeof *object);
  if (object == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  int32_t result = vgpu_programs_name_handle(worker, number, VGPU_HANDLE_FUNCTION, module->context, object);
  if (result != CUDA_SUCCESS) {
    free(object);
    return result;
  }
  *object = (struct vgpu_function_object){.next = module->functions,
                                          .number = number,
                                          .module = module,
                                          .function = function,
                                          .settings = *settings};
  module->functions = object;
  return CUDA_SUCCESS;
}

bool vgpu_code_is_name(const struct vgpu_bulk *bulk) {
  return bulk->in_size > 0 && bulk->in_size <= NAME_MAX_BYTES &&
         memchr(bulk->in, '\0', bulk->in_size) == NULL;
}

int32_t vgpu_software_cuModuleGetFunction(struct vgpu_worker *worker,
                                          const struct vgpu_send_cuModuleGetFunction *send,
                                          struct vgpu_bulk *bulk) {
  struct vgpu_module_object *module = vgpu_programs_object(worker, send->module, VGPU_HANDLE_MODULE);
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (!vgpu_code_is_name(bulk)) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_program_function *function =
      vgpu_program_function(&module->loaded->program, (const char *)bulk->in, bulk->in_size);
  if (function == NULL) return CUDA_ERROR_NOT_FOUND;
  vgpu_run_prepare(worker, module, function);
  struct vgpu_function_settings settings = vgpu_function_settings_of(function);
  int32_t result = make_function(worker, module, send->function, function, &settings);
  if (result == CUDA_SUCCESS) vgpu_function_tell(function, &settings, bulk);
  return result;
}

int32_t vgpu_module_variable(const struct vgpu_module_object *module, const struct vgpu_bulk *bulk,
                             uint64_t *address, uint64_t *bytes) {
  if (!vgpu_code_is_name(bulk)) return CUDA_ERROR_INVALID_VALUE;
  long at = vgpu_program_global(&module->loaded->program, (const char *)bulk->in, bulk->in_size);
  if (at < 0 || module->globals[at] == 0) return CUDA_ERROR_NOT_FOUND;
  *address = module->globals[at];
  *bytes = module->loaded->program.globals[at].size;
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuModuleGetGlobal_v2(struct vgpu_worker *worker,
                                           const struct vgpu_send_cuModuleGetGlobal_v2 *send,
                                           struct vgpu_reply_cuModuleGetGlobal_v2 *reply,
                                           struct vgpu_bulk *bulk) {
  struct vgpu_module_object *module = vgpu_programs_object(worker, send->module, VGPU_HANDLE_MODULE);
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return vgpu_module_variable(module, bulk, &reply->address, &reply->bytes);
}

int32_t vgpu_code_enumerate(const struct vgpu_program *program, uint32_t first, uint32_t *total,
                            uint32_t *count, struct vgpu_bulk *bulk) {
  *total = (uint32_t)program->function_count;
  for (size_t i = first; i < program->function_count; i++) {
    size_t length = strlen(program->functions[i].name) + 1;
    if (length > bulk->out_capacity - bulk->out_size) break;
    memcpy(bulk->out + bulk->out_size, program->functions[i].name, length);
    bulk->out_size += (uint32_t)length;
    (*count)++;
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuModuleEnumerateFunctions(struct vgpu_worker *worker,
                                                 const struct vgpu_send_cuModuleEnumerateFunctions *send,
                                                 struct vgpu_reply_cuModuleEnumerateFunctions *reply,
                                                 struct vgpu_bulk *bulk) {
  struct vgpu_module_object *module = vgpu_programs_object(worker, send->module, VGPU_HANDLE_MODULE);
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  return vgpu_code_enumerate(&module->loaded->program, send->first, &reply->total, &reply->count, bulk);
}

int32_t vgpu_function_change(const struct vgpu_device_profile *device,
                             const struct vgpu_program_function *function,
                             struct vgpu_function_settings *settings, int32_t attribute, int32_t value) {
  switch (attribute) {
    case VGPU_FUNCTION_MAX_DYNAMIC:
      if (value < 0 || value > device->attributes[VGPU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] -
                                   function->attributes[VGPU_FUNCTION_SHARED]) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      settings->max_dynamic = value;
      return CUDA_SUCCESS;
    case VGPU_FUNCTION_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      settings->carveout = value;
      return CUDA_SUCCESS;
    case VGPU_FUNCTION_CLUSTER_WIDTH:
    case VGPU_FUNCTION_CLUSTER_HEIGHT:
    case VGPU_FUNCTION_CLUSTER_DEPTH:
      if (value < 0) return CUDA_ERROR_INVALID_VALUE;
      settings->cluster[attribute - VGPU_FUNCTION_CLUSTER_WIDTH] = value;
      return CUDA_SUCCESS;
    case VGPU_FUNCTION_NON_PORTABLE:
      if (value < 0 || value > 1) return CUDA_ERROR_INVALID_VALUE;
      settings->non_portable = value;
      return CUDA_SUCCESS;
    case VGPU_FUNCTION_SCHEDULING:
      if (value < 0 || value > 2) return CUDA_ERROR_INVALID_VALUE;
      settings->scheduling = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

int32_t vgpu_software_cuFuncSetAttribute(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuFuncSetAttribute *send) {
  struct vgpu_function_object *function = vgpu_programs_object(worker, send->function, VGPU_HANDLE_FUNCTION);
  if (function == NULL) {
    /* A CUkernel given for a CUfunction means the kernel on the context's device. */
    struct vgpu_send_cuKernelSetAttribute kernel = {.kernel = send->function,
                                                    .device = vgpu_programs_device(worker, send->context),
                                                    .attribute = send->attribute,
                                                    .value = send->value};
    return vgpu_software_cuKernelSetAttribute(worker, &kernel);
  }
  return vgpu_function_change(&worker->inventory->profiles->devices[function->module->device],
                              function->function, &function->settings, send->attribute, send->value);
}
