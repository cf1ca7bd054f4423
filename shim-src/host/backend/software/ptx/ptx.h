/*
 * Runs PTX on the processor: the compute half of the software device (docs/reference/software-gpu.md). A
 * module is parsed and decoded once; its kernels can be launched any number of times. This code has no access
 * to the wire, sessions or streams. A module comes from a guest: whatever its text, memory use is limited, an
 * address of the guest is never used as a pointer, and a kernel that cannot run is refused.
 */
#ifndef VGPU_PTX_H
#define VGPU_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ptx_module;
struct ptx_pool;

struct ptx_region {
  uint64_t address;
  uint64_t size;
  unsigned char *bytes; /* aligned to 16 at least wherever `address` is */
  /* For checks, the caller sets this to 1 for each byte once it was written. NULL: all bytes count as
   * written. */
  unsigned char *written;
};

/*
 * Finds the region that contains `address`; false if there is none. Several threads call this at the same
 * time. The region must stay as it is until the launch has ended.
 */
typedef bool ptx_find_region(void *user, uint64_t address, struct ptx_region *region);

/*
 * Finds the texture or surface of a kernel's 64-bit object; false if there is none. The rules of
 * ptx_find_region apply.
 */
struct ptx_texture;
typedef bool ptx_find_texture(void *user, uint64_t object, struct ptx_texture *texture);

/* Receives a kernel's output, in pieces of a line or more. Called under a lock. */
typedef void ptx_print(void *user, const char *text, size_t length);

enum ptx_status {
  PTX_OK,
  PTX_OUT_OF_MEMORY,
  PTX_INVALID,     /* the text is not PTX; the log says where */
  PTX_UNSUPPORTED, /* PTX that this device cannot run; the log names it */
  PTX_BAD_LAUNCH,  /* dimensions, shared memory or parameters out of range */
  PTX_ILLEGAL_ADDRESS,
  PTX_MISALIGNED_ADDRESS,
  PTX_TRAP,
  PTX_ASSERT,
  PTX_TIMEOUT, /* the launch took longer than its limit, or can never end */
  PTX_STACK_OVERFLOW,
  PTX_INVALID_CALL,    /* an indirect call to an address that is not a function */
  PTX_UNKNOWN_VERSION, /* .version names no ISA that there is */
};

const char *ptx_status_name(enum ptx_status status);

/* Name and offset of a kernel parameter in the parameter block. */
struct ptx_parameter {
  uint32_t offset;
  uint32_t size;
};

struct ptx_kernel_info {
  const char *name;
  const struct ptx_parameter *parameters;
  uint32_t parameter_count;
  uint32_t parameter_bytes;
  uint32_t static_shared;       /* bytes of the variables that it and its callees can name */
  uint32_t shared_extent;       /* end of the last of them; the module's follow one another */
  uint32_t dynamic_align;       /* where dynamic shared memory begins: a multiple of this, 16 at least */
  uint32_t reserved_shared;     /* bytes of shared memory beside them that are not the program's */
  uint32_t local_bytes;         /* stack of a thread, without functions called through pointers */
  uint32_t registers;           /* estimate: 32-bit registers that a thread needs at once */
  uint32_t max_threads;         /* .maxntid, else 1024 */
  uint32_t required_threads[3]; /* .reqntid, else 0 */
  uint32_t cluster[3];          /* .reqnctapercluster, else 0 */
  uint32_t version;             /* of the module's PTX: 10 * major + minor */
  uint32_t target;              /* 61 for sm_61 */
};

enum ptx_reference { PTX_NO_REFERENCE, PTX_TEXTURE_REFERENCE, PTX_SURFACE_REFERENCE };

struct ptx_global_info {
  const char *name;
  uint64_t offset; /* in the memory given to ptx_module_place */
  uint64_t size;
  bool managed;      /* .attribute(.managed): the program uses it as its own memory */
  uint8_t reference; /* enum ptx_reference: it holds the bound object, or 0 */
};

/* All of them, unless a test clears bits before it loads a module. Results are the same. */
enum {
  PTX_ANALYSE_LIVE = 1,     /* registers that are never live together share a place */
  PTX_ANALYSE_STRAIGHT = 2, /* lanes at one place or side by side access memory as one */
  PTX_ANALYSE_UNIFORM = 4,  /* values that are equal in a launch are computed once in a frame; with LIVE */
};
extern uint32_t ptx_analyses;

/* Compiled code (compile/region.h): never; of what runs much; at once; at once, and compared (for tests). */
enum ptx_compile { PTX_COMPILE_NEVER, PTX_COMPILE_AUTO, PTX_COMPILE_ALWAYS, PTX_COMPILE_CHECK };
struct ptx_compiler;
/* Returns NULL if kernels can be compiled on this machine, with this version of LLVM, else the reason why
 * not. */
