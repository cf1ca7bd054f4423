/*
 * Runs PTX on the processor: the compute half of the software device. A module is parsed and decoded once,
 * a kernel of it is launched any number of times. Nothing here knows of the wire, of sessions or of streams;
 * device memory is asked for through one callback. See docs/reference/software-gpu.md.
 *
 * A module comes from a guest: whatever its text says, memory stays bounded, no address of the guest is ever
 * used as a pointer, and what cannot be run is refused when it is loaded.
 */
#ifndef VGPU_PTX_H
#define VGPU_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ptx_module;
struct ptx_pool;

/* A piece of device memory and where it lies in this process. */
struct ptx_region {
  uint64_t address;
  uint64_t size;
  unsigned char *bytes; /* aligned to 16 at least wherever `address` is */
  /* A byte for each that is not 0 once it was written, kept by who checks; NULL: all is taken as written. */
  unsigned char *written;
};

/* Finds the region that holds `address`; false when there is none. Called from several threads at a time;
 * what it finds must stay as it is until the launch is over. */
typedef bool ptx_find_region(void *user, uint64_t address, struct ptx_region *region);

/*
 * Finds what a kernel's 64-bit object names; false: no texture, or no surface. Called and true for as long as
 * ptx_find_region.
 */
struct ptx_texture;
typedef bool ptx_find_texture(void *user, uint64_t object, struct ptx_texture *texture);

/* Receives a kernel's output, in pieces of a line or more. It is called under a lock. */
typedef void ptx_print(void *user, const char *text, size_t length);

enum ptx_status {
  PTX_OK,
  PTX_OUT_OF_MEMORY,
  PTX_INVALID,     /* the text is not PTX; the log says where */
  PTX_UNSUPPORTED, /* PTX that this device does not run; the log names it */
  PTX_BAD_LAUNCH,  /* dimensions, shared memory or parameters out of range */
  PTX_ILLEGAL_ADDRESS,
  PTX_MISALIGNED_ADDRESS,
  PTX_TRAP,
  PTX_ASSERT,
  PTX_TIMEOUT, /* the launch took longer than its limit, or can never end */
  PTX_STACK_OVERFLOW,
  PTX_INVALID_CALL, /* an indirect call to what is no function */
};

/* The word for a status, for logs. */
const char *ptx_status_name(enum ptx_status status);

/* Name and place of one kernel parameter within the parameter block. */
struct ptx_parameter {
  uint32_t offset;
  uint32_t size;
};

struct ptx_kernel_info {
  const char *name;
  const struct ptx_parameter *parameters;
  uint32_t parameter_count;
  uint32_t parameter_bytes;
  uint32_t static_shared;       /* bytes of the variables that it, and what it calls, can name */
  uint32_t shared_extent;       /* where the last of them ends: the module's lie one behind the other */
  uint32_t reserved_shared;     /* bytes of shared memory beside them that are not the program's */
  uint32_t local_bytes;         /* a thread's stack without that of functions called through pointers */
  uint32_t registers;           /* an estimate: what a thread holds at once, in 32-bit registers */
  uint32_t max_threads;         /* .maxntid, else 1024 */
  uint32_t required_threads[3]; /* .reqntid, else 0 */
  uint32_t cluster[3];          /* .reqnctapercluster, else 0 */
  uint32_t version;             /* of the module's PTX: 10 * major + minor */
  uint32_t target;              /* 61 for sm_61 */
};

enum ptx_reference { PTX_NO_REFERENCE, PTX_TEXTURE_REFERENCE, PTX_SURFACE_REFERENCE };

struct ptx_global_info {
  const char *name;
  uint64_t offset; /* within the memory given to ptx_module_place */
  uint64_t size;
  bool managed;      /* .attribute(.managed): the program uses it as its own memory */
  uint8_t reference; /* enum ptx_reference: then it holds the object that is bound to it, 0 for none */
};

/*
 * Parses `length` bytes (a NUL ends them early). On failure *module is NULL and `log`, if given, holds what
 * was wrong with line and instruction. A kernel with an instruction that is not supported does not take the
 * module with it: the module is loaded, `log` says which kernels cannot run, a line each, and their launch is
 * refused. `target` is the device's compute capability (61 for 6.1): a module for a newer one is refused,
 * PTX_UNSUPPORTED.
 */
enum ptx_status ptx_module_load(const char *text, size_t length, uint32_t target, struct ptx_module **module,
                                char *log, size_t log_size);
/*
 * The same for large texts: a kernel is decoded when it is first launched, so that `text` must stay until the
 * module is freed. What is wrong within a function is known no earlier.
 */
enum ptx_status ptx_module_load_lazily(const char *text, size_t length, uint32_t target,
                                       struct ptx_module **module, char *log, size_t log_size);
void ptx_module_free(struct ptx_module *module);

/* Makes a kernel ready to run. Why it cannot run ("line 7: ..."), with `*status`; NULL: it can. */
const char *ptx_module_prepare(struct ptx_module *module, uint32_t kernel, enum ptx_status *status);

uint32_t ptx_module_kernel_count(const struct ptx_module *module);
const struct ptx_kernel_info *ptx_module_kernel(const struct ptx_module *module, uint32_t index);
/* -1: no such kernel. */
int32_t ptx_module_find_kernel(const struct ptx_module *module, const char *name);
uint32_t ptx_module_global_count(const struct ptx_module *module);
const struct ptx_global_info *ptx_module_global(const struct ptx_module *module, uint32_t index);

