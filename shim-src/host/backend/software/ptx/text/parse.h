#ifndef VGPU_PTX_PARSE_H
#define VGPU_PTX_PARSE_H

#include "host/backend/software/ptx/text/parser.h"

struct ptx_declaration {
  enum ptx_type type;
  uint32_t vector; /* 1, 2, 4 */
  uint64_t alignment;
  struct word name;
  uint64_t count; /* elements; of an open array, those in one element of its first dimension */
  bool open;      /* the first dimension is empty */
  bool opaque, surface, range, managed;
  uint32_t range_count;
  struct word unknown; /* the first unknown attribute; length 0: none */
};

/* Reads type and attributes, up to the name. An unknown attribute is stored in d->unknown. */
void ptx_read_attributes(struct parser *p, struct ptx_declaration *d);
/* Like ptx_read_attributes, for code that is to run: refuses an unknown attribute. */
void ptx_read_type(struct parser *p, struct ptx_declaration *d);
/*
 * Reads the name with its dimensions, or with the `<count>` of registers. Several names may follow one type.
 */
void ptx_read_name(struct parser *p, struct ptx_declaration *d);
uint64_t ptx_declared_bytes(const struct ptx_declaration *d);
uint32_t ptx_element_bytes(const struct ptx_declaration *d);
uint64_t ptx_declared_alignment(const struct ptx_declaration *d);
/* Reads what follows .attribute: (.managed), (.unified(1, 2)). True if .managed is among them. */
bool ptx_attribute(struct parser *p);
void ptx_need_param(struct parser *p);
/* Returns the place of a kernel's next parameter in its block, of which *end bytes are used. */
struct ptx_parameter ptx_place_parameter(struct parser *p, const struct ptx_declaration *d, uint32_t *end);

/* An address as an initial value: of a variable or a function, or one byte of it (0xFF00(name) is byte 1). */
struct ptx_address {
  struct word name;
  int64_t addend;
  uint8_t shift; /* bits */
};
/*
 * The receiver of initial values. Each value has `bytes` bytes (1 to 8) and begins `at` bytes behind the
 * variable's beginning.
 */
struct ptx_initial {
  void *user;
  void (*number)(struct parser *p, void *user, uint64_t at, uint64_t bits, uint32_t bytes);
  void (*address)(struct parser *p, void *user, uint64_t at, const struct ptx_address *a, uint32_t bytes);
};
/* Reads the values after a `=`, for a variable of `size` bytes. */
void ptx_initial_values(struct parser *p, uint64_t size, enum ptx_type type, const struct ptx_initial *to);
/* Sets an empty first dimension from the count of the values that follow. */
void ptx_close_dimension(struct parser *p, struct ptx_declaration *d);

void ptx_global_variable(struct parser *p, bool constant);
void ptx_shared_variable(struct parser *p, bool external);
/* These are outside of functions. */
void ptx_texture_variable(struct parser *p);
void ptx_module_local(struct parser *p);
void ptx_module_registers(struct parser *p);
/* Declares the registers outside of functions for a kernel whose body begins. No function can share them. */
void ptx_own_registers(struct parser *p, const struct ptx_function *f);
/* Reads a variable of a function if `word` is .reg, .local or .param. False: it is none of these. */
bool ptx_function_variable(struct parser *p, struct word word);
/*
 * Reads parameters or results of a function or kernel, in parentheses. With `define`, their names are
 * defined.
 */
void ptx_parameter_list(struct parser *p, struct ptx_function *f, bool define, bool results);

void ptx_skip_line(struct parser *p);
/* Reads a body from after its opening brace to its closing one. */
void ptx_body(struct parser *p, const struct ptx_function *f);

/* Reads a function or kernel, from after .entry or .func on. */
void ptx_function(struct parser *p, bool entry);
/* Decodes a function's body. False: f->status and f->refused have the reason, and it stays refused. */
bool ptx_decode_body(struct parser *p, struct ptx_function *f);
/* Reads up to three dimensions; missing ones are 1. */
void ptx_dimensions(struct parser *p, uint32_t to[3]);

struct ptx_target {
  uint32_t architecture; /* 90 for "sm_90a" */
  char suffix[2]; /* "a": only this architecture; "f": also later ones of its major number; "": all later */
};

struct ptx_target ptx_target(struct parser *p);
bool ptx_target_fits(struct ptx_target target, uint32_t device);
bool ptx_begins_statement(struct word word);
void ptx_skip_section(struct parser *p);
/* Calls `reading`. False: `reading` gave up, and p->status and p->why have the reason. */
bool ptx_guarded(struct parser *p, void reading(struct parser *p, void *user), void *user);

#endif
