#include "host/backend/cuda/load.h"

#include <stdlib.h>
#include <string.h>

#include "host/backend/common/link_inputs.h"
#include "host/backend/common/rdc_link.h"
#include "host/backend/common/image_check.h"
#include "host/backend/cuda/session.h"
#include "host/log.h"
#include "image/elf_text.h"

#define MOST_THREADS 8u

/*
 * Returns the text of an image that only the driver's compiler can use, for free(): objects that nothing has
 * linked yet, and what a software device has linked. NULL: the image is another one.
 */
static char *text_of(const unsigned char *image, uint64_t size) {
  uint64_t length;
  const char *text = vgpu_elf_text(image, size, &length);
  return text != NULL ? strdup(text) : vgpu_rdc_text(image, size, VGPU_IMAGE_MAX);
}

/* Returns the image with a zero after it, because text ends there. NULL: the guest must send it. */
static char *find_image(struct vgpu_worker *worker, enum vgpu_load_kind kind, const struct vgpu_hash *hash,
                        uint64_t size) {
  unsigned char *image = vgpu_code_take_image(worker, hash, size);
  if (image == NULL) return NULL;
  char *linked = kind == VGPU_LOAD_LINK ? NULL : text_of(image, size);
  if (linked != NULL) {
    free(image);
    return linked;
  }
  char *text = realloc(image, size + 1);
  if (text == NULL) free(image);
  else text[size] = '\0';
  return text;
}

/*
 * Checks the image before the driver sees it, because the driver trusts the sizes in it. Returns a CUresult.
 */
static int32_t walk(struct vgpu_worker *worker, enum vgpu_load_kind kind, const char *image, uint64_t size) {
  char why[512];
  int32_t result = kind == VGPU_LOAD_LINK
                       ? vgpu_link_inputs_walk((const unsigned char *)image, size, vgpu_code_limit(worker),
                                               why, sizeof why)
                       : vgpu_image_check(image, size, vgpu_code_limit(worker), why, sizeof why);
  if (result != CUDA_SUCCESS) vgpu_host_log("refused", worker->session, "an image: %s", why);
  return result;
}

/* The option to preserve the binary is not passed for a library. */
static int32_t compile(struct vgpu_cuda_load *load) {
  struct vgpu_cuda_jit *options = &load->options;
  if (load->kind == VGPU_LOAD_LINK) return vgpu_cuda_link(load);
  return load->context != 0 ? VGPU_DRIVER(load->api, cuModuleLoadDataEx, &load->object, load->image,
                                          options->count, options->names, options->values)
                            : VGPU_DRIVER(load->api, cuLibraryLoadData, &load->object, load->image,
                                          options->names, options->values, options->count, NULL, NULL, 0);
}

static void *compile_beside(void *argument) {
  struct vgpu_cuda_load *load = argument;
  int32_t result = CUDA_SUCCESS;
  if (load->context != 0)
    result = VGPU_DRIVER(load->api, cuCtxSetCurrent, (struct vgpu_context *)load->driver);
  load->result = result == CUDA_SUCCESS ? compile(load) : result;
  __atomic_store_n(&load->done, true, __ATOMIC_RELEASE);
  return NULL;
}

static bool is_done(const struct vgpu_cuda_load *load) {
  return !load->threaded || __atomic_load_n(&load->done, __ATOMIC_ACQUIRE);
}

/* Compiles in a separate thread, unless the call has no lane: a repeated call would not be recognized. */
static void begin(struct vgpu_worker *worker, struct vgpu_cuda_load *load) {
  load->lane = worker->request->frame.lane;
  load->threaded = load->lane != 0 && vgpu_cuda_begin_endings(worker) &&
                   pthread_create(&load->thread, NULL, compile_beside, load) == 0;
  if (!load->threaded) load->result = compile(load);
}

static int query_load(struct vgpu_worker *worker, void *what) {
  (void)worker;
  return is_done(what) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Tells whether one more load may have a thread. */
static int query_room(struct vgpu_worker *worker, void *what) {
  (void)what;
  uint32_t count = 0;
  for (const struct vgpu_cuda_load *load = cuda_of(worker)->loads; load != NULL; load = load->next)
    count += !is_done(load);
  return count < MOST_THREADS ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

int32_t vgpu_cuda_unload_module(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuModuleUnload, ending->object);
}

int32_t vgpu_cuda_unload_library(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuLibraryUnload, ending->object);
}

void vgpu_cuda_unload(struct vgpu_worker *worker, const struct vgpu_cuda_load *load) {
  const bool module = load->kind == VGPU_LOAD_MODULE;
  (void)vgpu_cuda_end(
      worker, &(struct vgpu_cuda_ending){.end = module ? vgpu_cuda_unload_module : vgpu_cuda_unload_library,
                                         .context = load->driver,
                                         .object = load->object});
}

static void free_load(struct vgpu_cuda_load *load) {
  uint32_t unused[2];
  free(load->image);
  vgpu_cuda_jit_tell(&load->options, &unused[0], &unused[1], NULL);
  free(load);
}

static int32_t end_load(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  struct vgpu_cuda_load *load = ending->object;
  if (load->threaded) pthread_join(load->thread, NULL);
  if (load->result == CUDA_SUCCESS && load->kind == VGPU_LOAD_MODULE)
    VGPU_DRIVER(api, cuModuleUnload, load->object);
  if (load->result == CUDA_SUCCESS && load->kind == VGPU_LOAD_LIBRARY)
    VGPU_DRIVER(api, cuLibraryUnload, load->object);
  if (load->kind == VGPU_LOAD_LINK) free(load->object);
  free_load(load);
  return CUDA_SUCCESS;
}