const char *ptx_compiler_possible(uint32_t *llvm);
/*
 * Starts the process that compiles, before there are threads and while this process may still fork and map
 * code. `confine` limits that process and those that it forks, one for each function, before they read
 * anything of a guest; NULL: they are not limited. NULL: not possible, and kernels are interpreted. They end
 * with this process.
 */
enum ptx_confined { PTX_CONFINE_COMPILER, PTX_CONFINE_FUNCTION };
typedef bool ptx_confine(enum ptx_confined which); /* false: the process must not continue */
struct ptx_compiler *ptx_compiler_start(enum ptx_compile mode, ptx_confine *confine);
/*
 * Returns the nanoseconds of processor time that the compiler has used since the last call, by answers that
 * have arrived.
 */
uint64_t ptx_compiler_used(struct ptx_compiler *compiler);
struct ptx_compiler_counts {
  uint32_t asked, compiled, refused; /* functions */
  uint64_t compared;                 /* regions that `check` has run both ways */
  uint64_t stepped;                  /* instructions for which compiled code has called the interpreter */
  uint64_t saved;                    /* registers, because other lanes of the warp waited */
};
/* Returns why the compiler refused the last function; empty: it refused none. */
const char *ptx_compiler_count(struct ptx_compiler *compiler, struct ptx_compiler_counts *counts);

/*
 * Parses `length` bytes (a NUL ends them early). On failure *module is NULL, and `log`, if not NULL, has the
 * error with line and instruction. A kernel with an unsupported instruction does not fail the module: `log`
 * names each such kernel on a line, and its launch is refused. `target` is the device's compute capability
 * (61 for 6.1). A module for a newer one is refused with PTX_UNSUPPORTED.
 */
enum ptx_status ptx_module_load(const char *text, size_t length, uint32_t target, struct ptx_module **module,
                                char *log, size_t log_size);
/*
 * Like ptx_module_load, for large texts. A kernel is decoded when it is first launched, so `text` must stay
 * until the module is freed, and an error in a function is found only then.
 */
enum ptx_status ptx_module_load_lazily(const char *text, size_t length, uint32_t target,
                                       struct ptx_module **module, char *log, size_t log_size);
void ptx_module_free(struct ptx_module *module);

/* Makes a kernel ready to run. Returns NULL if it can run, else the reason ("line 7: ..."), with *status. */
const char *ptx_module_prepare(struct ptx_module *module, uint32_t kernel, enum ptx_status *status);

uint32_t ptx_module_kernel_count(const struct ptx_module *module);
const struct ptx_kernel_info *ptx_module_kernel(const struct ptx_module *module, uint32_t index);
/* Returns the kernel's index, or -1. */
int32_t ptx_module_find_kernel(const struct ptx_module *module, const char *name);
uint32_t ptx_module_global_count(const struct ptx_module *module);
const struct ptx_global_info *ptx_module_global(const struct ptx_module *module, uint32_t index);

/* True if a kernel of the module may call malloc or launch kernels, which needs a heap. */
bool ptx_module_allocates(const struct ptx_module *module);
bool ptx_module_launches(const struct ptx_module *module);
/* Returns the bytes of device memory that the module's variables need, aligned to 256; 0: none. */
uint64_t ptx_module_data_bytes(const struct ptx_module *module);
/*
 * Writes initial values to `bytes` (of ptx_module_data_bytes) and makes the code refer to `address`. Call
 * this before the first launch.
 */
void ptx_module_place(struct ptx_module *module, uint64_t address, unsigned char *bytes);
/* From now on the variables are at `address`, in `bytes`. The caller has copied them there. */
void ptx_module_move(struct ptx_module *module, uint64_t address, unsigned char *bytes);

/* Returns the bytes of this process's memory that the module takes: its code and its tables. */
uint64_t ptx_module_bytes(const struct ptx_module *module);

struct ptx_fault {
  enum ptx_status status;
  uint64_t address; /* of the access that failed */
  uint32_t line;    /* in the module's text */
  uint32_t block[3];
  uint32_t thread[3];
  char text[200]; /* description of the fault */
};

enum { PTX_CHECK_RACE = 1, PTX_CHECK_INIT = 2 };

/*
 * A finding of a check. If `check` is 0, it is only the number of further findings that were not reported
 * (`rest`).
 */
