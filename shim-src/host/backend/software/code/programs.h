/* A program is an image for one architecture; a module is a program in a context. */
#ifndef VGPU_HOST_SOFTWARE_PROGRAMS_H
#define VGPU_HOST_SOFTWARE_PROGRAMS_H

#include "host/backend/common/code.h"
#include "host/session/handles.h"
#include "host/backend/software/code/program.h"
#include "wire/frame.h"

struct vgpu_worker;
struct ptx_module;

struct vgpu_loaded {
  struct vgpu_loaded *next;
  struct vgpu_hash hash;
  uint64_t size;
  uint32_t architecture;
  uint32_t users;
  bool judged; /* it is known which of its functions cannot run */
  struct vgpu_program program;
};

struct vgpu_function_object;
struct vgpu_library_object;

struct vgpu_module_object {
  struct vgpu_module_object *next; /* next of the session */
  uint64_t number;                 /* 0: made for a library; the guest has not named it yet */
  uint64_t context;
  uint32_t device;
  struct vgpu_library_object *library; /* NULL: loaded by itself */
  struct vgpu_loaded *loaded;
  uint64_t data;     /* device memory of the variables; 0: none */
  uint64_t managed;  /* the same memory at the guest's address (managed.c); 0: not shared with the guest */
  uint64_t *globals; /* address of each of the program's variables */
  struct vgpu_function_object *functions;
  struct ptx_module *code; /* code that can run; NULL: none, and `unrunnable` says why */
  uint64_t code_bytes;     /* its part of the session's limit for code */
  bool wants_log;          /* the program requested the compiler's log */
  char unrunnable[1024];   /* reasons why it or some of its kernels cannot run, a line each */
};

struct vgpu_function_settings {
  int32_t max_dynamic;
  int32_t carveout;
  int32_t cluster[3];
  int32_t non_portable;
  int32_t scheduling;
};

struct vgpu_function_object {
  struct vgpu_function_object *next; /* next of the module */
  uint64_t number;
  struct vgpu_module_object *module;
  const struct vgpu_program_function *function;
  struct vgpu_function_settings settings;
};

struct vgpu_kernel_object {
  struct vgpu_kernel_object *next; /* next of the library */
  uint64_t number;
  struct vgpu_library_object *library;
  char *name;
  struct vgpu_function_settings settings[VGPU_DEVICES_MAX];
  uint32_t set; /* bit n: settings[n] are set; else the function's own hold */
};

struct vgpu_library_object {
  struct vgpu_library_object *next; /* next of the session */
  uint64_t number;
  struct vgpu_hash hash;
  uint64_t size;
  struct vgpu_loaded *loaded[VGPU_DEVICES_MAX]; /* for each device; made when it is first needed */
  uint64_t managed;     /* guest's address of the variables of its module; 0: not shared */
  unsigned char *image; /* kept for devices of other architectures; NULL if there is one device */
  struct vgpu_kernel_object *kernels;
};

struct vgpu_compute;

struct vgpu_programs {
  struct vgpu_compute *compute; /* of run.c: runs kernels; made at the first launch */
  struct vgpu_loaded *loaded;
  struct vgpu_module_object *modules;
  struct vgpu_library_object *libraries;
};

/*
 * Returns the target for which programs are read: the device, and the memory that the session has left for
 * code.
 */
struct vgpu_program_target vgpu_programs_target(struct vgpu_worker *worker, uint32_t device);

/* A result of vgpu_programs_load besides CUresult values. */
#define VGPU_CODE_MISSING (-1)

/*
 * Gives the program of an image for a device. The caller releases *loaded. VGPU_CODE_MISSING: the guest must
 * send the image.
 */
int32_t vgpu_programs_load(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size,
                           uint32_t device, struct vgpu_loaded **loaded, char *why, size_t why_size);
void vgpu_programs_release(struct vgpu_worker *worker, struct vgpu_loaded *loaded);

/* Frees all code of a context. Call this before the context's handles are removed. */
void vgpu_programs_drop_context(struct vgpu_worker *worker, uint64_t context);

/* Gives, for a launch, the function of a function handle, or of a kernel in a context. */
int32_t vgpu_programs_function(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                               struct vgpu_module_object **module,
                               const struct vgpu_program_function **function,
                               struct vgpu_function_settings *settings);

#endif
