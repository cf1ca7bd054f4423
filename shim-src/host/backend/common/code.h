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
struct vgpu_exec_object;

enum vgpu_kernels { VGPU_KERNELS_RUN = 1, VGPU_KERNELS_SKIP = 2, VGPU_KERNELS_REFUSE = 3 };

/* Part of a device's name, before " (simulated)", when it does not compute what it is asked to. */
static inline const char *vgpu_kernels_word(enum vgpu_kernels kernels) {
  return kernels == VGPU_KERNELS_SKIP ? " - kernels skipped" : "";
}

/* The same for all sessions of a daemon. */
struct vgpu_code_options {
  enum vgpu_kernels kernels;
  uint32_t checks;            /* PTX_CHECK_*: what is looked for in kernels */
  int launch_log;             /* descriptor to write a line for each launch to, or -1 */
  uint64_t session_bytes;     /* memory for images, programs and graphs of one session */
  struct vgpu_images *images; /* NULL: nothing is kept between sessions */
};

struct vgpu_code {
  struct vgpu_upload *uploads;
  struct vgpu_exec_object *execs; /* graph.c */
  uint64_t bytes;                 /* held by uploads, programs and graphs */
};

/* Memory for code that the session may hold: --session-code, and never more than its device memory. */
uint64_t vgpu_code_limit(const struct vgpu_worker *worker);

/* Takes bytes of the session's allowance for code; false: no more. */
bool vgpu_code_take(struct vgpu_worker *worker, uint64_t bytes);
void vgpu_code_give(struct vgpu_worker *worker, uint64_t bytes);

/*
 * The image itself, for free(), from an upload or the cache; NULL: not there. The upload ends: images are
 * large, and nothing is copied.
 */
unsigned char *vgpu_code_take_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size);
/* A copy of it, for free(); the upload stays. */
unsigned char *vgpu_code_copy_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size);
/* A finished upload is needed no more. */
void vgpu_code_forget_upload(struct vgpu_worker *worker, const struct vgpu_hash *hash);

/* The executable graphs of a context go; before its handles are removed. */
void vgpu_graph_drop_context(struct vgpu_worker *worker, uint64_t context);

#endif
