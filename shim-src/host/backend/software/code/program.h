/*
 * The contents of an image, read with every bound checked: functions with their parameters and attributes,
 * and global variables with their first values. There is one for each image and architecture.
 */
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
  int32_t refused; /* CUresult of its launches when the machine cannot run it, as far as is known; else 0 */
};

struct vgpu_program_global {
  char *name;
  uint64_t size;
  unsigned char *initial; /* `size` bytes, or NULL for zeros */
};

struct vgpu_program {
  struct vgpu_program_function *functions;
  size_t function_count;
  struct vgpu_program_global *globals;
  size_t global_count;
  char *ptx;         /* its text, zero-terminated, if the image has one that fits; what can be run */
  bool machine_code; /* the image has some that fits: a GPU runs that, and never looks at the PTX */
  uint64_t bytes;    /* of memory all this takes, about: for the session's limit */
};

/* The device that a program is read for. */
struct vgpu_program_target {
  uint32_t architecture;   /* 90 is 9.0 */
  int32_t max_threads;     /* of a block */
  int32_t shared_block;    /* bytes of shared memory a block may have without asking for more */
  int32_t registers_block; /* of a block */
  uint64_t memory_limit;   /* bytes that the program may take */
};

/* CUresult values of reading an image. */
enum {
  VGPU_PROGRAM_OK = 0,
  VGPU_PROGRAM_NO_MEMORY = 2,
  VGPU_PROGRAM_INVALID_IMAGE = 200,
  VGPU_PROGRAM_NO_BINARY = 209,
  VGPU_PROGRAM_INVALID_PTX = 218,
};

/* Reads an image (fat binary, cubin or PTX) from malloc(), and keeps or frees it. A CUresult; `why` gets a
 * line for people when it is not 0. */
int32_t vgpu_program_read(unsigned char *image, uint64_t size, const struct vgpu_program_target *target,
                          struct vgpu_program *program, char *why, size_t why_size);
void vgpu_program_free(struct vgpu_program *program);

const struct vgpu_program_function *vgpu_program_function(const struct vgpu_program *program,
                                                          const char *name, size_t length);
/* Its place in program->globals, or -1. */
long vgpu_program_global(const struct vgpu_program *program, const char *name, size_t length);

/* The parts of vgpu_program_read: `program` comes zeroed and is freed by the caller in any case. */
int32_t vgpu_cubin_read(const unsigned char *bytes, uint64_t size, const struct vgpu_program_target *target,
                        struct vgpu_program *program, char *why, size_t why_size);
/* `text` is zero-terminated and `size` long without that. */
int32_t vgpu_ptx_read(const char *text, uint64_t size, const struct vgpu_program_target *target,
                      struct vgpu_program *program, char *why, size_t why_size);

/* For the readers: a new zeroed element at the end, with its name copied; NULL when there is no memory. */
struct vgpu_program_function *vgpu_program_add_function(struct vgpu_program *program, const char *name,
                                                        size_t length);
struct vgpu_program_global *vgpu_program_add_global(struct vgpu_program *program, const char *name,
                                                    size_t length);

/* Sorts names, orders parameters; INVALID_IMAGE when two have the same name or parameters overlap. */
int32_t vgpu_program_finish(struct vgpu_program *program);

#endif
