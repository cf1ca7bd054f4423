/*
 * Managed variables, in memory that guest and device share. A module with managed variables gets such memory
 * for all its variables before their first address is returned. The host moves the bytes, so earlier launches
 * are correct, too.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/module/code.h"

#define NOWHERE (-2) /* CU_DEVICE_INVALID */

struct vgpu_managed_code {
  struct vgpu_managed_code *next;
  uint64_t code;    /* number of the module or library */
  uint64_t context; /* context with which the module ends; 0: the code is a library */
  void *memory;
  size_t bytes;
  uint32_t shared_region;
};

static struct vgpu_managed_code *find(const struct vgpu_driver *driver, uint64_t code) {
  struct vgpu_managed_code *managed = driver->managed_code;
  while (managed != NULL && managed->code != code) managed = managed->next;
  return managed;
}

/* Allocates memory for the variables of a module; NULL: not possible. */
static struct vgpu_managed_code *make(struct vgpu_driver *driver, const struct vgpu_code_in *in,
                                      uint64_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (bytes == 0 || bytes > SIZE_MAX / 2) return NULL;
  struct vgpu_managed_code *managed = calloc(1, sizeof *managed);
  if (managed == NULL) return NULL;
  managed->code = in->code;
  managed->context = in->library ? 0 : in->context;
  managed->bytes = (bytes + page - 1) / page * page;
  managed->memory = vgpu_lent_take(driver, in->context, managed->bytes, &managed->shared_region);
  if (managed->memory == NULL) {
    free(managed);
    return NULL;
  }
  managed->next = driver->managed_code;
  driver->managed_code = managed;
  return managed;
}

/* Gives a module's variables their shared memory. The caller holds managed_lock. */
static int place(struct vgpu_driver *driver, const struct vgpu_code_in *in,
                 const struct vgpu_reply_managed_variables *told) {
  if (told->any == 0 || told->address != 0) return CUDA_SUCCESS;
  /* A library keeps its memory: the program may know the address. */
  struct vgpu_managed_code *managed = find(driver, in->code);
  if (managed == NULL) managed = make(driver, in, told->bytes);
  if (managed == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  const struct vgpu_send_managed_place send = {
      .context = in->context, .code = in->code, .address = (uint64_t)(uintptr_t)managed->memory};
  return vgpu_cuda_call(VGPU_OP_managed_place, &send, sizeof send, NULL, 0);
}

int vgpu_managed_code_ready(struct vgpu_driver *driver, const struct vgpu_code_in *in, const char *name,
                            struct vgpu_region *region) {
  *region = (struct vgpu_region){.kind = VGPU_REGION_DEVICE, .context = in->context, .module = in->code};
  if (!vgpu_lent_possible()) return CUDA_SUCCESS;
  const struct vgpu_send_managed_variables send = {.context = in->context, .code = in->code};
  struct vgpu_reply_managed_variables told = {0};
  struct vgpu_cuda_exchange exchange = {.send = &send,
                                        .send_size = sizeof send,
                                        .send_bulk = name,
                                        .send_bulk_size = (uint32_t)strlen(name),
                                        .reply = &told,
                                        .reply_size = sizeof told};
  pthread_mutex_lock(&driver->managed_lock);
  int result = vgpu_cuda_exchange(VGPU_OP_managed_variables, &exchange);
  /* An older host does not know the call: all variables are in device memory. */
  if (result == CUDA_ERROR_NOT_SUPPORTED) result = CUDA_SUCCESS;
  const bool mirrored = vgpu_session_mirrors(driver->session) && told.named != 0;
  if (result == CUDA_SUCCESS)
    result = mirrored ? vgpu_mirrored_take(driver, in, told.address, told.bytes) : place(driver, in, &told);
  if (result == CUDA_SUCCESS && told.named != 0 && (mirrored || find(driver, in->code) != NULL)) {
    region->kind = VGPU_REGION_MANAGED;
    region->flags = 1;
    region->lent = true;
    region->advice[1] = region->advice[2] = NOWHERE;
  }
  pthread_mutex_unlock(&driver->managed_lock);
  return result;
}

void vgpu_managed_code_give(struct vgpu_driver *driver, uint64_t ended) {
  struct vgpu_managed_code *gone = NULL;
  pthread_mutex_lock(&driver->managed_lock);
  vgpu_mirrored_give(driver, ended);
  for (struct vgpu_managed_code **link = &driver->managed_code; *link != NULL;) {
    struct vgpu_managed_code *managed = *link;
    if (managed->code != ended && managed->context != ended) {
      link = &managed->next;
      continue;
    }
    *link = managed->next;
    managed->next = gone;
    gone = managed;
  }
  pthread_mutex_unlock(&driver->managed_lock);
  while (gone != NULL) {
    struct vgpu_managed_code *managed = gone;
    gone = managed->next;
    vgpu_lent_give(driver, managed->memory, managed->bytes, managed->shared_region);
    free(managed);
  }
}
