/* A library is loaded for all contexts, and gets a module in each. */
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/code/module.h"
#include "host/backend/software/kernel/run.h"
#include "host/session/images.h"

static int32_t library_on(struct vgpu_worker *worker, struct vgpu_library_object *library, uint32_t device,
                          struct vgpu_loaded **loaded) {
  if (device >= worker->inventory->profiles->count) return CUDA_ERROR_INVALID_DEVICE;
  *loaded = library->loaded[device];
  if (*loaded != NULL) return CUDA_SUCCESS;
  char why[256];
  int32_t result = vgpu_programs_load(worker, &library->hash, library->size, device, loaded, why, sizeof why);
  if (result == VGPU_CODE_MISSING && library->image != NULL) {
    /* A device of another architecture: the image is put into the cache again for this load. */
    vgpu_images_put(worker->code_options->images, worker->slot, &worker->peer, &library->hash, library->image,
                    library->size);
    result = vgpu_programs_load(worker, &library->hash, library->size, device, loaded, why, sizeof why);
  }
  if (result == VGPU_CODE_MISSING) return CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) library->loaded[device] = *loaded;
  return result;
}

static void end_library(struct vgpu_worker *worker, struct vgpu_library_object **link) {
  struct vgpu_library_object *library = *link;
  *link = library->next;
  for (struct vgpu_module_object **module = &software_of(worker)->programs.modules; *module != NULL;) {
    if ((*module)->library == library) vgpu_module_end(worker, module);
    else module = &(*module)->next;
  }
  while (library->kernels != NULL) {
    struct vgpu_kernel_object *kernel = library->kernels;
    library->kernels = kernel->next;
    vgpu_handles_remove(&worker->handles, kernel->number, VGPU_HANDLE_KERNEL);
    free(kernel->name);
    free(kernel);
  }
  for (uint32_t i = 0; i < VGPU_DEVICES_MAX; i++) vgpu_programs_release(worker, library->loaded[i]);
  if (library->image != NULL) vgpu_code_give(worker, library->size);
  vgpu_handles_remove(&worker->handles, library->number, VGPU_HANDLE_LIBRARY);
  free(library->image);
  free(library);
}

static bool architectures_differ(const struct vgpu_device_profiles *profiles) {
  for (uint32_t i = 1; i < profiles->count; i++) {
    if (profiles->devices[i].compute_major != profiles->devices[0].compute_major ||
        profiles->devices[i].compute_minor != profiles->devices[0].compute_minor) {
      return true;
    }
  }
  return false;
}

/*
 * Copies the image for devices of other architectures. NULL: all devices have one architecture, or there is
 * no memory.
 */
static unsigned char *image_to_keep(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size) {
  if (!architectures_differ(worker->inventory->profiles)) return NULL;
  unsigned char *image = vgpu_code_copy_image(worker, hash, size);
  if (image == NULL || vgpu_code_take(worker, size)) return image;
  free(image);
  return NULL;
}

/* NULL: *result has the reason. */
static struct vgpu_library_object *make_library(struct vgpu_worker *worker,
                                                const struct vgpu_send_cuLibraryLoadData *send,
                                                const struct vgpu_hash *hash, int32_t *result, char *why,
                                                size_t why_size) {
  *result = CUDA_ERROR_INVALID_DEVICE;
  if (send->device >= worker->inventory->profiles->count) return NULL;
  struct vgpu_loaded *loaded;
  *result = vgpu_programs_load(worker, hash, send->bytes, send->device, &loaded, why, why_size);
  if (*result != CUDA_SUCCESS) return NULL;
  struct vgpu_library_object *library = malloc(sizeof *library);
  *result = CUDA_ERROR_OUT_OF_MEMORY;
  if (library != NULL)
    *result = vgpu_programs_name_handle(worker, send->library, VGPU_HANDLE_LIBRARY, 0, library);
  if (*result != CUDA_SUCCESS) {
    free(library);
    vgpu_programs_release(worker, loaded);
    return NULL;
  }
  *library = (struct vgpu_library_object){.next = software_of(worker)->programs.libraries,
                                          .number = send->library,
                                          .hash = *hash,
                                          .size = send->bytes};
  library->loaded[send->device] = loaded;
  software_of(worker)->programs.libraries = library;
  return library;
}

