/*
 * Functions of module.c for library.c: the modules, kernels and variables of a library are those of modules.
 */
#ifndef VGPU_HOST_SOFTWARE_MODULE_H
#define VGPU_HOST_SOFTWARE_MODULE_H

#include "cuda_handlers.h"
#include "host/backend/software/software.h"

/* Returns the object behind a handle; NULL: the handle has no object of this type. */
void *vgpu_programs_object(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type);
int32_t vgpu_programs_name_handle(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                                  uint64_t context, void *object);
/* Returns the device number of a context; UINT32_MAX: no such context. */
uint32_t vgpu_programs_device(struct vgpu_worker *worker, uint64_t context);
/* True if the bulk can be a name. */
bool vgpu_code_is_name(const struct vgpu_bulk *bulk);
/* Writes the names of functions from number `first` on, each zero-terminated, as many as fit. */
int32_t vgpu_code_enumerate(const struct vgpu_program *program, uint32_t first, uint32_t *total,
                            uint32_t *count, struct vgpu_bulk *bulk);

bool vgpu_code_wants_log(const struct vgpu_bulk *bulk);

struct vgpu_load_reply {
  int32_t *result;
  uint32_t *missing;
  uint32_t *info_bytes;
  uint32_t *error_bytes;
};
/* Answers a load. A failed load is answered, too, because the answer has its log. */
int32_t vgpu_code_answer_load(struct vgpu_load_reply reply, int32_t status, const char *why,
                              struct vgpu_bulk *bulk);

struct vgpu_load_log {
  bool wanted;
  char text[1024];
};

/* Makes a module and takes `loaded` over, also after a failure. `log` may be NULL. Returns a CUresult. */
int32_t vgpu_module_make(struct vgpu_worker *worker, uint64_t context, struct vgpu_loaded *loaded,
                         struct vgpu_library_object *library, struct vgpu_load_log *log,
                         struct vgpu_module_object **result);
void vgpu_module_end(struct vgpu_worker *worker, struct vgpu_module_object **link);
/* Finds a variable by the name in the bulk. Returns a CUresult. */
int32_t vgpu_module_variable(const struct vgpu_module_object *module, const struct vgpu_bulk *bulk,
                             uint64_t *address, uint64_t *bytes);

/* Gives the library's module in a context. The module is made when it is first needed. Returns a CUresult. */
int32_t vgpu_library_module(struct vgpu_worker *worker, struct vgpu_library_object *library, uint64_t context,
                            struct vgpu_module_object **result);
/*
 * Moves the variables of a library's new module to the place that those of its last module had. After a
 * failure the module is freed.
 */
int32_t vgpu_managed_again(struct vgpu_worker *worker, struct vgpu_module_object *module);
/* Ends the sharing of variables with the guest, for a module that is unloaded. */
void vgpu_managed_end(struct vgpu_worker *worker, const struct vgpu_module_object *module);
/* True if a module's variables are at this address, which the guest has lent. */
bool vgpu_managed_uses(const struct vgpu_worker *worker, uint64_t address);

struct vgpu_function_settings vgpu_function_settings_of(const struct vgpu_program_function *function);
/* Writes the facts of a function, then its parameters, as vgpu_function_facts describes. */
void vgpu_function_tell(const struct vgpu_program_function *function,
                        const struct vgpu_function_settings *settings, struct vgpu_bulk *bulk);
int32_t vgpu_function_change(const struct vgpu_device_profile *device,
                             const struct vgpu_program_function *function,
                             struct vgpu_function_settings *settings, int32_t attribute, int32_t value);

#endif
