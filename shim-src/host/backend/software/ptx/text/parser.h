#ifndef VGPU_PTX_PARSER_H
#define VGPU_PTX_PARSER_H

#include <setjmp.h>

#include "host/backend/software/ptx/program.h"

enum {
  MAX_SCOPES = 64,
  MAX_OPERANDS = 24,
  MAX_ELEMENTS = 160, /* of all vectors and lists of one instruction */
  MAX_PARTS = 24,
  MAX_REGISTERS = 1 << 20, /* of one function */
  MAX_INSTRUCTIONS = 4 << 20,
  MAX_RETURNED = 16, /* results of a function that are in registers */
  MAX_MODULE_REGISTERS = 64,
  BUCKETS = 1 << 12,
  MET = 64,               /* mnemonics */
  MAX_SHARED = 228 << 10, /* bytes of shared variables, for the module or for a function */
};

enum symbol_kind {
  SYM_REGISTER,
  SYM_REGISTERS, /* a range: %r<10> */
  SYM_GLOBAL,
  SYM_SHARED,
  SYM_SHARED_EXTERN,
  SYM_LOCAL,
  SYM_FUNCTION,
  SYM_KERNEL_PARAM,
  SYM_PARAM, /* lane-major in the frame */
  SYM_LABEL,
  SYM_PROTOTYPE,
  SYM_TARGETS,
  SYM_OPAQUE, /* .texref and .surfref: 8 bytes of data hold the bound object */
  SYM_VECTOR, /* .reg .v2 or .v4, or .b128 as two halves: consecutive registers */
};

struct symbol {
  struct symbol *chain, *older;
  const char *name;
  uint32_t length, hash;
  uint8_t kind, type, scope;
  uint8_t constant; /* SYM_GLOBAL in .const; SYM_PARAM: an input of the function, never written */
  uint32_t number;  /* number of a register, global or function; first operand of a list; pc */
  uint32_t count;   /* size of a range or list; of a variable, the bytes of an element */
  uint64_t offset, size;
};

/* A scalar video operand has one part, a SIMD one lists several. */
enum { PART_NONE, PART_B0, PART_B1, PART_B2, PART_B3, PART_H0, PART_H1, PART_BYTES, PART_HALVES };

enum operand_kind { O_REGISTER, O_INTEGER, O_FLOAT, O_SYMBOL, O_ADDRESS, O_VECTOR, O_SINK, O_SPECIAL };

struct operand {
  uint8_t kind;
  uint8_t type;          /* of a register; T_F32 or T_F64 of a float */
  bool negated;          /* !p, or -x before a register */
  bool paired;           /* p|q: the next operand is q */
  bool listed;           /* in parentheses (calls) */
  uint8_t lane_part;     /* .b0 .h1 of video operands: PART_*; 0: none */
  uint16_t selectors;    /* of PART_BYTES and PART_HALVES: 4 bits for each digit, in the order of the text */
  uint32_t number;       /* register or special register */
  uint32_t first, count; /* of elements */
  int64_t value;         /* or the bits of a float */
  struct symbol *symbol; /* also base of an address; NULL: the base is register `number`, if has_base */
  bool has_base;
  bool sum;     /* of a register: a constant was added to it, so it is not written */
  bool sampled; /* of an address with coordinates: the element before them is a sampler */
};

struct word {
  const char *text;
  uint32_t length;
};

struct fixup {
  struct fixup *next;
  struct word name;
  uint32_t *to; /* an index into x, or NULL */
  uint32_t instruction, line;
  uint32_t x; /* 1 + index in the list of operands; 0: the instruction's target */
  uint8_t scope;
};

/* `count` registers from `reference` on, of `bytes` bytes each. */
struct ptx_held {
  uint32_t reference;
  uint8_t bytes, count;
};

struct parser {
  const char *start, *at, *end;
  uint32_t line;
  bool lazy; /* bodies are decoded when they are first needed */
  struct ptx_module *module;
  struct ptx_arena scratch; /* symbols of a function; freed after each */
  enum ptx_status status;
  char why[256]; /* reason of the failure */
  jmp_buf failed;

  struct symbol *buckets[BUCKETS];
  struct symbol *youngest[MAX_SCOPES];
  uint32_t scope;
  uint32_t hiding; /* count of visible names that may hide a register of a range */
  struct fixup *fixups;

  /* the current function */
  struct ptx_function *function;
  struct ptx_instruction *code;
  uint32_t code_count, code_room;
  uint32_t *x;
  uint32_t x_count, x_room;
  uint8_t *registers; /* bytes per lane of each; 0: a predicate */
  uint32_t register_count, register_room;
  uint32_t frame_params; /* bytes of lane-major parameter space */
  uint32_t carry;        /* the register that holds the carry flags; PTX_NONE: not used */
  struct {
    struct ptx_held held;
    uint32_t offset;        /* among the parameters */
  } returned[MAX_RETURNED]; /* results of the function that are in registers */
  uint32_t returned_count;
  uint32_t local_bytes, shared_bytes;
  uint32_t module_local; /* bytes of the local variables outside of functions */
  struct ptx_source
      module_registers[MAX_MODULE_REGISTERS]; /* the declarations of registers outside of functions */
  uint32_t module_register_count;
  uint32_t module_shared; /* end of the shared variables outside of functions */
  uint32_t shared_base;   /* start of those of the present function */
  uint32_t callee_shared; /* bytes of those of functions other than kernels; each has a place of its own */
  struct ptx_shared_use *shared_uses; /* of variables outside of functions */
  uint32_t shared_use_count, shared_use_room;
  struct ptx_addressed *addressed; /* parameters of the function that have an address */
  uint32_t addressed_count, addressed_room;
  uint32_t *calls;
  uint32_t call_count, call_room;

