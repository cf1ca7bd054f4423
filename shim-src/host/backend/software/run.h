/*
 * The seam between a launch, checked and recorded, and what executes it. The PTX machine
 * (ptx/) runs it; with --software-kernels=refuse a launch ends here with NOT_SUPPORTED, with skip it is taken
 * and nothing is executed.
 */
#ifndef VGPU_HOST_SOFTWARE_RUN_H
#define VGPU_HOST_SOFTWARE_RUN_H

#include "host/backend/software/code/programs.h"

/* One launch whose every argument was checked. */
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
 * A module was loaded: makes it ready to run, if it can be. A module that cannot run is loaded all the
 * same; its launches fail. When it sets module->code it also places the variables (module->globals).
 */
int32_t vgpu_run_load(struct vgpu_worker *worker, struct vgpu_module_object *module);
void vgpu_run_unload(struct vgpu_worker *worker, struct vgpu_module_object *module);

/* Makes one function of a module ready to run; function->refused says whether it can be. */
void vgpu_run_prepare(struct vgpu_worker *worker, struct vgpu_module_object *module,
                      const struct vgpu_program_function *function);
/* The same, for a program that is in no context yet: of all functions, unless its text is large. */
void vgpu_run_judge(struct vgpu_worker *worker, struct vgpu_loaded *loaded);

/* A CUresult. */
int32_t vgpu_run_launch(struct vgpu_worker *worker, const struct vgpu_checked_launch *launch);

/* Device memory of a context, accounted as the guest's own is. */
int32_t vgpu_device_allocate(struct vgpu_worker *worker, uint64_t context, uint64_t bytes, uint64_t *address);
void vgpu_device_free(struct vgpu_worker *worker, uint64_t address);

#endif
