/*
 * Between checked launches and the PTX machine (ptx/). --software-kernels=refuse: launches return
 * NOT_SUPPORTED; skip: they succeed without running.
 */
#ifndef VGPU_HOST_SOFTWARE_RUN_H
#define VGPU_HOST_SOFTWARE_RUN_H

#include "host/backend/software/code/programs.h"

struct vgpu_checked_launch {
  uint64_t context;
  uint64_t stream;
  struct vgpu_module_object *module;
  const struct vgpu_program_function *function;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3]; /* 1, 1, 1 without clusters */
  uint32_t dynamic_shared;
  bool cooperative;
  const unsigned char *parameters; /* function->parameter_bytes */
};

/*
 * Prepares a loaded module. A module that cannot run is loaded all the same, and its launches fail. If this
 * sets module->code, it also allocates the variables (module->globals).
 */
int32_t vgpu_run_load(struct vgpu_worker *worker, struct vgpu_module_object *module);
void vgpu_run_unload(struct vgpu_worker *worker, struct vgpu_module_object *module);

/* Sets the result of every function's launches if this device can run none of the program. */
void vgpu_run_refuse_all(const struct vgpu_worker *worker, struct vgpu_program *program);

/* Makes one function of a module ready to run. function->refused says whether it can run. */
void vgpu_run_prepare(struct vgpu_worker *worker, struct vgpu_module_object *module,
                      const struct vgpu_program_function *function);
/*
 * Prepares all functions of a program that is in no context yet, unless its text is large. With `why` also
 * for a large text; the reasons are written there. `why` may be NULL.
 */
void vgpu_run_judge(struct vgpu_worker *worker, struct vgpu_loaded *loaded, char *why, size_t why_size);

int32_t vgpu_run_launch(struct vgpu_worker *worker, const struct vgpu_checked_launch *launch);

/* Logs and counts a launch that the guest has refused by itself. Returns the CUresult of the launch. */
int32_t vgpu_run_refused(struct vgpu_worker *worker, struct vgpu_module_object *module,
                         const struct vgpu_program_function *function);

/* Allocates device memory for a context, accounted like the guest's own. Returns a CUresult. */
int32_t vgpu_device_allocate(struct vgpu_worker *worker, uint64_t context, uint64_t bytes, uint64_t *address);
void vgpu_device_free(struct vgpu_worker *worker, uint64_t address);

#endif