  const struct ptx_mnemonic *met[MET];

  /* the current instruction */
  struct word parts[MAX_PARTS];
  uint32_t part_count;
  uint32_t mnemonic_line;
  const char *mnemonic;
  uint32_t mnemonic_length;
  struct operand operands[MAX_OPERANDS];
  uint32_t operand_count;
  struct operand elements[MAX_ELEMENTS];
  uint32_t element_count;
  uint32_t guard; /* register number << 2 | negated << 1 | 1; 0: none */
  struct {
    uint32_t from, to;
    enum ptx_type type;
    uint8_t bytes;
  } later[MAX_ELEMENTS];
  uint32_t later_count;

  uint32_t *constant_table; /* hash of (bytes, value) to places */
  uint32_t constant_slots, constant_count;
};

_Noreturn void ptx_fail(struct parser *p, enum ptx_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *ptx_take(struct parser *p, size_t bytes);
void *ptx_scratch(struct parser *p, size_t bytes);
/*
 * Return an array with room for one more element after `count`: ptx_room in the scratch arena,
 * ptx_module_room in the module's. *room is the number of elements that fit.
 */
void *ptx_room(struct parser *p, void *array, uint32_t count, uint32_t *room, size_t size);
void *ptx_module_room(struct parser *p, void *array, uint32_t count, uint32_t *room, size_t size);

/*
 * Returns the length for %.*s in messages: at most `most`, and only what is left of the text, which need not
 * end in a NUL.
 */
static inline int ptx_some(const struct parser *p, const char *at, int most) {
  return at >= p->end ? 0 : p->end - at < most ? (int)(p->end - at) : most;
}

void ptx_skip(struct parser *p);
bool ptx_accept(struct parser *p, char c);
void ptx_expect(struct parser *p, char c);
struct word ptx_word(struct parser *p);                  /* an identifier or a directive; length 0: none */
bool ptx_directive(struct parser *p, struct word *word); /* reads one, if there is one here */
struct word ptx_need_word(struct parser *p, const char *what);
struct word ptx_need_name(struct parser *p, const char *what); /* that is not a directive */
bool ptx_word_is(struct word word, const char *text);
bool ptx_literal(struct parser *p, struct operand *to); /* one number without a sign */
struct word ptx_string(struct parser *p);
enum ptx_type ptx_type_of(struct word word); /* "u32"; T_NONE: no type */

/* Reads a constant expression. False: none begins here. */
bool ptx_number(struct parser *p, struct operand *to);
int64_t ptx_integer(struct parser *p);
/* Reads +constant or -constant and adds it to *value. False: neither is here. */
bool ptx_addend(struct parser *p, int64_t *value);

struct symbol *ptx_find(struct parser *p, struct word name);
/*
 * Finds a register of this name, declared by itself or in a range, from the innermost scope on. False: there
 * is none.
 */
bool ptx_find_register(struct parser *p, struct word name, struct operand *to);
bool ptx_names_range(struct parser *p, struct word name);
struct symbol *ptx_define(struct parser *p, struct word name, enum symbol_kind kind);
void ptx_open_scope(struct parser *p);
void ptx_close_scope(struct parser *p);
/* Removes all names that a function has declared, after its body was given up. */
void ptx_drop_scopes(struct parser *p);
uint32_t ptx_new_register(struct parser *p, uint8_t bytes);
uint32_t ptx_special_register(struct word name); /* 0: there is none */
const char *ptx_intern(struct parser *p, struct word word);

void ptx_parse_operands(struct parser *p);

/* The place of a parameter in a frame; `size` is bytes per lane. */
struct passed {
  uint32_t offset, size;
};
/* Copies between registers and a parameter in the frame. `kind`: K_LOAD_PARAM or K_STORE_PARAM. */
void ptx_move_parameter(struct parser *p, uint8_t kind, struct ptx_held held, uint32_t offset, uint32_t size);
/*
 * Most bytes of local memory of a thread, as on a GPU. Stack for calls that cannot be counted is added to
 * them.
 */
enum { PTX_LOCAL_MOST = 512 << 10 };
/* Parameters take whole slots of this many bytes per lane. A parameter in a register takes one slot. */
enum { PTX_SLOT = 16 };
/*
 * variables.c: takes *size bytes per lane in the frame and returns their place. *size becomes the bytes
 * taken, in whole slots.
 */
uint32_t ptx_frame_room(struct parser *p, uint64_t *size);
/* Stores the results that the function has in registers, where the caller reads them. */
void ptx_store_results(struct parser *p);

void ptx_decode(struct parser *p);
bool ptx_has(struct parser *p, const char *part);
void ptx_branch(struct parser *p, struct word label);

void ptx_begin_function(struct parser *p, struct ptx_function *function);
void ptx_finish_function(struct parser *p);
void ptx_finish_module(struct parser *p);

/*
 * Decodes a kernel and its callees, and fills in what it needs. False: it cannot run; its function has the
 * reason.
 */
bool ptx_need_kernel(struct parser *p, uint32_t kernel);

/* flow.c: sets `join` of every branch. */
void ptx_find_joins(struct parser *p);
/* registers.c: gives registers places in the frame. */
void ptx_place_registers(struct parser *p);

#endif
