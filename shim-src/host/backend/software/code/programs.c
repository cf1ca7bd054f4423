#include "host/backend/software/code/programs.h"

#include <stdlib.h>
#include <string.h>

#include "api/device_attributes.h"
#include "cuda_results.h"
#include "host/backend/software/kernel/run.h"
#include "host/backend/software/software.h"
#include "host/session/worker.h"

static struct vgpu_loaded *find_loaded(struct vgpu_worker *worker, const struct vgpu_hash *hash,
                                       uint64_t size, uint32_t architecture) {
  struct vgpu_loaded *loaded = software_of(worker)->programs.loaded;
  while (loaded != NULL && (loaded->size != size || loaded->architecture != architecture ||
                            memcmp(&loaded->hash, hash, sizeof *hash) != 0)) {
    loaded = loaded->next;
  }
  return loaded;
}

struct vgpu_program_target vgpu_programs_target(struct vgpu_worker *worker, uint32_t device) {
  const struct vgpu_device_profile *profile = &worker->inventory->profiles->devices[device];
  return (struct vgpu_program_target){
      .architecture = profile->compute_major * 10 + profile->compute_minor,
      .max_threads = profile->attributes[VGPU_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
      .shared_block = profile->attributes[VGPU_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK],
      .registers_block = profile->attributes[VGPU_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK],
      .memory_limit = vgpu_code_limit(worker) - worker->code.bytes};
}

int32_t vgpu_programs_load(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size,
                           uint32_t device, struct vgpu_loaded **result, char *why, size_t why_size) {
  struct vgpu_program_target target = vgpu_programs_target(worker, device);
  struct vgpu_loaded *loaded = find_loaded(worker, hash, size, target.architecture);
  if (loaded != NULL) {
    loaded->users++;
    *result = loaded;
    return CUDA_SUCCESS;
  }
  unsigned char *image = vgpu_code_take_image(worker, hash, size);
  if (image == NULL) return VGPU_CODE_MISSING;
  target.memory_limit = vgpu_code_limit(worker) - worker->code.bytes; /* the upload counts no more */
  loaded = malloc(sizeof *loaded);
  if (loaded == NULL) {
    free(image);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *loaded =
      (struct vgpu_loaded){.hash = *hash, .size = size, .architecture = target.architecture, .users = 1};
  int32_t status = vgpu_program_read(image, size, &target, &loaded->program, why, why_size);
  if (status == CUDA_SUCCESS && !vgpu_code_take(worker, loaded->program.bytes)) {
    vgpu_program_free(&loaded->program);
    status = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (status != CUDA_SUCCESS) {
    free(loaded);
    return status;
  }
  vgpu_run_refuse_all(worker, &loaded->program);
  loaded->next = software_of(worker)->programs.loaded;
  software_of(worker)->programs.loaded = loaded;
  *result = loaded;
  return CUDA_SUCCESS;
}

void vgpu_programs_release(struct vgpu_worker *worker, struct vgpu_loaded *loaded) {
  if (loaded == NULL || --loaded->users > 0) return;
  struct vgpu_loaded **link = &software_of(worker)->programs.loaded;
  while (*link != loaded) link = &(*link)->next;
  *link = loaded->next;
  vgpu_code_give(worker, loaded->program.bytes);
  vgpu_program_free(&loaded->program);
  free(loaded);
}
