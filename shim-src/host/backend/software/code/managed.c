/*
 * All variables of a module that has a managed one move to memory that the guest lends (lent.c). Their old
 * addresses then refer to the same memory, so addresses that programs have stay valid.
 */
#include <string.h>

#include "host/backend/software/code/module.h"
#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/software.h"

static int32_t module_of(struct vgpu_worker *worker, uint64_t context, uint64_t code,
                         struct vgpu_module_object **module) {
  struct vgpu_library_object *library = vgpu_programs_object(worker, code, VGPU_HANDLE_LIBRARY);
  if (library != NULL) return vgpu_library_module(worker, library, context, module);
  *module = vgpu_programs_object(worker, code, VGPU_HANDLE_MODULE);
  return *module != NULL && (*module)->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static bool has_managed(const struct vgpu_module_object *module, const unsigned char *name, uint32_t length) {
  uint32_t count = module->code == NULL ? 0 : ptx_module_global_count(module->code);
  for (uint32_t i = 0; i < count; i++) {
    const struct ptx_global_info *global = ptx_module_global(module->code, i);
    if (!global->managed) continue;
    if (length == 0 || (strlen(global->name) == length && memcmp(global->name, name, length) == 0))
      return true;
  }
  return false;
}

int32_t vgpu_software_managed_variables(struct vgpu_worker *worker,
                                        const struct vgpu_send_managed_variables *send,
                                        struct vgpu_reply_managed_variables *reply, struct vgpu_bulk *bulk) {
  struct vgpu_module_object *module;
  int32_t result = module_of(worker, send->context, send->code, &module);
  if (result != CUDA_SUCCESS) return result;
  reply->any = has_managed(module, NULL, 0);
  reply->named = bulk->in_size > 0 && has_managed(module, bulk->in, bulk->in_size);
  reply->bytes = module->code == NULL ? 0 : ptx_module_data_bytes(module->code);
  reply->address = module->managed;
  return CUDA_SUCCESS;
}

bool vgpu_managed_uses(const struct vgpu_worker *worker, uint64_t address) {
  const struct vgpu_module_object *module = software_of(worker)->programs.modules;
  while (module != NULL && (module->managed == 0 || (module->managed != address && module->data != address)))
    module = module->next;
  return module != NULL;
}

static int32_t place(struct vgpu_worker *worker, struct vgpu_module_object *module, uint64_t address) {
  /* One address for all devices is wrong for variables that are not managed. */
  if (vgpu_managed_uses(worker, address)) return CUDA_ERROR_NOT_SUPPORTED;
  struct vgpu_memory *memory = &software_of(worker)->memory;
  uint64_t bytes = ptx_module_data_bytes(module->code);
  const struct vgpu_allocation *lent = vgpu_memory_holding(memory, address);
  const struct vgpu_allocation *own = vgpu_memory_holding(memory, module->data);
  if (lent == NULL || !lent->lent || lent->address != address || lent->size < bytes)
    return CUDA_ERROR_INVALID_VALUE;
  /* The guest may have freed the module's memory, and a smaller allocation may be there now. */
  if (own == NULL || own->address != module->data || own->size < bytes || own->lent || own->shared ||
      own->pool != 0)
    return CUDA_ERROR_INVALID_VALUE;
  unsigned char *to = lent->memory;
  memcpy(to, own->memory, bytes);
  ptx_module_move(module->code, address, to);
  struct vgpu_allocation was;
  if (!vgpu_memory_alias(memory, module->data, to, bytes, &was)) return CUDA_ERROR_INVALID_VALUE;
  vgpu_accounts_give(worker->accounts, worker->slot, was.device, was.size);
  for (size_t i = 0; i < module->loaded->program.global_count; i++)
    module->globals[i] += address - module->data;
  module->managed = address;
  if (module->library != NULL) module->library->managed = address;
  return CUDA_SUCCESS;
}

int32_t vgpu_software_managed_place(struct vgpu_worker *worker, const struct vgpu_send_managed_place *send) {
  struct vgpu_module_object *module;
  int32_t result = module_of(worker, send->context, send->code, &module);
  if (result != CUDA_SUCCESS) return result;
  if (module->managed != 0 || !has_managed(module, NULL, 0)) return CUDA_ERROR_INVALID_VALUE;
  return place(worker, module, send->address);
}

int32_t vgpu_managed_again(struct vgpu_worker *worker, struct vgpu_module_object *module) {
  if (module->library->managed == 0) return CUDA_SUCCESS;
  int32_t result =
      module->code == NULL ? CUDA_ERROR_NOT_SUPPORTED : place(worker, module, module->library->managed);
  if (result != CUDA_SUCCESS) vgpu_module_end(worker, &software_of(worker)->programs.modules);
  return result;
}

void vgpu_managed_end(struct vgpu_worker *worker, const struct vgpu_module_object *module) {
  (void)vgpu_memory_take_back(&software_of(worker)->memory, module->data);
}

/* The variables are in the guest's memory: no bytes move. */
int32_t vgpu_software_managed_mirror(struct vgpu_worker *worker,
                                     const struct vgpu_send_managed_mirror *send) {
  (void)worker, (void)send;
  return CUDA_ERROR_NOT_SUPPORTED;
}
