#include <stdio.h>
#include <string.h>

#include "cuda_results.h"
#include "host/backend/software/kernel/run.h"
#include "host/backend/software/kernel/internal.h"
#include "host/backend/software/software.h"
#include "host/log.h"

/*
 * Texts of this size and more are decoded kernel by kernel at the first launch, because programs run few of a
 * library's kernels.
 */
#define LAZY_BYTES ((size_t)64 << 10)

int32_t vgpu_run_result(enum ptx_status status) {
  switch (status) {
    case PTX_OK:
      return CUDA_SUCCESS;
    case PTX_OUT_OF_MEMORY:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case PTX_INVALID:
      return CUDA_ERROR_INVALID_PTX;
    case PTX_UNSUPPORTED:
      return CUDA_ERROR_NOT_SUPPORTED;
    case PTX_BAD_LAUNCH:
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    case PTX_ILLEGAL_ADDRESS:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case PTX_MISALIGNED_ADDRESS:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case PTX_ASSERT:
      return CUDA_ERROR_ASSERT;
    case PTX_TIMEOUT:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case PTX_INVALID_CALL:
      return CUDA_ERROR_INVALID_PC;
    case PTX_UNKNOWN_VERSION:
      return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    case PTX_TRAP:
    case PTX_STACK_OVERFLOW:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

/*
 * Allocates one range of device memory for all variables of the module. Program and machine use the same
 * names for them.
 */
static int32_t place(struct vgpu_worker *worker, struct vgpu_module_object *module) {
  uint64_t bytes = ptx_module_data_bytes(module->code);
  unsigned char *memory = NULL;
  if (bytes > 0) {
    int32_t result = vgpu_device_allocate(worker, module->context, bytes, &module->data);
    if (result != CUDA_SUCCESS) return result;
    memory = vgpu_memory_to_write(&software_of(worker)->memory, module->data, bytes);
    if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ptx_module_place(module->code, module->data, memory);
  const struct vgpu_program *program = &module->loaded->program;
  for (uint32_t i = 0; i < ptx_module_global_count(module->code); i++) {
    const struct ptx_global_info *global = ptx_module_global(module->code, i);
    long at = vgpu_program_global(program, global->name, strlen(global->name));
    if (at >= 0 && program->globals[at].size <= global->size)
      module->globals[at] = module->data + global->offset;
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_run_load(struct vgpu_worker *worker, struct vgpu_module_object *module) {
  module->code = NULL;
  const struct vgpu_program *program = &module->loaded->program;
  if (worker->code_options->kernels != VGPU_KERNELS_RUN) return CUDA_SUCCESS;
  if (program->ptx == NULL) {
    snprintf(module->unrunnable, sizeof module->unrunnable,
             "its module has only machine code, no PTX; a real GPU runs it");
    return CUDA_SUCCESS;
  }
  size_t length = strlen(program->ptx);
  bool lazy = length >= LAZY_BYTES && !module->wants_log;
  enum ptx_status status = (lazy ? ptx_module_load_lazily : ptx_module_load)(
      program->ptx, length, module->loaded->architecture, &module->code, module->unrunnable,
      sizeof module->unrunnable);
  if (status == PTX_OUT_OF_MEMORY) return CUDA_ERROR_OUT_OF_MEMORY;
  if (status != PTX_OK) {
    size_t said = strlen(module->unrunnable);
    if (status == PTX_UNSUPPORTED)
      snprintf(module->unrunnable + said, sizeof module->unrunnable - said,
               ": not supported, so no kernel of the module can run");
    vgpu_host_log("refused", worker->session, "module refused: %s", module->unrunnable);
    return status == PTX_UNSUPPORTED || program->machine_code ? CUDA_SUCCESS : vgpu_run_result(status);
  }
  module->code_bytes = ptx_module_bytes(module->code);
  if (!vgpu_code_take(worker, module->code_bytes)) {
    module->code_bytes = 0;
    vgpu_run_unload(worker, module);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (module->unrunnable[0] != '\0')
    vgpu_host_log("refused", worker->session, "kernels refused: %s", module->unrunnable);
  return place(worker, module);
}

static void judge(struct vgpu_program *program, const char *name, enum ptx_status status) {
  const struct vgpu_program_function *function = vgpu_program_function(program, name, strlen(name));
  if (function != NULL) program->functions[function - program->functions].refused = vgpu_run_result(status);
}

void vgpu_run_refuse(struct vgpu_worker *worker, struct vgpu_module_object *module, const char *name,
                     const char *why) {
  struct vgpu_program *program = &module->loaded->program;
  const struct vgpu_program_function *function = vgpu_program_function(program, name, strlen(name));
  vgpu_worker_refused_kernel(worker, name);
  if (function != NULL && function->logged) return;
  vgpu_host_log("refused", worker->session, "kernel %.200s cannot be run here: %s", name, why);
  if (function != NULL) program->functions[function - program->functions].logged = true;
}

int32_t vgpu_run_ready(struct vgpu_worker *worker, struct vgpu_module_object *module, uint32_t kernel) {
  enum ptx_status status;
  const char *refused = ptx_module_prepare(module->code, kernel, &status);
  if (refused != NULL) {
    const char *name = ptx_module_kernel(module->code, kernel)->name;
    vgpu_run_refuse(worker, module, name, refused);
    judge(&module->loaded->program, name, status);
    return vgpu_run_result(status);
  }
  uint64_t bytes = ptx_module_bytes(module->code);
  if (bytes <= module->code_bytes) return CUDA_SUCCESS;
  if (!vgpu_code_take(worker, bytes - module->code_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  module->code_bytes = bytes;
  return CUDA_SUCCESS;
}

void vgpu_run_prepare(struct vgpu_worker *worker, struct vgpu_module_object *module,
                      const struct vgpu_program_function *function) {
  struct vgpu_program *program = &module->loaded->program;
  if (worker->code_options->kernels != VGPU_KERNELS_RUN || program->ptx == NULL) return;
  if (software_of(worker)->queue.running != NULL)
    return; /* the kernel may be of this module; a launch prepares as well */
  if (module->code == NULL && function->refused == CUDA_SUCCESS) {
    vgpu_run_refuse(worker, module, function->name, module->unrunnable);
    judge(program, function->name, PTX_UNSUPPORTED);
    return;
  }
  int32_t kernel = module->code == NULL ? -1 : ptx_module_find_kernel(module->code, function->name);
  if (kernel >= 0 && function->refused == CUDA_SUCCESS) vgpu_run_ready(worker, module, (uint32_t)kernel);
}

void vgpu_run_judge(struct vgpu_worker *worker, struct vgpu_loaded *loaded, char *why, size_t why_size) {
  const char *text = loaded->program.ptx;
  if (text == NULL || worker->code_options->kernels != VGPU_KERNELS_RUN) return;
  size_t length = strlen(text);
  if (why == NULL && (loaded->judged || length >= LAZY_BYTES)) return;
  loaded->judged = true;
  struct ptx_module *code;
  if (ptx_module_load(text, length, loaded->architecture, &code, why, why_size) != PTX_OK) return;
  for (uint32_t i = 0; i < ptx_module_kernel_count(code); i++) {
    enum ptx_status status;
    if (ptx_module_prepare(code, i, &status) != NULL)
      judge(&loaded->program, ptx_module_kernel(code, i)->name, status);
  }
  ptx_module_free(code);
}

void vgpu_run_unload(struct vgpu_worker *worker, struct vgpu_module_object *module) {
  ptx_module_free(module->code);
  vgpu_code_give(worker, module->code_bytes);
  module->code_bytes = 0;
  module->code = NULL;
}