int32_t vgpu_software_cuLibraryLoadData(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuLibraryLoadData *send,
                                        struct vgpu_reply_cuLibraryLoadData *reply, struct vgpu_bulk *bulk) {
  struct vgpu_load_reply answer = {&reply->result, &reply->missing, &reply->info_bytes, &reply->error_bytes};
  struct vgpu_hash hash = {{send->hash_0, send->hash_1, send->hash_2, send->hash_3}};
  char why[1024] = "";
  int32_t result;
  unsigned char *image = image_to_keep(worker, &hash, send->bytes);
  struct vgpu_library_object *library = make_library(worker, send, &hash, &result, why, sizeof why);
  if (library != NULL) {
    library->image = image;
    if (vgpu_code_wants_log(bulk)) vgpu_run_judge(worker, library->loaded[send->device], why, sizeof why);
  } else if (image != NULL) {
    vgpu_code_give(worker, send->bytes);
    free(image);
  }
  if (result != VGPU_CODE_MISSING) vgpu_code_forget_upload(worker, &hash);
  return vgpu_code_answer_load(answer, result, why, bulk);
}

int32_t vgpu_software_cuLibraryUnload(struct vgpu_worker *worker,
                                      const struct vgpu_send_cuLibraryUnload *send) {
  struct vgpu_library_object *library = vgpu_programs_object(worker, send->library, VGPU_HANDLE_LIBRARY);
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_library_object **link = &software_of(worker)->programs.libraries;
  while (*link != library) link = &(*link)->next;
  end_library(worker, link);
  return CUDA_SUCCESS;
}

int32_t vgpu_library_module(struct vgpu_worker *worker, struct vgpu_library_object *library, uint64_t context,
                            struct vgpu_module_object **result) {
  uint32_t device = vgpu_programs_device(worker, context);
  if (device == UINT32_MAX) return CUDA_ERROR_INVALID_CONTEXT;
  for (struct vgpu_module_object *module = software_of(worker)->programs.modules; module != NULL;
       module = module->next) {
    if (module->library != library || module->context != context) continue;
    *result = module;
    return CUDA_SUCCESS;
  }
  struct vgpu_loaded *loaded;
  int32_t status = library_on(worker, library, device, &loaded);
  if (status != CUDA_SUCCESS) return status;
  loaded->users++;
  status = vgpu_module_make(worker, context, loaded, library, NULL, result);
  return status == CUDA_SUCCESS ? vgpu_managed_again(worker, *result) : status;
}

int32_t vgpu_software_cuLibraryGetModule(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuLibraryGetModule *send) {
  struct vgpu_library_object *library = vgpu_programs_object(worker, send->library, VGPU_HANDLE_LIBRARY);
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_module_object *module;
  int32_t result = vgpu_library_module(worker, library, send->context, &module);
  if (result != CUDA_SUCCESS) return result;
  if (module->number != 0) return CUDA_ERROR_INVALID_VALUE; /* the guest has given it a number already */
  result = vgpu_programs_name_handle(worker, send->module, VGPU_HANDLE_MODULE, send->context, module);
  if (result == CUDA_SUCCESS) module->number = send->module;
  return result;
}

int32_t vgpu_software_cuLibraryGetGlobal(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuLibraryGetGlobal *send,
                                         struct vgpu_reply_cuLibraryGetGlobal *reply,
                                         struct vgpu_bulk *bulk) {
  struct vgpu_library_object *library = vgpu_programs_object(worker, send->library, VGPU_HANDLE_LIBRARY);
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_module_object *module;
  int32_t result = vgpu_library_module(worker, library, send->context, &module);
  return result == CUDA_SUCCESS ? vgpu_module_variable(module, bulk, &reply->address, &reply->bytes) : result;
}

int32_t vgpu_software_cuLibraryEnumerateKernels(struct vgpu_worker *worker,
                                                const struct vgpu_send_cuLibraryEnumerateKernels *send,
                                                struct vgpu_reply_cuLibraryEnumerateKernels *reply,
                                                struct vgpu_bulk *bulk) {
  struct vgpu_library_object *library = vgpu_programs_object(worker, send->library, VGPU_HANDLE_LIBRARY);
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  struct vgpu_loaded *loaded;
  int32_t result = library_on(worker, library, send->device, &loaded);
  if (result != CUDA_SUCCESS) return result;
  return vgpu_code_enumerate(&loaded->program, send->first, &reply->total, &reply->count, bulk);
}