/*
 * Frees a load whose number the guest does not have, when it is done. Its context, if it has one, is current.
 */
static void drop(struct vgpu_worker *worker, struct vgpu_cuda_load **link) {
  struct vgpu_cuda_load *load = *link;
  *link = load->next;
  vgpu_code_give(worker, load->bytes);
  (void)vgpu_cuda_end(worker,
                      &(struct vgpu_cuda_ending){
                          .end = end_load, .context = load->driver, .object = load, .lane = load->lane});
}

/* Frees loads that are done and abandoned. */
static void collect(struct vgpu_worker *worker) {
  for (struct vgpu_cuda_load **link = &cuda_of(worker)->loads; *link != NULL;) {
    struct vgpu_cuda_load *load = *link;
    if (load->note != 0 || !is_done(load)) {
      link = &load->next;
      continue;
    }
    struct vgpu_cuda *cuda;
    if (load->context != 0) (void)vgpu_cuda_enter(worker, load->context, &cuda);
    drop(worker, link);
  }
}

void vgpu_cuda_load_over(struct vgpu_worker *worker, uint64_t note) {
  for (struct vgpu_cuda_load *load = cuda_of(worker)->loads; load != NULL; load = load->next)
    if (load->note == note) load->note = 0;
}

/* Begins a load with a valid image. NULL: the image is missing, or `outcome` has the error. */
static struct vgpu_cuda_load *make(struct vgpu_worker *worker, enum vgpu_load_kind kind, uint64_t context,
                                   const struct vgpu_hash *hash, uint64_t bytes, const struct vgpu_bulk *bulk,
                                   uint32_t *missing, int32_t *outcome) {
  struct vgpu_cuda_load *load = calloc(1, sizeof *load);
  *outcome = CUDA_ERROR_OUT_OF_MEMORY;
  if (load == NULL) return NULL;
  const struct vgpu_handle *of = vgpu_handles_find(&worker->handles, context, VGPU_HANDLE_CONTEXT);
  load->api = &cuda_of(worker)->api;
  load->kind = kind;
  load->image_size = bytes;
  load->context = context;
  load->driver = of == NULL ? NULL : of->driver;
  load->image = find_image(worker, kind, hash, bytes);
  *missing = load->image == NULL;
  *outcome = CUDA_SUCCESS;
  if (load->image != NULL) {
    /* The bytes count until the driver has the image. */
    load->bytes = vgpu_code_take(worker, bytes) ? bytes : 0;
    *outcome = load->bytes == 0 ? CUDA_ERROR_OUT_OF_MEMORY : walk(worker, kind, load->image, bytes);
    if (*outcome == CUDA_SUCCESS && !vgpu_cuda_jit_read(bulk, &load->options))
      *outcome = CUDA_ERROR_INVALID_VALUE;
    if (*outcome == CUDA_SUCCESS) return load;
  }
  uint32_t unused[2];
  vgpu_cuda_load_end(worker, load, &unused[0], &unused[1], NULL);
  return NULL;
}

int32_t vgpu_cuda_load(struct vgpu_worker *worker, enum vgpu_load_kind kind, uint64_t context,
                       const struct vgpu_hash *hash, uint64_t bytes, const struct vgpu_bulk *bulk,
                       struct vgpu_cuda_load **load, uint32_t *missing, int32_t *outcome) {
  struct vgpu_cuda_load **link = &cuda_of(worker)->loads;
  const uint32_t lane = worker->request->frame.lane;
  while (*link != NULL && (worker->note == 0 || (*link)->note != worker->note)) link = &(*link)->next;
  *load = *link;
  if (*load == NULL) {
    struct vgpu_cuda *cuda;
    collect(worker);
    if (lane != 0 && vgpu_cuda_wait(worker, query_room, NULL) != CUDA_SUCCESS) return VGPU_WAITS;
    int32_t entered = context == 0 ? CUDA_SUCCESS : vgpu_cuda_enter(worker, context, &cuda);
    if (entered != CUDA_SUCCESS) return entered;
    *load = make(worker, kind, context, hash, bytes, bulk, missing, outcome);
    if (*load == NULL) return CUDA_SUCCESS;
    worker->note = (*load)->note = vgpu_cuda_note(cuda_of(worker));
    begin(worker, *load);
    (*load)->next = cuda_of(worker)->loads;
    cuda_of(worker)->loads = *load;
    link = &cuda_of(worker)->loads;
  }
  if (vgpu_cuda_wait(worker, query_load, *load) != CUDA_SUCCESS) return VGPU_WAITS;
  if ((*load)->threaded) pthread_join((*load)->thread, NULL);
  *link = (*load)->next;
  *outcome = (*load)->result;
  return CUDA_SUCCESS;
}

void vgpu_cuda_load_end(struct vgpu_worker *worker, struct vgpu_cuda_load *load, uint32_t *info_bytes,
                        uint32_t *error_bytes, struct vgpu_bulk *bulk) {
  if (load == NULL) return;
  free(load->image);
  vgpu_cuda_jit_tell(&load->options, info_bytes, error_bytes, bulk);
  vgpu_code_give(worker, load->bytes);
  free(load);
}

void vgpu_cuda_drop_loads(struct vgpu_worker *worker, uint64_t context) {
  for (struct vgpu_cuda_load **link = &cuda_of(worker)->loads; *link != NULL;) {
    /* Frees its module, too, because a primary context can outlive the guest's use of it. */
    if ((*link)->context == context) drop(worker, link);
    else link = &(*link)->next;
  }
}
