#ifndef VGPU_PTX_PROGRAM_H
#define VGPU_PTX_PROGRAM_H

#include "host/backend/software/ptx/arena.h"
#include "host/backend/software/ptx/ptx.h"

#define PTX_LANES 32
/* Entries of a worker's region cache, by pc. Prime: the pcs of an unrolled access differ by any number. */
#define PTX_REGION_CACHE 509u
#define PTX_NO_PC 0xffffffffu /* as a reconvergence point: where the function returns */

/*
 * Windows of generic addresses for a thread's own memory. Device memory is elsewhere: memory/memory.c begins
 * at 1 << 45 and has 32 windows of a TiB.
 */
#define PTX_SHARED_WINDOW 0x0000700000000000ull
#define PTX_LOCAL_WINDOW 0x0000710000000000ull
#define PTX_PARAM_WINDOW 0x0000720000000000ull
#define PTX_WINDOW_SIZE 0x0000010000000000ull
static inline bool ptx_is_device(uint64_t generic) {
  return generic - PTX_SHARED_WINDOW >= 3 * PTX_WINDOW_SIZE;
}
/* Addresses of functions. They are not memory, and only calls can use them. */
#define PTX_FUNCTION_WINDOW 0x0000730000000000ull
/*
 * In the shared window a block's own memory is at 0, that of rank r of its cluster at (r + 1) <<
 * PTX_RANK_SHIFT: an address of shared::cta is also one of shared::cluster, as the ISA says.
 */
#define PTX_RANK_SHIFT 24u
#define PTX_RANK_MASK 0xff000000ull

enum ptx_type {
  T_NONE,
  T_B8,
  T_B16,
  T_B32,
  T_B64,
  T_B128,
  T_U8,
  T_U16,
  T_U32,
  T_U64,
  T_S8,
  T_S16,
  T_S32,
  T_S64,
  T_F16,
  T_F16X2,
  T_BF16,
  T_BF16X2,
  T_TF32,
  T_F32,
  T_F64,
  T_PRED,
  T_U16X2,
  T_S16X2,
  T_E4M3,
  T_E5M2,
  T_E4M3X2,
  T_E5M2X2,
  T_TYPES
};

/* Both: false for types other than integers of 8 to 64 bits. */
static inline bool ptx_is_signed(enum ptx_type type) {
  return type >= T_S8 && type <= T_S64;
}
static inline bool ptx_is_integer(enum ptx_type type) {
  return type >= T_U8 && type <= T_S64;
}

/*
 * The kind of an operand, which is added to its place, a multiple of 4. While a function is decoded, a
 * virtual register is its number << 2 | REF_FRAME; it gets its place in the frame later.
 */
enum { REF_FRAME, REF_CONSTANT, REF_NONE = 3 };
#define PTX_NONE 3u
#define PTX_DEFINED 0x80000000u /* while decoding: marks an entry of an operand list that is written */

/* An operation on all 32 lanes at once. */
typedef void ptx_lanes(void *d, const void *a, const void *b, const void *c, uint32_t m);
/* A comparison of all 32 lanes. The result has one bit for each lane. */
typedef uint32_t ptx_compare(const void *a, const void *b);
/* A comparison of pairs. The results of the lower halves are the lower 32 bits. */
typedef uint64_t ptx_compare_pair(const void *a, const void *b);

