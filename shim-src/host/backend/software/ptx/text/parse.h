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

void ptx_read_attributes(struct parser *p, struct ptx_declaration *d);
/* Refuses an unknown attribute: the code is to run. */
void ptx_read_type(struct parser *p, struct ptx_declaration *d);
/* Reads dimensions, too, or `<count>` of registers. Several names may follow one type. */
void ptx_read_name(struct parser *p, struct ptx_declaration *d);
uint64_t ptx_declared_bytes(const struct ptx_declaration *d);
uint32_t ptx_element_bytes(const struct ptx_declaration *d);
uint64_t ptx_declared_alignment(const struct ptx_declaration *d);
/* After .attribute: (.managed), (.unified(1, 2)). True if .managed is among them. */
bool ptx_attribute(struct parser *p);
void ptx_need_param(struct parser *p);
/* `*end`: bytes of the kernel's block that are used. */
struct ptx_parameter ptx_place_parameter(struct parser *p, const struct ptx_declaration *d, uint32_t *end);

/* A variable, a function, or one byte of its address (0xFF00(name) is byte 1). */
struct ptx_address {
  struct word name;
  int64_t addend;
  uint8_t shift; /* bits */
};
/* Receives values of `bytes` bytes (1 to 8), `at` bytes behind the variable's beginning. */
struct ptx_initial {
  void *user;
  void (*number)(struct parser *p, void *user, uint64_t at, uint64_t bits, uint32_t bytes);
  void (*address)(struct parser *p, void *user, uint64_t at, const struct ptx_address *a, uint32_t bytes);
};
void ptx_initial_values(struct parser *p, uint64_t size, enum ptx_type type, const struct ptx_initial *to);
void ptx_close_dimension(struct parser *p, struct ptx_declaration *d);

void ptx_global_variable(struct parser *p, bool constant);
void ptx_shared_variable(struct parser *p, bool external);
/* These are outside of functions. */
void ptx_texture_variable(struct parser *p);
void ptx_module_local(struct parser *p);
void ptx_module_registers(struct parser *p);
/* Registers outside of functions, for a kernel whose body begins. No function can share them. */
void ptx_own_registers(struct parser *p, const struct ptx_function *f);
/* .reg, .local, .param. False: none of these. */
bool ptx_function_variable(struct parser *p, struct word word);
void ptx_parameter_list(struct parser *p, struct ptx_function *f, bool define, bool results);

void ptx_skip_line(struct parser *p);
void ptx_body(struct parser *p, const struct ptx_function *f);

void ptx_function(struct parser *p, bool entry);
/* False: f->status and f->refused have the reason, and it stays refused. */
bool ptx_decode_body(struct parser *p, struct ptx_function *f);
/* Up to three; missing ones are 1. */
void ptx_dimensions(struct parser *p, uint32_t to[3]);

struct ptx_target {
  uint32_t architecture; /* 90 for "sm_90a" */
  char suffix[2]; /* "a": only this architecture; "f": also later ones of its major number; "": all later */
};

struct ptx_target ptx_target(struct parser *p);
bool ptx_target_fits(struct ptx_target target, uint32_t device);
bool ptx_begins_statement(struct word word);
void ptx_skip_section(struct parser *p);
/* False: `reading` gave up; p->status and p->why have the reason. */
bool ptx_guarded(struct parser *p, void reading(struct parser *p, void *user), void *user);

#endif