struct ptx_finding {
  uint32_t check;
  const char *kernel;
  const char *space;    /* "shared", "local" or "global" */
  char instruction[32]; /* "ld.shared.f32" */
  bool writes;          /* otherwise it reads */
  uint32_t line;        /* in the module's text */
  uint32_t block[3];
  uint32_t thread[3];
  uint64_t address; /* within the space */
  uint32_t bytes;
  /* of a race: the earlier access */
  bool other_writes;
  uint32_t other_line;
  uint32_t other_thread[3];
  uint64_t rest; /* of the kernel, since its module was loaded */
};
typedef void ptx_report(void *user, const struct ptx_finding *finding);

/* Limits when a thread of a launch may compute, if launches of several processes share the processors. */
struct ptx_turns {
  void (*enter)(void *user);                /* waits for a turn */
  bool (*try)(void *user);                  /* takes a turn if one is free */
  bool (*crowded)(void *user);              /* true: the turn should end early */
  void (*leave)(void *user, uint64_t used); /* ends the turn, which took this many nanoseconds */
};

struct ptx_device {
  int32_t number, count;
  const int32_t *attributes; /* by CUdevice_attribute number */
  const uint8_t *known;      /* bit n: attributes[n] holds */
  uint32_t attribute_count;
  uint64_t heap_bytes, printed_bytes;
};

struct ptx_launch {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3]; /* in blocks; 0: as the kernel requires, else none */
  uint32_t dynamic_shared;
  const void *parameters;
  uint32_t parameter_bytes; /* at least as many as the kernel's */
  bool cooperative;         /* all blocks run at once, because they may wait for each other */
  uint32_t shared_limit;    /* most bytes that a block may have; 0: 227 KiB */
  uint32_t stack_limit;     /* bytes that a thread may use if calls cannot be counted; 0: 1024 */
  uint64_t timeout;         /* in nanoseconds; 0: none */
  ptx_find_region *find;
  ptx_find_texture *find_texture; /* NULL: there are none */
  ptx_print *print;               /* NULL: what kernels print is dropped */
  void *user;
  /* The heap of malloc in kernels; 0 bytes: malloc returns NULL. It belongs to the context, see ptx_heap_new.
   */
  struct ptx_heap *heap;
  /* Address of 8 zero bytes of device memory where cooperative groups count. 0: none, and grid.sync() traps.
   */
  uint64_t workspace;
  struct ptx_children *children;   /* records launches of kernels by kernels; NULL: such launches fail */
  uint32_t checks;                 /* PTX_CHECK_*; a finding does not end the launch */
  uint32_t most_findings;          /* findings reported for one kernel, at different places; 0: 10 */
  ptx_report *report;              /* called under a lock */
  const struct ptx_device *device; /* NULL: kernels that ask are told that there is none */
  struct ptx_compiler *compiler;   /* NULL: nothing is compiled */
  const struct ptx_turns *turns;   /* NULL: threads compute at any time */
  /* Called about every millisecond by the thread that launched. It changes nothing that a kernel finds. */
  void (*serve)(void *user); /* NULL: nothing is called */
};

/* Runs a launch and returns when it has ended. The caller keeps the order of streams. */
enum ptx_status ptx_launch(struct ptx_module *module, uint32_t kernel, const struct ptx_launch *launch,
                           struct ptx_pool *pool, struct ptx_fault *fault);

/*
 * A launch of a kernel by a kernel (CUDA dynamic parallelism). Such launches are recorded while a grid runs,
 * and run when it has ended. A kernel cannot tell the difference, because it must not wait for its children.
 */
struct ptx_child {
  uint32_t kernel, grid[3], block[3], dynamic_shared, parameter_bytes;
  unsigned char parameters[4096];
};
struct ptx_children *ptx_children_new(void);
void ptx_children_free(struct ptx_children *children, struct ptx_heap *heap);
/*
 * Gives the next launch to run, after `launch` or the last child has ended without a fault. Copies and fills
 * between launches are made here. False: none is left, or `fault` has an error of one.
 */
bool ptx_children_next(struct ptx_children *children, const struct ptx_module *module,
                       const struct ptx_launch *launch, struct ptx_child *child, struct ptx_fault *fault);

/*
 * Returns the bytes of local memory that the launch's blocks take while they run, for as many blocks as the
 * pool runs at once. 0: the launch will be refused.
 */
uint64_t ptx_launch_local_bytes(const struct ptx_module *module, uint32_t kernel,
                                const struct ptx_launch *launch, const struct ptx_pool *pool);

/*
 * Makes `helpers` threads that help with launches; the caller's own thread works, too. `helpers` may be 0.
 * NULL: no memory.
 */
struct ptx_pool *ptx_pool_new(uint32_t helpers);
void ptx_pool_free(struct ptx_pool *pool);

/* A range of device memory from which a context's kernels allocate. */
struct ptx_heap *ptx_heap_new(uint64_t address, uint64_t size);
void ptx_heap_free(struct ptx_heap *heap);

#endif
