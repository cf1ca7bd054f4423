/*
 * The handling of code that all backends share. Images come from the guest in pieces and are kept for the
 * next session of the same peer. They share one memory limit with the programs and graphs that are made from
 * them.
 */
#ifndef VGPU_HOST_CODE_H
#define VGPU_HOST_CODE_H

#include "host/backend/common/images.h"

struct vgpu_worker;
struct vgpu_upload;
struct vgpu_result;
struct vgpu_exec_object;

enum vgpu_kernels { VGPU_KERNELS_RUN = 1, VGPU_KERNELS_SKIP = 2, VGPU_KERNELS_REFUSE = 3 };

/* Returns a word for the device's name, before " (simulated)", if the device does not run kernels. */
static inline const char *vgpu_kernels_word(enum vgpu_kernels kernels) {
  return kernels == VGPU_KERNELS_SKIP ? " - kernels skipped" : "";
}

/* Options that all sessions of a daemon share. */
struct vgpu_code_options {
  enum vgpu_kernels kernels;
  uint32_t checks;            /* PTX_CHECK_*: checks for kernels */
  uint32_t compile;           /* enum ptx_compile */
  int launch_log;             /* descriptor that gets a line for each launch; -1: none */
  uint64_t session_bytes;     /* memory for images, programs and graphs of one session */
  struct vgpu_images *images; /* NULL: no image is kept between sessions */
};

struct vgpu_code {
  struct vgpu_upload *uploads;
  struct vgpu_result *results;    /* results.c: images that the guest has not read yet */
  uint64_t last_result;           /* number of the newest */
  struct vgpu_exec_object *execs; /* graph.c */
  uint64_t bytes;                 /* bytes that uploads, programs and graphs hold */
};

/*
 * Returns the limit of the session's memory for code: --session-code, but at most its limit of device memory.
 */
uint64_t vgpu_code_limit(const struct vgpu_worker *worker);

/* Takes bytes of the session's limit for code. False: the limit is reached. */
bool vgpu_code_take(struct vgpu_worker *worker, uint64_t bytes);
void vgpu_code_give(struct vgpu_worker *worker, uint64_t bytes);

/*
 * Returns the image for free(), from an upload or from the cache; NULL: it is missing. The upload ends here,
 * because images are large and should not be copied.
 */
unsigned char *vgpu_code_take_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size);
/* Returns a copy of the image, for free(); the upload stays. */
unsigned char *vgpu_code_copy_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size);
/* Ends a finished upload that is no longer needed. */
void vgpu_code_forget_upload(struct vgpu_worker *worker, const struct vgpu_hash *hash);

/* Frees the executable graphs of a context. Called before its handles are removed. */
void vgpu_graph_drop_context(struct vgpu_worker *worker, uint64_t context);

#endif
