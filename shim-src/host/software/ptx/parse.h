/* What the files of the parser know of each other: each reads one part of a module. */
#ifndef VGPU_PTX_PARSE_H
#define VGPU_PTX_PARSE_H

#include "host/software/ptx/parser.h"

#define MAX_DATA ((uint64_t)256 << 20)

/* declaration.c */
struct ptx_declaration {
  enum ptx_type type;
  uint32_t vector; /* 1, 2, 4 */
  uint64_t alignment;
  struct word name;
  uint64_t count; /* elements; 0: open array */
  bool opaque, range;
  uint32_t range_count;
};

/* Type and attributes, up to the name. */
void ptx_read_type(struct parser *p, struct ptx_declaration *d);
/* The name with its dimensions, or `<count>` of registers. Several may follow one type. */
void ptx_read_name(struct parser *p, struct ptx_declaration *d);
uint64_t ptx_declared_bytes(const struct ptx_declaration *d);
uint64_t ptx_declared_alignment(const struct ptx_declaration *d);

/* initial.c */
/* The values behind a `=`, into the module's data from `at` to `end`. */
void ptx_initial_values(struct parser *p, uint64_t at, uint64_t end, enum ptx_type type);
/* Elements of an initialiser, for arrays whose size is left open. */
uint64_t ptx_count_initial(struct parser *p);

/* variables.c */
void ptx_global_variable(struct parser *p, bool constant);
void ptx_shared_variable(struct parser *p, bool external);
/* A variable of a function, as `word` says: .reg, .local, .param; false: it is none of these. */
bool ptx_function_variable(struct parser *p, struct word word);
/* Parameters of a function or kernel, in parentheses. With `define`, their names are made known. */
void ptx_parameter_list(struct parser *p, struct ptx_function *f, bool define);

/* statement.c */
void ptx_skip_line(struct parser *p);
/* A body from behind its opening brace to its closing one. */
void ptx_body(struct parser *p, const struct ptx_function *f);

/* function.c: from behind .entry or .func on. */
void ptx_function(struct parser *p, bool entry);

#endif
