/*
 * Code in the guest: images as programs give them, modules and libraries, and what can be called in them.
 * A kernel (of a library) and a function (of a module) are one structure: a CUkernel may stand for a
 * CUfunction wherever one is asked for.
 */
#ifndef VGPU_GUEST_CUDA_CODE_H
#define VGPU_GUEST_CUDA_CODE_H

#include "guest/cuda/internal.h"
#include "image/sha256.h"
#include "wire/module.h"

/* An image as it travels: what does not fit any visible device is left out. */
struct vgpu_image {
  unsigned char *bytes; /* for free() */
  uint64_t size;
  struct vgpu_hash hash;
  bool container; /* a fat binary: nothing to compile, so nothing to say about it at load */
};

/* From a program's pointer; the length is in the image. A CUresult. */
int vgpu_image_take(const struct vgpu_driver *driver, const void *code, struct vgpu_image *image);
/* From a file's or buffer's bytes, where the length is known. */
int vgpu_image_take_bytes(const struct vgpu_driver *driver, const void *bytes, uint64_t size,
                          struct vgpu_image *image);
void vgpu_image_free(struct vgpu_image *image);
int vgpu_image_read_file(const char *path, unsigned char **bytes, uint64_t *size);

/* JIT options of a load. */
struct vgpu_jit {
  uint32_t count;
  int32_t *options;
  void **values; /* some are written: sizes of logs, time taken */
};

/*
 * A load: sends `exchange_send` (a body that ends with hash and size is filled by the caller) and, when the
 * host lacks the image, the image and then the same again. Logs go where the options say. A CUresult.
 */
int vgpu_image_load(uint32_t opcode, const void *send, uint32_t send_size, const struct vgpu_image *image,
                    const struct vgpu_jit *jit);

struct vgpu_module {
  uint64_t number;
  struct vgpu_context *context;
  uint64_t context_number;
  struct vgpu_code_library *library; /* NULL: loaded for itself */
  struct vgpu_module *next;          /* of the library */
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
  int32_t refused; /* what its launch results in, if the device cannot run it; else 0 */
  uint32_t known;  /* bit n: attributes[n] hold */
  int32_t (*attributes)[VGPU_FUNCTION_ATTRIBUTES]; /* by device; of a function: its own device only */
  struct vgpu_old_launch *old_launch;              /* NULL until CUDA 3's calls set something; for free() */
};

struct vgpu_code_library {
  uint64_t number;
  bool at_host;
  struct vgpu_image image;
  struct vgpu_module *modules;
  struct vgpu_callable *kernels;
  uint64_t primary; /* number of the primary context that it holds; 0: none */
  pthread_mutex_t loading;
};

/* A live function or kernel, or NULL. */
struct vgpu_callable *vgpu_callable_find(struct vgpu_driver *driver, const void *handle);

/* Ordinal of the device a callable is for: its module's, else that of the current context (else 0). */
int32_t vgpu_callable_device(struct vgpu_driver *driver, const struct vgpu_callable *callable);

/* Attributes on a device, asked for once. A CUresult. */
int vgpu_callable_attributes(struct vgpu_driver *driver, struct vgpu_callable *callable, int32_t ordinal,
                             const int32_t **attributes);

/*
 * Asks the host for a function or kernel by name (`send` is the whole body) and makes it a handle of
 * `kind`; its numbers are already in the body. A CUresult.
 */
int vgpu_callable_get(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                      const char *name, int32_t ordinal, struct vgpu_callable *made);
void vgpu_callable_free(struct vgpu_callable *callable);

/* Names behind an enumerating call (`body` ends in `first`), each zero-terminated; for free(). */
int vgpu_code_names(uint32_t opcode, void *body, uint32_t body_size, uint32_t *first, char **names,
                    uint32_t *count);

/* Asks where a variable lies and makes it known as memory like `like`. A CUresult. */
int vgpu_code_variable(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                       const char *name, const struct vgpu_region *like, uint64_t *address, size_t *bytes);

/*
 * The owner of the variables: the code by its number, in a context by its number. A library's module is the
 * library.
 */
struct vgpu_code_in {
  uint64_t code;
  uint64_t context;
  bool library;
};

/*
 * Before a variable of a module or library is asked for: what has managed variables gets memory of both sides
 * for all of its variables (managed_code.c). *region is what memory of that name is like, without its place
 * and its device; its kind says whether the variable is managed. A CUresult.
 */
int vgpu_managed_code_ready(struct vgpu_driver *driver, const struct vgpu_code_in *in, const char *name,
                            struct vgpu_region *region);
/* A module, library or context with that number has ended, at the host too. */
void vgpu_managed_code_give(struct vgpu_driver *driver, uint64_t ended);

/* With driver->lock held: a module goes, with its functions, references and variables. */
void vgpu_module_forget(struct vgpu_driver *driver, struct vgpu_module *module);

/* With driver->lock held: the modules of a context that has ended are gone. */
void vgpu_code_context_ended(struct vgpu_driver *driver, struct vgpu_context *context);

#endif
