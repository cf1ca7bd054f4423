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

/*
 * Reads an image from a program's pointer. Its length is in the image. Returns a CUresult; vgpu_image_free
 * frees *image.
 */
int vgpu_image_take(const struct vgpu_driver *driver, const void *code, struct vgpu_image *image);
/* Reads an image from the bytes of a file or buffer, whose length is known. Returns a CUresult. */
int vgpu_image_take_bytes(const struct vgpu_driver *driver, const void *bytes, uint64_t size,
                          struct vgpu_image *image);
void vgpu_image_free(struct vgpu_image *image);
int vgpu_image_read_file(const char *path, unsigned char **bytes, uint64_t *size);

struct vgpu_jit {
  uint32_t count;
  int32_t *options;
  void **values; /* the load writes some of them: sizes of logs, time taken */
};

/*
 * A call that loads or links an image: its body, with the image's hash and size, and its reply, which begins
 * with the fields of struct vgpu_reply_cuModuleLoadDataEx.
 */
struct vgpu_image_request {
  uint32_t opcode;
  uint32_t send_size;
  uint32_t reply_size;
  const void *send;
  void *reply;
};

/*
 * Makes the call. If the host lacks the image, sends the image and then the same call again. Writes the logs
 * where the options say. Returns a CUresult.
 */
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
  int32_t refused;    /* result of every launch if the device cannot run it, else 0 */
  uint64_t loaded[8]; /* numbers of the contexts in which it was first launched, the latest 8 */
  uint32_t loads;     /* count of entries that were written to `loaded` */
  uint32_t known;     /* bit n: attributes[n] are known */
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

/* Returns a live function or kernel, or NULL. */
struct vgpu_callable *vgpu_callable_find(struct vgpu_driver *driver, const void *handle);

/*
 * Returns the ordinal of a callable's device: that of its module, else that of the current context, else 0.
 */
int32_t vgpu_callable_device(struct vgpu_driver *driver, const struct vgpu_callable *callable);

/* Gives the attributes on a device, which are requested from the host once. Returns a CUresult. */
int vgpu_callable_attributes(struct vgpu_driver *driver, struct vgpu_callable *callable, int32_t ordinal,
                             const int32_t **attributes);

/*
 * Asks the host for a function or kernel by name and fills *made. `send` is the whole body, in which the
 * caller has set the numbers. Returns a CUresult.
 */
int vgpu_callable_get(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                      const char *name, int32_t ordinal, struct vgpu_callable *made);
void vgpu_callable_free(struct vgpu_callable *callable);

/*
 * Gives the names that an enumerating call returns, one after another, each zero-terminated. `first` points
 * to the last field of `body`. The caller frees *names with free(). Returns a CUresult.
 */
int vgpu_code_names(uint32_t opcode, void *body, uint32_t body_size, uint32_t *first, char **names,
                    uint32_t *count);

/* Asks for the address of a variable and adds it to the regions as memory like `like`. Returns a CUresult. */
int vgpu_code_variable(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                       const char *name, const struct vgpu_region *like, uint64_t *address, size_t *bytes);

/*
 * The owner of variables: the number of the code and of its context. For a library's module the code is the
 * library.
 */
struct vgpu_code_in {
  uint64_t code;
  uint64_t context;
  bool library;
};

/*
 * Call this before the address of a variable is requested. If the code has managed variables, all of its
 * variables get memory of both sides (managed_code.c). *region describes the memory of the variable `name`,
 * without its address and device; its kind says whether the variable is managed. Returns a CUresult.
 */
int vgpu_managed_code_ready(struct vgpu_driver *driver, const struct vgpu_code_in *in, const char *name,
                            struct vgpu_region *region);

/*
 * For managed variables whose bytes the host moves (mirrored_code.c). vgpu_mirrored_give takes the number of
 * a module, library or context that has ended. The caller holds managed_lock.
 */
int vgpu_mirrored_take(struct vgpu_driver *driver, const struct vgpu_code_in *in, uint64_t address,
                       uint64_t bytes);
void vgpu_mirrored_give(struct vgpu_driver *driver, uint64_t ended);

/*
 * Frees the memory of the variables of a module, library or context, by its number, after it has ended at the
 * host, too.
 */
void vgpu_managed_code_give(struct vgpu_driver *driver, uint64_t ended);

/* Removes a module with its functions, references and variables. The caller holds driver->lock. */
void vgpu_module_forget(struct vgpu_driver *driver, struct vgpu_module *module);

/* Removes the modules of a context that has ended. The caller holds driver->lock. */
void vgpu_code_context_ended(struct vgpu_driver *driver, struct vgpu_context *context);

#endif
