/*
 * Images, modules and libraries, and their functions. A kernel (of a library) and a function (of a module)
 * are the same structure, because a CUkernel may be given wherever a CUfunction is expected.
 */
#ifndef VGPU_GUEST_CUDA_CODE_H
#define VGPU_GUEST_CUDA_CODE_H

#include "guest/cuda/internal.h"
#include "image/sha256.h"
#include "wire/module.h"

/* An image as it is sent, without code that fits no visible device. */
struct vgpu_image {
  unsigned char *bytes; /* allocated, for free(), or NULL */
  uint64_t size;
  struct vgpu_hash hash;
  bool container; /* a fat binary: it has nothing to compile, so a load needs no logs */
};

/* Reads an image whose length is in itself. Returns a CUresult. */
int vgpu_image_take(const struct vgpu_driver *driver, const void *code, struct vgpu_image *image);
/* The same, of known length. */
int vgpu_image_take_bytes(const struct vgpu_driver *driver, const void *bytes, uint64_t size,
                          struct vgpu_image *image);
void vgpu_image_free(struct vgpu_image *image);
int vgpu_image_read_file(const char *path, unsigned char **bytes, uint64_t *size);

struct vgpu_jit {
  uint32_t count;
  int32_t *options;
  void **values; /* the load writes some of them: sizes of logs, time taken */
};

/* A call that loads or links. Its reply begins as struct vgpu_reply_cuModuleLoadDataEx. */
struct vgpu_image_request {
  uint32_t opcode;
  uint32_t send_size;
  uint32_t reply_size;
  const void *send;
  void *reply;
};

/* Sends the image and repeats the call if the host lacks the image. Delivers the logs. Returns a CUresult. */
int vgpu_image_load(const struct vgpu_image_request *request, const struct vgpu_image *image,
                    const struct vgpu_jit *jit);

struct vgpu_module {
  uint64_t number;
  struct vgpu_context *context;
  uint64_t context_number;
  struct vgpu_code_library *library; /* NULL: the module was loaded by itself */
  struct vgpu_module *next;          /* next module of the library */
  struct vgpu_callable *functions;
};

struct vgpu_callable {
  uint64_t number;
  struct vgpu_callable *next;
  struct vgpu_module *module;        /* of a function */
  struct vgpu_code_library *library; /* of a kernel */
  char *name;
  struct vgpu_parameter *parameters;
  uint32_t parameter_count;
  uint32_t parameter_bytes;
  int32_t refused; /* result of every launch if the device cannot run it, else 0 */
  uint64_t loaded; /* number of the context in which it was last launched */
  uint32_t known;  /* bit n: attributes[n] are known */
  int32_t (*attributes)[VGPU_FUNCTION_ATTRIBUTES]; /* by device; a function has only its own device */
  struct vgpu_old_launch *old_launch;              /* NULL until a CUDA 3 call sets something; for free() */
};

struct vgpu_code_library {
  uint64_t number;
  bool at_host;
  struct vgpu_image image;
  struct vgpu_module *modules;
  struct vgpu_callable *kernels;
  bool holds_primary; /* it was asked for a variable without a context */
  pthread_mutex_t loading;
};

/* Loads the code of a function or kernel in a context. Returns a CUresult. */
int vgpu_callable_load(struct vgpu_driver *driver, const struct vgpu_callable *callable, uint64_t context);

struct vgpu_callable *vgpu_callable_find(struct vgpu_driver *driver, const void *handle);

/* The ordinal of its module, else that of the current context, else 0. */
int32_t vgpu_callable_device(struct vgpu_driver *driver, const struct vgpu_callable *callable);

/* Requested once. Returns a CUresult. */
int vgpu_callable_attributes(struct vgpu_driver *driver, struct vgpu_callable *callable, int32_t ordinal,
                             const int32_t **attributes);

/* Asks for a function or kernel by name. `send`: the whole body, with its numbers. Returns a CUresult. */
int vgpu_callable_get(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                      const char *name, int32_t ordinal, struct vgpu_callable *made);
void vgpu_callable_free(struct vgpu_callable *callable);

/* `body` ends in `first`. *names: each zero-terminated; for free(). */
int vgpu_code_names(uint32_t opcode, void *body, uint32_t body_size, uint32_t *first, char **names,
                    uint32_t *count);

/* Adds a variable to the regions as memory like `like`. Returns a CUresult. */
int vgpu_code_variable(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                       const char *name, const struct vgpu_region *like, uint64_t *address, size_t *bytes);

/* The code and context of variables. For a library's module the code is the library. */
struct vgpu_code_in {
  uint64_t code;
  uint64_t context;
  bool library;
};

/*
 * Call before a variable's address is requested: if the code has managed variables, all its variables get
 * memory of both sides (managed_code.c). *region: its memory, without address and device; the kind says
 * whether it is managed. Returns a CUresult.
 */
int vgpu_managed_code_ready(struct vgpu_driver *driver, const struct vgpu_code_in *in, const char *name,
                            struct vgpu_region *region);

/* For variables whose bytes the host moves (mirrored_code.c). Needs managed_lock. */
int vgpu_mirrored_take(struct vgpu_driver *driver, const struct vgpu_code_in *in, uint64_t address,
                       uint64_t bytes);
void vgpu_mirrored_give(struct vgpu_driver *driver, uint64_t ended);

/* Frees the variables of a module, library or context (by number) that has ended at the host, too. */
void vgpu_managed_code_give(struct vgpu_driver *driver, uint64_t ended);

/* With its functions, references and variables. The caller holds driver->lock. */
void vgpu_module_forget(struct vgpu_driver *driver, struct vgpu_module *module);

/* The caller holds driver->lock. */
void vgpu_code_context_ended(struct vgpu_driver *driver, struct vgpu_context *context);

#endif