int32_t vgpu_software_cuLibraryGetKernel(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuLibraryGetKernel *send,
                                         struct vgpu_bulk *bulk) {
  struct vgpu_library_object *library = vgpu_programs_object(worker, send->library, VGPU_HANDLE_LIBRARY);
  if (library == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (!vgpu_code_is_name(bulk)) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_loaded *loaded;
  int32_t result = library_on(worker, library, send->device, &loaded);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_program_function *function =
      vgpu_program_function(&loaded->program, (const char *)bulk->in, bulk->in_size);
  if (function == NULL) return CUDA_ERROR_NOT_FOUND;
  vgpu_run_judge(worker, loaded, NULL, 0);
  struct vgpu_kernel_object *kernel = calloc(1, sizeof *kernel);
  char *name = strdup(function->name);
  if (kernel == NULL || name == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  else result = vgpu_programs_name_handle(worker, send->kernel, VGPU_HANDLE_KERNEL, 0, kernel);
  if (result != CUDA_SUCCESS) {
    free(kernel);
    free(name);
    return result;
  }
  kernel->next = library->kernels;
  kernel->number = send->kernel;
  kernel->library = library;
  kernel->name = name;
  library->kernels = kernel;
  struct vgpu_function_settings settings = vgpu_function_settings_of(function);
  vgpu_function_tell(function, &settings, bulk);
  return CUDA_SUCCESS;
}

static int32_t kernel_on(struct vgpu_worker *worker, struct vgpu_kernel_object *kernel, uint32_t device,
                         const struct vgpu_program_function **function,
                         struct vgpu_function_settings *settings) {
  struct vgpu_loaded *loaded;
  int32_t result = library_on(worker, kernel->library, device, &loaded);
  if (result != CUDA_SUCCESS) return result;
  *function = vgpu_program_function(&loaded->program, kernel->name, strlen(kernel->name));
  if (*function == NULL) return CUDA_ERROR_NOT_FOUND;
  *settings =
      (kernel->set >> device & 1) != 0 ? kernel->settings[device] : vgpu_function_settings_of(*function);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuKernelGetAttribute(struct vgpu_worker *worker,
                                           const struct vgpu_send_cuKernelGetAttribute *send,
                                           struct vgpu_bulk *bulk) {
  struct vgpu_kernel_object *kernel = vgpu_programs_object(worker, send->kernel, VGPU_HANDLE_KERNEL);
  if (kernel == NULL) return CUDA_ERROR_INVALID_HANDLE;
  const struct vgpu_program_function *function;
  struct vgpu_function_settings settings;
  int32_t result = kernel_on(worker, kernel, send->device, &function, &settings);
  if (result == CUDA_SUCCESS) vgpu_function_tell(function, &settings, bulk);
  return result;
}

int32_t vgpu_software_cuKernelSetAttribute(struct vgpu_worker *worker,
                                           const struct vgpu_send_cuKernelSetAttribute *send) {
  struct vgpu_kernel_object *kernel = vgpu_programs_object(worker, send->kernel, VGPU_HANDLE_KERNEL);
  if (kernel == NULL) return CUDA_ERROR_INVALID_HANDLE;
  const struct vgpu_program_function *function;
  struct vgpu_function_settings settings;
  int32_t result = kernel_on(worker, kernel, send->device, &function, &settings);
  if (result == CUDA_SUCCESS) {
    result = vgpu_function_change(&worker->inventory->profiles->devices[send->device], function, &settings,
                                  send->attribute, send->value);
  }
  if (result != CUDA_SUCCESS) return result;
  kernel->settings[send->device] = settings;
  kernel->set |= 1u << send->device;
  return CUDA_SUCCESS;
}

int32_t vgpu_programs_function(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                               struct vgpu_module_object **module,
                               const struct vgpu_program_function **function,
                               struct vgpu_function_settings *settings) {
  struct vgpu_function_object *object = vgpu_programs_object(worker, number, VGPU_HANDLE_FUNCTION);
  if (object != NULL) {
    if (object->module->context != context) return CUDA_ERROR_INVALID_HANDLE;
    *module = object->module;
    *function = object->function;
    *settings = object->settings;
    return CUDA_SUCCESS;
  }
  struct vgpu_kernel_object *kernel = vgpu_programs_object(worker, number, VGPU_HANDLE_KERNEL);
  if (kernel == NULL) return CUDA_ERROR_INVALID_HANDLE;
  int32_t result = vgpu_library_module(worker, kernel->library, context, module);
  return result == CUDA_SUCCESS ? kernel_on(worker, kernel, (*module)->device, function, settings) : result;
}
