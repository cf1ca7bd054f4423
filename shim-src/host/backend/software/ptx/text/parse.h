/*
 * The functions that the files of the parser, and ptx_text.c, call in each other. Each file reads one part of
 * a module.
 */
#ifndef VGPU_PTX_PARSE_H
#define VGPU_PTX_PARSE_H

#include "host/backend/software/ptx/text/parser.h"

/* declaration.c */
struct ptx_declaration {
  enum ptx_type type;
  uint32_t vector; /* 1, 2, 4 */
  uint64_t alignment;
  struct word name;
  uint64_t count; /* elements; of an open array, those of one element of its first dimension */
  bool open;      /* the first dimension is left empty */
  bool opaque, surface, range, managed;
  uint32_t range_count;
  struct word unknown; /* the first unknown attribute; length 0: none */
};

/* Type and attributes, up to the name. */
void ptx_read_attributes(struct parser *p, struct ptx_declaration *d);
/* The same for what is to be run: no attribute may be unknown. */
void ptx_read_type(struct parser *p, struct ptx_declaration *d);
/* The name with its dimensions, or `<count>` of registers. Several may follow one type. */
void ptx_read_name(struct parser *p, struct ptx_declaration *d);
uint64_t ptx_declared_bytes(const struct ptx_declaration *d);
uint32_t ptx_element_bytes(const struct ptx_declaration *d);
uint64_t ptx_declared_alignment(const struct ptx_declaration *d);
/* ".param" must stand here. */
void ptx_need_param(struct parser *p);
/* Where a kernel's next parameter lies in its block, of which `*end` bytes are taken. */
struct ptx_parameter ptx_place_parameter(struct parser *p, const struct ptx_declaration *d, uint32_t *end);

/* initial.c */
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
/* The values behind a `=`, of a variable of `size` bytes. */
void ptx_initial_values(struct parser *p, uint64_t size, enum ptx_type type, const struct ptx_initial *to);
/* The first dimension, where it was left open, from the values that stand here. */
void ptx_close_dimension(struct parser *p, struct ptx_declaration *d);

/* variables.c */
void ptx_global_variable(struct parser *p, bool constant);
void ptx_shared_variable(struct parser *p, bool external);
/* A variable of a function, as `word` says: .reg, .local, .param; false: it is none of these. */
bool ptx_function_variable(struct parser *p, struct word word);
/* Parameters or results of a function or kernel, in parentheses. With `define`, their names are made known.
 */
void ptx_parameter_list(struct parser *p, struct ptx_function *f, bool define, bool results);

/* statement.c */
void ptx_skip_line(struct parser *p);
/* A body from behind its opening brace to its closing one. */
void ptx_body(struct parser *p, const struct ptx_function *f);

/* function.c */
/* From behind .entry or .func on. */
void ptx_function(struct parser *p, bool entry);
/* A function's body; false: f->status and f->refused say why not. It is refused for good. */
bool ptx_decode_body(struct parser *p, struct ptx_function *f);
/* Up to three dimensions; those that are not given are 1. */
void ptx_dimensions(struct parser *p, uint32_t to[3]);

/* parse.c */
/* 90 for "sm_90a", from behind .target on. */
uint32_t ptx_target(struct parser *p);
/* From behind .section on, to the end of its body. */
void ptx_skip_section(struct parser *p);
/* False: `reading` gave up, and p->status and p->why say why. */
bool ptx_guarded(struct parser *p, void reading(struct parser *p, void *user), void *user);

#endif