enum ptx_kind {
  K_ALU,       /* lanes(d, a, b, c, m) */
  K_SETP,      /* compare(a, b) with c, to predicates d and x[0] */
  K_SETP_PAIR, /* compare_pair(a, b) with c: the lower halves to d, the upper ones to x[0] */
  K_SET,       /* compare(a, b) to all-ones or 1.0 */
  K_SET_PAIR,
  K_CARRY,   /* add, subtract, multiply-add with the carry flag */
  K_PRED,    /* and, or, xor, not, mov of predicates: m is the truth table */
  K_SPECIAL, /* d = special register m */
  K_LABEL,   /* a reconvergence point */
  K_BRA,
  K_BRX,
  K_CALL,
  K_CALL_INDIRECT,
  K_RET,
  K_EXIT,
  K_TRAP,
  K_LOAD,
  K_STORE,
  K_LOAD_KERNEL_PARAM,
  K_LOAD_PARAM,
  K_STORE_PARAM,
  K_ATOM,
  K_ISSPACEP,
  K_STACK,
  K_LOCAL_ADDRESS, /* in the function's frame; m 1: in that of the kernel, which begins at 0 */
  K_ACTIVEMASK,
  K_BARRIER,
  K_SHFL,
  K_VOTE,
  K_MATCH,
  K_REDUX,
  K_WARP_BARRIER,
  K_ELECT,
  K_CP_ASYNC,
  K_LDMATRIX,
  K_STMATRIX,
  K_MOVMATRIX,
  K_MMA,
  K_WMMA_LOAD,
  K_WMMA_STORE,
  K_NANOSLEEP,
  K_PASS, /* a wait is over: others get a turn before the thread continues */
  K_FENCE,
  K_CLUSTER_ARRIVE,
  K_CLUSTER_WAIT,
  K_BULK,
  K_TEXTURE,
  K_WGMMA,
  K_WGMMA_WAIT,
  K_ASYNC_READ, /* not an instruction: the reads and writes of a bulk copy, for checks */
  K_ASYNC_WRITE,
  K_REGION, /* only in `dispatch`: compiled code begins at the instruction, see compile/region.h */
  K_KINDS
};

enum ptx_space { S_GENERIC, S_GLOBAL, S_SHARED, S_LOCAL, S_CONST, S_PARAM };
/* The space of a generic address. Its window begins at *base. */
static inline enum ptx_space ptx_space_of(uint64_t generic, uint64_t *base) {
  enum ptx_space space = generic - PTX_SHARED_WINDOW < PTX_WINDOW_SIZE  ? S_SHARED
                         : generic - PTX_LOCAL_WINDOW < PTX_WINDOW_SIZE ? S_LOCAL
                         : generic - PTX_PARAM_WINDOW < PTX_WINDOW_SIZE ? S_PARAM
                                                                        : S_GLOBAL;
  *base = space == S_GLOBAL ? 0 : generic / PTX_WINDOW_SIZE * PTX_WINDOW_SIZE;
  return space;
}

struct ptx_instruction {
  union {
    ptx_lanes *lanes;
    ptx_compare *compare;
    ptx_compare_pair *compare_pair;
    uint64_t offset; /* of an address */
  } u;
  uint32_t d, a, b, c; /* references */
  uint32_t guard;      /* frame offset of the predicate + 1, and 2 when negated; 0: none */
  uint32_t m;          /* mode; its meaning depends on the kind */
  uint32_t target;     /* pc */
  uint32_t x;          /* first of further operands in the function's list */
  uint16_t x_count;
  uint8_t control;  /* 0, or 1 + index of a floating-point control setting (alu/fpu.h) */
  uint8_t dispatch; /* the kind, or K_REGION; other threads change it while a kernel runs */
  uint8_t kind;
  uint8_t size; /* of d: bytes per lane; 0: a predicate */
  uint8_t space;
  uint8_t type;
  uint32_t line;
  uint32_t join; /* pc where the two paths of a branch meet */
};

struct ptx_data {  /* an initialiser that is an address */
  uint64_t offset; /* in the module's data, or of a constant's first lane in the constant pool */
  uint64_t addend;
  uint32_t symbol;  /* index among globals, or functions */
  uint8_t function; /* 1: the address of a function */
  uint8_t bytes;
  uint8_t shift; /* mask() operators take one byte of it */
};

struct ptx_source {
  const char *at; /* NULL: there is none */
  uint32_t line;
};

struct ptx_shared_use {
  uint32_t offset, size;
};

/* A parameter whose address a function takes: each call copies it to local memory. */
struct ptx_addressed {
  uint32_t place, size, local;
};

