/* The contents of an image for one architecture, read with every bound checked. */
#ifndef VGPU_HOST_SOFTWARE_PROGRAM_H
#define VGPU_HOST_SOFTWARE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/module.h"

struct vgpu_program_function {
  char *name;
  struct vgpu_parameter *parameters; /* by index */
  uint32_t parameter_count;
  uint32_t parameter_bytes;
  int32_t attributes[VGPU_FUNCTION_ATTRIBUTES];
  int32_t refused; /* CUresult of its launches if the machine is known not to run it; else 0 */
  bool logged;     /* its refusal was logged */
};

struct vgpu_program_global {
  char *name;
  uint64_t size;
  bool constant;          /* __constant__ of CUDA C */
  unsigned char *initial; /* `size` bytes, or NULL for zeros */
};

struct vgpu_program {
  struct vgpu_program_function *functions;
  size_t function_count;
  struct vgpu_program_global *globals;
  size_t global_count;
  char *ptx;         /* PTX text that fits, zero-terminated; only this can run */
  bool machine_code; /* the image has machine code that fits: a GPU runs that and ignores the PTX */
  uint64_t bytes;    /* estimated memory of all this, for the session's limit */
};

struct vgpu_program_target {
  uint32_t architecture;   /* 90 is 9.0 */
  int32_t max_threads;     /* of a block */
  int32_t shared_block;    /* bytes of shared memory that a block has by default */
  int32_t registers_block; /* of a block */
  uint64_t memory_limit;   /* most bytes that the program may take */
};

enum {
  VGPU_PROGRAM_OK = 0,
  VGPU_PROGRAM_NO_MEMORY = 2,
  VGPU_PROGRAM_INVALID_IMAGE = 200,
  VGPU_PROGRAM_NO_BINARY = 209,
  VGPU_PROGRAM_INVALID_PTX = 218,
};

/*
 * Reads an image (fat binary, cubin or PTX) from malloc(), and keeps or frees it, also after a failure.
 * Returns a CUresult; if it is not 0, `why` has a line of text.
 */
int32_t vgpu_program_read(unsigned char *image, uint64_t size, const struct vgpu_program_target *target,
                          struct vgpu_program *program, char *why, size_t why_size);
void vgpu_program_free(struct vgpu_program *program);

const struct vgpu_program_function *vgpu_program_function(const struct vgpu_program *program,
                                                          const char *name, size_t length);
/* Returns the variable's index in program->globals, or -1. */
long vgpu_program_global(const struct vgpu_program *program, const char *name, size_t length);

/* The parts of vgpu_program_read. *program is zeroed before the call; the caller frees it in any case. */
int32_t vgpu_cubin_read(const unsigned char *bytes, uint64_t size, const struct vgpu_program_target *target,
                        struct vgpu_program *program, char *why, size_t why_size);
/* `text` is zero-terminated; `size` does not count the zero. */
int32_t vgpu_ptx_read(const char *text, uint64_t size, const struct vgpu_program_target *target,
                      struct vgpu_program *program, char *why, size_t why_size);

/* For the readers: append a zeroed element with a copy of its name. NULL: no memory. */
struct vgpu_program_function *vgpu_program_add_function(struct vgpu_program *program, const char *name,
                                                        size_t length);
struct vgpu_program_global *vgpu_program_add_global(struct vgpu_program *program, const char *name,
                                                    size_t length);

/*
 * Sorts names and orders parameters. Returns INVALID_IMAGE if two elements have the same name, or if
 * parameters overlap.
 */
int32_t vgpu_program_finish(struct vgpu_program *program);

#endif
