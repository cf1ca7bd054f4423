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

/* A module that cannot run is loaded; its launches fail. Sets module->code and module->globals. */
int32_t vgpu_run_load(struct vgpu_worker *worker, struct vgpu_module_object *module);
void vgpu_run_unload(struct vgpu_worker *worker, struct vgpu_module_object *module);

/* Called if the device can run none of the program. */
void vgpu_run_refuse_all(const struct vgpu_worker *worker, struct vgpu_program *program);

/* function->refused says whether it can run. */
void vgpu_run_prepare(struct vgpu_worker *worker, struct vgpu_module_object *module,
                      const struct vgpu_program_function *function);
/* For all functions, unless the text is large; with `why` in any case, and the reasons go there. */
void vgpu_run_judge(struct vgpu_worker *worker, struct vgpu_loaded *loaded, char *why, size_t why_size);

int32_t vgpu_run_launch(struct vgpu_worker *worker, const struct vgpu_checked_launch *launch);

/* Logs and counts a launch that the guest has refused. Returns its CUresult. */
int32_t vgpu_run_refused(struct vgpu_worker *worker, struct vgpu_module_object *module,
                         const struct vgpu_program_function *function);

int32_t vgpu_device_allocate(struct vgpu_worker *worker, uint64_t context, uint64_t bytes, uint64_t *address);
void vgpu_device_free(struct vgpu_worker *worker, uint64_t address);

#endif