/* Whether a kernel of it may call malloc or launch kernels: what needs a heap. */
bool ptx_module_allocates(const struct ptx_module *module);
/* Whether a kernel of it may launch kernels. */
bool ptx_module_launches(const struct ptx_module *module);
/* Device memory the module's variables take; 0: none. Aligned to 256. */
uint64_t ptx_module_data_bytes(const struct ptx_module *module);
/* Writes initial values into `bytes` (of ptx_module_data_bytes) and makes the code refer to `address`. Before
 * the first launch. */
void ptx_module_place(struct ptx_module *module, uint64_t address, unsigned char *bytes);
/* The variables lie elsewhere from now on, at `bytes`, where they have been copied to. */
void ptx_module_move(struct ptx_module *module, uint64_t address, unsigned char *bytes);

/* Memory of this process that the module takes: its code and what is known of it. */
uint64_t ptx_module_bytes(const struct ptx_module *module);

struct ptx_fault {
  enum ptx_status status;
  uint64_t address; /* of the access that failed */
  uint32_t line;    /* in the module's text */
  uint32_t block[3];
  uint32_t thread[3];
  char text[200]; /* what happened, in words */
};

enum { PTX_CHECK_RACE = 1, PTX_CHECK_INIT = 2 };

/* A finding of a check. With `check` 0: the number of further findings that were not reported (`rest`). */
struct ptx_finding {
  uint32_t check;
  const char *kernel;
  const char *space;    /* "shared", "local" or "global" */
  char instruction[32]; /* "ld.shared.f32" */
  bool writes;          /* else it reads */
  uint32_t line;        /* in the module's text */
  uint32_t block[3];
  uint32_t thread[3];
  uint64_t address; /* within the space */
  uint32_t bytes;
  /* of a race: the access before */
  bool other_writes;
  uint32_t other_line;
  uint32_t other_thread[3];
  uint64_t rest; /* of the kernel, since its module was loaded */
};
typedef void ptx_report(void *user, const struct ptx_finding *finding);

/* When a thread of a launch may compute, where several launches of several processes share the processors. */
struct ptx_turns {
  void (*enter)(void *user);                /* waits for a turn */
  bool (*try)(void *user);                  /* takes one if there is one */
  void (*leave)(void *user, uint64_t used); /* the turn is over, after so many nanoseconds */
};

struct ptx_launch {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3]; /* blocks; 0: as the kernel requires, else none */
  uint32_t dynamic_shared;
  const void *parameters;
  uint32_t parameter_bytes; /* as many as the kernel's, at least */
  bool cooperative;         /* all blocks at once: they may wait for each other */
  uint32_t shared_limit;    /* bytes a block may have; 0: 227 KiB */
  uint32_t stack_limit;     /* bytes a thread may use when calls cannot be counted; 0: 1024 */
  uint64_t timeout;         /* nanoseconds; 0: none */
  ptx_find_region *find;
  ptx_find_texture *find_texture; /* NULL: there are none */
  ptx_print *print;               /* NULL: what kernels print is dropped */
  void *user;
  /* Where kernels' malloc takes from; 0 bytes: it gives NULL. Belongs to the context, see ptx_heap. */
  struct ptx_heap *heap;
  /* Address of 8 bytes of device memory, zero, for launches whose blocks wait for each other (cooperative
   * groups count there); 0: none, and grid.sync() traps. */
  uint64_t workspace;
  struct ptx_children *children; /* takes what kernels launch; NULL: they get an error */
  uint32_t checks;               /* PTX_CHECK_*; the launch goes on whatever they find */
  uint32_t most_findings;        /* told of one kernel, at different places; 0: 10 */
  ptx_report *report;            /* called under a lock */
  const struct ptx_turns *turns; /* NULL: threads compute whenever they like */
};

/* Carries a launch out and returns when it is over. Streams are the caller's to order. */
enum ptx_status ptx_launch(struct ptx_module *module, uint32_t kernel, const struct ptx_launch *launch,
                           struct ptx_pool *pool, struct ptx_fault *fault);

/*
 * The launches of kernels by kernels (CUDA dynamic parallelism). They are recorded while a grid runs, and run
 * when it has ended. No kernel can tell this from a device that begins earlier, because a kernel must not
 * wait for its children.
 */
struct ptx_child {
  uint32_t kernel, grid[3], block[3], dynamic_shared, parameter_bytes;
  unsigned char parameters[4096];
};
struct ptx_children *ptx_children_new(void);
void ptx_children_free(struct ptx_children *children, struct ptx_heap *heap);
/*
 * The next one to run, after `launch` or the child before has ended well. Copies and fills among them are
 * done here. False: none is left, or `fault` says what was wrong with one.
 */
bool ptx_children_next(struct ptx_children *children, const struct ptx_module *module,
                       const struct ptx_launch *launch, struct ptx_child *child, struct ptx_fault *fault);

/* Bytes of local memory that the launch's blocks take while they run, as many at a time as the pool runs. 0
 * for a launch that will be refused. */
uint64_t ptx_launch_local_bytes(const struct ptx_module *module, uint32_t kernel,
                                const struct ptx_launch *launch, const struct ptx_pool *pool);

/* Threads to help with launches; the caller's own works too. 0 helpers is fine. NULL: no memory. */
struct ptx_pool *ptx_pool_new(uint32_t helpers);
void ptx_pool_free(struct ptx_pool *pool);

/* The device heap of a context: a range of device memory that kernels allocate from. */
struct ptx_heap *ptx_heap_new(uint64_t address, uint64_t size);
void ptx_heap_free(struct ptx_heap *heap);

#endif
