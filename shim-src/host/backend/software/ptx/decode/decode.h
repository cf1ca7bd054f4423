#ifndef VGPU_PTX_DECODE_H
#define VGPU_PTX_DECODE_H

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/text/parser.h"

/* Refuses the instruction: "line N: <instruction> is not supported", and why. `why` may be NULL. */
_Noreturn void ptx_refuse(struct parser *p, const char *why);
/*
 * Refuses an instruction that no version of the ISA allows: "line N: <instruction> is no PTX", and why. The
 * module is invalid.
 */
_Noreturn void ptx_wrong(struct parser *p, const char *why);
void ptx_need(struct parser *p, uint32_t least, uint32_t most); /* number of operands */
struct ptx_instruction *ptx_emit(struct parser *p, enum ptx_kind kind);
/* Emits one lane operation. Refuses an operation that the table does not have. */
struct ptx_instruction *ptx_emit_alu(struct parser *p, enum ptx_operation op, enum ptx_type type,
                                     uint32_t bytes, uint32_t d, uint32_t a, uint32_t b, uint32_t c,
                                     uint32_t m);
struct ptx_instruction *ptx_emit_convert(struct parser *p, enum ptx_type to, enum ptx_type from, uint32_t d,
                                         uint32_t a, uint32_t m);
/* Emits d = op(a, b), all of the type, and returns d. */
uint32_t ptx_emit_two(struct parser *p, enum ptx_operation op, enum ptx_type type, uint32_t a, uint32_t b);
/* Emits the comparison of a and b to the predicate d. Refuses a comparison that the table does not have. */
struct ptx_instruction *ptx_emit_compare(struct parser *p, enum ptx_comparison how, enum ptx_type type,
                                         uint32_t d, uint32_t a, uint32_t b);
/* Returns the operand as a reference with the type's width. Other widths are converted. */
uint32_t ptx_source(struct parser *p, const struct operand *o, enum ptx_type type);
uint32_t ptx_destination(struct parser *p, const struct operand *o, enum ptx_type type);
uint32_t ptx_predicate(struct parser *p, const struct operand *o);     /* a predicate that is read */
uint32_t ptx_predicate_out(struct parser *p, const struct operand *o); /* or _ */
/* Converts destinations of other widths, after the instruction. */
void ptx_finish(struct parser *p);
uint32_t ptx_temporary(struct parser *p, uint32_t bytes);
uint32_t ptx_extra(struct parser *p, uint32_t value); /* appends to the function's list; its index */
/*
 * Returns a variable's address as a 64-bit reference (32-bit for shared and local memory), and sets *offset
 * to the constant to add.
 */
uint32_t ptx_address(struct parser *p, const struct operand *o, enum ptx_space space, uint64_t *offset,
                     enum ptx_type *width);
enum ptx_type ptx_last_type(struct parser *p);
bool ptx_part(struct parser *p, uint32_t index, const char *text);
uint32_t ptx_control(struct parser *p);
uint32_t ptx_type_mode(struct parser *p); /* sat, ftz and so on */
uint32_t ptx_rounding(struct parser *p);

void ptx_decode_call(struct parser *p);
/* Returns the address of a function's parameter: that of a copy in local memory, which each call makes. */
uint32_t ptx_parameter_address(struct parser *p, const struct symbol *parameter, uint64_t addend);

uint32_t ptx_constant(struct parser *p, uint32_t bytes, uint64_t value);
/*
 * Returns an address in the module's data. It is not shared with equal numbers, because ptx_module_place
 * changes it.
 */
uint32_t ptx_address_constant(struct parser *p, uint64_t addend);
uint64_t ptx_float_bits(struct parser *p, const struct operand *o, enum ptx_type type);

bool ptx_is_float(enum ptx_type type);
uint32_t ptx_held(enum ptx_type type); /* bytes of a register of it */
/* d = op(a, b, c) of one type. */
struct ptx_instruction *ptx_same(struct parser *p, enum ptx_operation op, enum ptx_type type,
                                 uint32_t sources, uint32_t m);
/* Emits the saturation of 32-bit floats, which is a separate instruction; 16-bit operations include it. */
void ptx_saturate(struct parser *p, enum ptx_type type);
/* Gives the first and the last of a mnemonic's types; T_NONE if there are fewer. */
void ptx_two_types(struct parser *p, enum ptx_type *first, enum ptx_type *second);

/* decode_logic.c: an operation on predicates. */
enum { TABLE_AND, TABLE_OR, TABLE_XOR, TABLE_NOT, TABLE_MOV };
void ptx_emit_predicates(struct parser *p, uint32_t table, uint32_t sources);

void ptx_decode_mbarrier(struct parser *p);

void ptx_decode_async(struct parser *p, bool reduce); /* st.async, red.async */
void ptx_decode_bulk(struct parser *p);               /* cp.async.bulk and cp.reduce.async.bulk */
uint32_t ptx_generic(struct parser *p, const struct operand *o, bool shared);

/* Returns a register with the sum; `a` itself if the value is 0. */
uint32_t ptx_sum(struct parser *p, enum ptx_type type, uint32_t a, uint64_t value);
/* True if this part of the instruction's name means the shared memory of the block or of its cluster. */
bool ptx_says_shared(struct parser *p, uint32_t part);

/* texture/decode_texture.c: the object that is bound to a .texref or .surfref, 64 bits */
uint32_t ptx_texture_reference(struct parser *p, const struct symbol *s);

void ptx_mbarrier_arrive(struct parser *p); /* [address] */

typedef void ptx_decoder(struct parser *p);
/* A decoder that is one call. */
#define PTX_DECODER(name, call)                                                                              \
  static void decode_##name(struct parser *p) {                                                              \
    call;                                                                                                    \
  }
struct ptx_mnemonic {
  const char *name;
  ptx_decoder *decode;
  const char *modifiers; /* most types that it takes, and its modifiers; NULL: any */
};
#define PTX_SHAPE " m_n_k" /* among the modifiers: shapes like m16n8k16 */
/* modifiers.c: refuses modifiers that are not in `known`. */
void ptx_check_modifiers(struct parser *p, const char *known);
/* Each ends with a NULL name. */
extern const struct ptx_mnemonic ptx_arithmetic_mnemonics[], ptx_compare_mnemonics[], ptx_convert_mnemonics[],
    ptx_logic_mnemonics[], ptx_memory_mnemonics[], ptx_control_mnemonics[], ptx_matrix_mnemonics[],
    ptx_bulk_mnemonics[], ptx_cluster_mnemonics[], ptx_wgmma_mnemonics[], ptx_video_mnemonics[],
    ptx_texture_mnemonics[];

#endif
