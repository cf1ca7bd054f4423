/*
 * The functions of module.c that library.c uses: a library's modules, kernels and variables are those of
 * modules.
 */
#ifndef VGPU_HOST_SOFTWARE_MODULE_H
#define VGPU_HOST_SOFTWARE_MODULE_H

#include "cuda_handlers.h"
#include "host/backend/software/software.h"

/* The object behind a handle; NULL: the handle has no object of this type. */
void *vgpu_programs_object(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type);
int32_t vgpu_programs_name_handle(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                                  uint64_t context, void *object);
/* The number of a context; UINT32_MAX: no such context. */
uint32_t vgpu_programs_device(struct vgpu_worker *worker, uint64_t context);
/* Whether what came in bulk can be a name. */
bool vgpu_code_is_name(const struct vgpu_bulk *bulk);
/* Names of functions from the `first` on, each zero-terminated, as many as fit. */
int32_t vgpu_code_enumerate(const struct vgpu_program *program, uint32_t first, uint32_t *total,
                            uint32_t *count, struct vgpu_bulk *bulk);

struct vgpu_load_reply {
  int32_t *result;
  uint32_t *missing;
  uint32_t *info_bytes;
  uint32_t *error_bytes;
};
/* The outcome of a load: a failed one answers too, because it brings its log. */
int32_t vgpu_code_answer_load(struct vgpu_load_reply reply, int32_t status, const char *why,
                              struct vgpu_bulk *bulk);

/* Facts about a load that a program requests and gets. */
struct vgpu_load_log {
  bool wanted;
  char text[1024];
};

/* Takes over `loaded`, also when it fails. `log` may be NULL. */
int32_t vgpu_module_make(struct vgpu_worker *worker, uint64_t context, struct vgpu_loaded *loaded,
                         struct vgpu_library_object *library, struct vgpu_load_log *log,
                         struct vgpu_module_object **result);
void vgpu_module_end(struct vgpu_worker *worker, struct vgpu_module_object **link);
/* A variable by the name in bulk. */
int32_t vgpu_module_variable(const struct vgpu_module_object *module, const struct vgpu_bulk *bulk,
                             uint64_t *address, uint64_t *bytes);

/* The library's module in a context, made when first asked for. */
int32_t vgpu_library_module(struct vgpu_worker *worker, struct vgpu_library_object *library, uint64_t context,
                            struct vgpu_module_object **result);
/* A library's new module has its variables where the library's last one had them. On failure it is gone. */
int32_t vgpu_managed_again(struct vgpu_worker *worker, struct vgpu_module_object *module);
/* A module goes whose variables the guest sees. */
void vgpu_managed_end(struct vgpu_worker *worker, const struct vgpu_module_object *module);
/* Whether a module's variables lie at an address that the guest has lent. */
bool vgpu_managed_uses(const struct vgpu_worker *worker, uint64_t address);

struct vgpu_function_settings vgpu_function_settings_of(const struct vgpu_program_function *function);
/* Facts, then parameters: what vgpu_function_facts says. */
void vgpu_function_tell(const struct vgpu_program_function *function,
                        const struct vgpu_function_settings *settings, struct vgpu_bulk *bulk);
/* Sets an attribute that a program may set. */
int32_t vgpu_function_change(const struct vgpu_device_profile *device,
                             const struct vgpu_program_function *function,
                             struct vgpu_function_settings *settings, int32_t attribute, int32_t value);

#endif
