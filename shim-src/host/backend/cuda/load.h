/*
 * Loads and links code. The driver may compile it for a long time. A separate thread does that, while this
 * process serves the other threads of the guest.
 */
#ifndef VGPU_HOST_CUDA_LOAD_H
#define VGPU_HOST_CUDA_LOAD_H

#include <pthread.h>

#include "host/backend/cuda/driver.h"
#include "host/backend/cuda/ending.h"
#include "host/backend/cuda/jit.h"
#include "image/sha256.h"
#include "wire/module.h"

enum vgpu_load_kind { VGPU_LOAD_MODULE, VGPU_LOAD_LIBRARY, VGPU_LOAD_LINK };

struct vgpu_cuda_load {
  enum vgpu_load_kind kind;
  uint64_t note; /* of the call; 0: its thread has abandoned it */
  uint32_t lane; /* the guest's thread */
  struct vgpu_cuda_load *next;
  const struct vgpu_driver_api *api;
  uint64_t context; /* number of the context of a module or link; 0: a library, which needs none */
  void *driver;     /* the driver's handle of that context */
  struct vgpu_cuda_jit options;
  char *image;
  uint64_t image_size;
  uint64_t bytes; /* its part of the session's limit for code */
  void *object;   /* CUmodule or CUlibrary, or the linked image, for free() */
  size_t linked;  /* bytes of the linked image */
  int32_t result;
  pthread_t thread;
  bool threaded;
  bool done; /* written by the thread */
};

/*
 * Loads the code that the request names, or continues a load of it. Returns VGPU_WAITS until the load is
 * done, then CUDA_SUCCESS with *load for vgpu_cuda_load_end(). *load is NULL if there is no load: `missing`
 * or `outcome` has the reason. Every other result is a CUresult of the failed step.
 */
int32_t vgpu_cuda_load(struct vgpu_worker *worker, enum vgpu_load_kind kind, uint64_t context,
                       const struct vgpu_hash *hash, uint64_t bytes, const struct vgpu_bulk *bulk,
                       struct vgpu_cuda_load **load, uint32_t *missing, int32_t *outcome);

/*
 * Links the inputs of load->image (link_inputs.h), which are sound, with the driver's linker, and copies the
 * result. Returns a CUresult.
 */
int32_t vgpu_cuda_link(struct vgpu_cuda_load *load);

/*
 * Unloads a module or library whose handle the guest did not get. If it has a context, the caller has made
 * this context current.
 */
void vgpu_cuda_unload(struct vgpu_worker *worker, const struct vgpu_cuda_load *load);
int32_t vgpu_cuda_unload_module(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending);
int32_t vgpu_cuda_unload_library(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending);

/* Ends a load: sends the compiler's output to the guest. The driver has copied the image. */
void vgpu_cuda_load_end(struct vgpu_worker *worker, struct vgpu_cuda_load *load, uint32_t *info_bytes,
                        uint32_t *error_bytes, struct vgpu_bulk *bulk);

/* Marks the load of a call that has ended as abandoned. It is freed when it is done. */
void vgpu_cuda_load_over(struct vgpu_worker *worker, uint64_t note);

/* Frees the loads into a context that ends, when they are done. */
void vgpu_cuda_drop_loads(struct vgpu_worker *worker, uint64_t context);

#endif