#define PTX_NO_REGISTER 0xffu /* in `widths` */

struct ptx_compiled;
struct ptx_compiler;

enum ptx_body { BODY_UNREAD, BODY_DECODED, BODY_REFUSED };

struct ptx_function {
  const char *name;
  uint32_t line;
  bool entry, defined, builtin;
  bool unreadable;     /* its parameters cannot be read, so it is refused */
  uint8_t state;       /* enum ptx_body */
  bool ready;          /* of a kernel: its callees are decoded, too */
  uint8_t status;      /* enum ptx_status, if refused, */
  const char *refused; /* and the reason: "line 7: ..." */
  struct ptx_source returns_text, parameters_text, body_text;
  uint8_t builtin_number;
  uint16_t max_threads;
  uint32_t reqntid[3];
  uint32_t cluster[3];              /* .reqnctapercluster, else 0 */
  struct ptx_parameter *parameters; /* return values first, for functions */
  uint32_t parameter_count, return_count;
  uint32_t parameter_bytes;  /* in a kernel's block */
  uint32_t *parameter_place; /* for functions: frame offset of each, lane-major */
  struct ptx_instruction *code;
  uint32_t code_count;
  uint32_t settles; /* its first instructions, whose results are equal in all threads of a launch */
  uint32_t *x;      /* lists of operands */
  uint32_t x_count;
  uint32_t frame_bytes;
  uint32_t registers;
  uint32_t local_bytes;               /* bytes of its own variables */
  uint32_t local_total;               /* with its callees; PTX_LOCAL_MOST + 1: too much */
  uint32_t shared_end;                /* end of the static shared memory that it names itself */
  uint32_t shared_own;                /* bytes that it declares itself */
  struct ptx_shared_use *shared_uses; /* the module's variables that it names */
  uint32_t shared_use_count;
  struct ptx_addressed *addressed;
  uint32_t addressed_count;
  uint32_t shared_total;  /* with its callees */
  uint32_t dynamic_align; /* the largest alignment of the arrays without a size that it names; 0: none */
  uint32_t *calls;
  uint32_t call_count;
  bool reserves;      /* uses the reserved part of shared memory */
  bool grows;         /* allocates stack memory by size, or calls a function that does */
  bool recursive;     /* or calls through pointers: the depth is unknown */
  uint8_t *x_written; /* of each entry of x: 1 if it is a register that is written */
  uint8_t *widths;    /* of the register at each 64 bytes of the frame: bytes of a lane, 0 for a predicate */
  uint32_t heat, hot; /* branches that it has made, and those after which it is compiled (run/region.h) */
  /* [1]: for launches whose blocks have rows of a multiple of 16 threads. */
  bool asked[2]; /* it was given to the compiler, or cannot be */
  struct ptx_compiled *compiled[2];
  uint8_t visit;
};

struct ptx_module {
  struct ptx_arena arena;
  struct ptx_compiler *compiler; /* that has a function of it, or had one */
  struct parser *parser;         /* while bodies remain to be read; NULL: none */
  uint64_t address;              /* where its variables were placed */
  bool placed;
  uint32_t version, target, device;
  struct ptx_function **functions;
  uint32_t function_count, function_room;
  struct ptx_kernel_info *kernels;
  uint32_t *kernel_function;
  struct ptx_kernel_findings *findings; /* for each kernel, findings of checks that were reported */
  uint32_t kernel_count;
  struct ptx_global_info *globals;
  uint32_t global_count, global_room;
  unsigned char *data; /* initial values */
  uint64_t data_bytes, data_room;
  struct ptx_data *relocations;
  uint32_t relocation_count, relocation_room;
  unsigned char *constants; /* every value, repeated for 32 lanes */
  uint32_t constant_bytes, constant_room;
};

/* Frees compiled functions, when the module ends. */
void ptx_compiler_forget(struct ptx_module *module);

uint32_t ptx_type_bytes(enum ptx_type type);

#endif
