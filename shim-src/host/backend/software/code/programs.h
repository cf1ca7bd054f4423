/*
 * Code of one session on software devices: programs (an image read for an architecture), modules (a program
 * in a context, with its variables in device memory), libraries, functions, kernels.
 */
#ifndef VGPU_HOST_SOFTWARE_PROGRAMS_H
#define VGPU_HOST_SOFTWARE_PROGRAMS_H

#include "host/backend/common/code.h"
#include "host/backend/common/handles.h"
#include "host/backend/software/code/program.h"
#include "wire/frame.h"

struct vgpu_worker;
struct ptx_module;

/* A program and who uses it. */
struct vgpu_loaded {
  struct vgpu_loaded *next;
  struct vgpu_hash hash;
  uint64_t size;
  uint32_t architecture;
  uint32_t users;
  bool judged; /* its functions say whether they are refused */
  struct vgpu_program program;
};

struct vgpu_function_object;
struct vgpu_library_object;

struct vgpu_module_object {
  struct vgpu_module_object *next; /* of the session */
  uint64_t number;                 /* 0: made for a library, nobody named it (yet) */
  uint64_t context;
  uint32_t device;
  struct vgpu_library_object *library; /* NULL: loaded for itself */
  struct vgpu_loaded *loaded;
  uint64_t data;     /* device memory of the variables; 0: none */
  uint64_t managed;  /* the same memory as the guest sees it, too (managed.c); 0: it does not */
  uint64_t *globals; /* address of each of the program's variables */
  struct vgpu_function_object *functions;
  struct ptx_module *code; /* what can be run; NULL: nothing, `unrunnable` says why */
  uint64_t code_bytes;     /* that it takes of the session's allowance for code */
  bool wants_log;          /* the program reads what the compiler says */
  char unrunnable[1024];   /* why it, or some of its kernels, cannot be run: a line each */
};

/* The attributes of a function that a program may change. */
struct vgpu_function_settings {
  int32_t max_dynamic;
  int32_t carveout;
  int32_t cluster[3];
  int32_t non_portable;
  int32_t scheduling;
};

struct vgpu_function_object {
  struct vgpu_function_object *next; /* of the module */
  uint64_t number;
  struct vgpu_module_object *module;
  const struct vgpu_program_function *function;
  struct vgpu_function_settings settings;
};

struct vgpu_kernel_object {
  struct vgpu_kernel_object *next; /* of the library */
  uint64_t number;
  struct vgpu_library_object *library;
  char *name;
  struct vgpu_function_settings settings[VGPU_DEVICES_MAX];
  uint32_t set; /* bit n: settings[n] hold, else the function's own */
};

struct vgpu_library_object {
  struct vgpu_library_object *next; /* of the session */
  uint64_t number;
  struct vgpu_hash hash;
  uint64_t size;
  struct vgpu_loaded *loaded[VGPU_DEVICES_MAX]; /* for each device, when first needed */
  uint64_t managed;     /* where the guest sees the variables of its module; 0: it does not */
  unsigned char *image; /* kept for devices of other architectures; NULL when there is but one */
  struct vgpu_kernel_object *kernels;
};

struct vgpu_compute;

struct vgpu_programs {
  struct vgpu_compute *compute; /* of run.c: what runs kernels, once one was launched */
  struct vgpu_loaded *loaded;
  struct vgpu_module_object *modules;
  struct vgpu_library_object *libraries;
};

/* Results of vgpu_programs_load besides CUresult values. */
#define VGPU_CODE_MISSING (-1)

/* The program of an image, for a device; `*loaded` is to be released. MISSING: the guest must send it. */
int32_t vgpu_programs_load(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size,
                           uint32_t device, struct vgpu_loaded **loaded, char *why, size_t why_size);
void vgpu_programs_release(struct vgpu_worker *worker, struct vgpu_loaded *loaded);

/* Everything of a context goes; before its handles are removed. */
void vgpu_programs_drop_context(struct vgpu_worker *worker, uint64_t context);

/* A function handle of the wire, or a kernel's function in a context: what a launch needs. */
int32_t vgpu_programs_function(struct vgpu_worker *worker, uint64_t context, uint64_t number,
                               struct vgpu_module_object **module,
                               const struct vgpu_program_function **function,
                               struct vgpu_function_settings *settings);

#endif
