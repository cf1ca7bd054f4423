#include <stdio.h>
#include <string.h>

#include "host/backend/software/ptx/text/parse.h"

#define MAX_MODULE_SHARED (12u << 20)
#define MAX_EXTENT (15u << 20) /* with those of functions; must be below PTX_RANK_SHIFT */
#define MAX_DATA ((uint64_t)256 << 20)
#define MAX_PARAMETERS 32764u

static void grow_data(struct parser *p, uint64_t end) {
  struct ptx_module *m = p->module;
  if (end > MAX_DATA)
    ptx_fail(p, PTX_UNSUPPORTED, "variables of more than %llu bytes", (unsigned long long)MAX_DATA);
  if (end > m->data_room) {
    uint64_t room = m->data_room == 0 ? 4096 : m->data_room;
    while (room < end) room *= 2;
    unsigned char *larger = ptx_take(p, room);
    if (m->data_bytes > 0) memcpy(larger, m->data, m->data_bytes);
    m->data = larger;
    m->data_room = room;
  }
  if (end > m->data_bytes) m->data_bytes = end;
}

/*
 * Reads the type of a variable in memory. A predicate cannot be in memory, and each name is a single
 * variable.
 */
static void read_memory(struct parser *p, struct ptx_declaration *d) {
  ptx_read_type(p, d);
  if (d->type == T_PRED) ptx_fail(p, PTX_INVALID, "a predicate in memory");
}

static void read_name(struct parser *p, struct ptx_declaration *d) {
  ptx_read_name(p, d);
  if (d->range)
    ptx_fail(p, PTX_UNSUPPORTED, "'%.*s<%u>' in memory", (int)d->name.length, d->name.text, d->range_count);
}

static void put_number(struct parser *p, void *user, uint64_t at, uint64_t bits, uint32_t bytes) {
  const struct symbol *variable = user;
  memcpy(p->module->data + variable->offset + at, &bits, bytes);
}

static void put_address(struct parser *p, void *user, uint64_t at, const struct ptx_address *a,
                        uint32_t bytes) {
  const struct symbol *variable = user, *s = ptx_find(p, a->name);
  struct ptx_module *m = p->module;
  at += variable->offset;
  if (s == NULL) ptx_fail(p, PTX_INVALID, "'%.*s' is not defined", (int)a->name.length, a->name.text);
  if (s->kind == SYM_FUNCTION) {
    uint64_t address = (PTX_FUNCTION_WINDOW + (uint64_t)s->number * 16) >> a->shift;
    memcpy(m->data + at, &address, bytes);
  } else if (s->kind == SYM_GLOBAL) {
    m->relocations =
        ptx_module_room(p, m->relocations, m->relocation_count, &m->relocation_room, sizeof *m->relocations);
    m->relocations[m->relocation_count++] = (struct ptx_data){
        .offset = at, .addend = s->offset + (uint64_t)a->addend, .bytes = (uint8_t)bytes, .shift = a->shift};
  } else {
    ptx_fail(p, PTX_UNSUPPORTED, "the address of '%.*s' as an initial value", (int)a->name.length,
             a->name.text);
  }
}

/* Defines a texture or surface reference, whose 8 bytes hold the bound object. */
static void reference(struct parser *p, const struct ptx_declaration *d) {
  struct ptx_module *m = p->module;
  const struct symbol *known = ptx_find(p, d->name);
  if (known != NULL && known->kind == SYM_OPAQUE && known->scope == p->scope) return;
  struct symbol *s = ptx_define(p, d->name, SYM_OPAQUE);
  s->offset = (m->data_bytes + 7) / 8 * 8;
  s->size = 8;
  grow_data(p, s->offset + 8);
  m->globals = ptx_module_room(p, m->globals, m->global_count, &m->global_room, sizeof *m->globals);
  m->globals[m->global_count++] =
      (struct ptx_global_info){.name = ptx_intern(p, d->name),
                               .offset = s->offset,
                               .size = 8,
                               .reference = d->surface ? PTX_SURFACE_REFERENCE : PTX_TEXTURE_REFERENCE};
}

void ptx_global_variable(struct parser *p, bool constant) {
  struct ptx_declaration d;
  read_memory(p, &d);
  struct ptx_module *m = p->module;
  do {
    read_name(p, &d);
    bool initialised = ptx_accept(p, '=');
    if (d.opaque) {
      reference(p, &d);
      while (p->at < p->end && *p->at != ';') p->at++;
      break;
    }
    if (d.open && initialised) ptx_close_dimension(p, &d);
    uint64_t alignment = ptx_declared_alignment(&d), size = ptx_declared_bytes(&d);
    struct symbol *s = ptx_find(p, d.name);
    if (s == NULL || s->kind != SYM_GLOBAL || s->scope != p->scope) {
      s = ptx_define(p, d.name, SYM_GLOBAL);
      s->constant = constant;
      s->count = ptx_element_bytes(&d);
      s->number = m->global_count;
      s->offset = (m->data_bytes + alignment - 1) / alignment * alignment;
      s->size = size;
      grow_data(p, s->offset + size);
      m->globals = ptx_module_room(p, m->globals, m->global_count, &m->global_room, sizeof *m->globals);
      m->globals[m->global_count++] = (struct ptx_global_info){
          .name = ptx_intern(p, d.name), .offset = s->offset, .size = size, .managed = d.managed};
    } else if (size > s->size) {
      ptx_fail(p, PTX_INVALID, "'%.*s' is declared twice with different sizes", (int)d.name.length,
               d.name.text);
    }
    struct ptx_initial to = {s, put_number, put_address};
    if (initialised) ptx_initial_values(p, s->size, d.type, &to);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

/* .tex .u64 t; is .global .texref t; before PTX 1.5. */
void ptx_texture_variable(struct parser *p) {
  struct ptx_declaration d;
  ptx_read_type(p, &d);
  if (d.type != T_U32 && d.type != T_U64)
    ptx_fail(p, PTX_INVALID, "a .tex variable that is not .u32 or .u64");
  do {
    read_name(p, &d);
    if (d.count != 1 || d.open) ptx_fail(p, PTX_INVALID, "an array of .tex variables");
    reference(p, &d);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

void ptx_shared_variable(struct parser *p, bool external) {
  struct ptx_declaration d;
  read_memory(p, &d);
  do {
    read_name(p, &d);
    if (external || d.open || d.count == 0) {
      if (ptx_find(p, d.name) == NULL)
        ptx_define(p, d.name, SYM_SHARED_EXTERN)->size = ptx_declared_alignment(&d);
      ptx_find(p, d.name)->count = ptx_element_bytes(&d);
      continue;
    }
    uint64_t alignment = ptx_declared_alignment(&d), size = ptx_declared_bytes(&d);
    uint64_t from = p->function == NULL ? p->module_shared : p->shared_bytes;
    from = (from + alignment - 1) / alignment * alignment;
    if (size > MAX_SHARED ||
        from + size > (p->function == NULL ? MAX_MODULE_SHARED : MAX_SHARED + p->shared_base) ||
        from + size > MAX_EXTENT) {
      ptx_fail(p, PTX_UNSUPPORTED, "shared variables of more than %d bytes", MAX_SHARED);
    }
    struct symbol *s = ptx_define(p, d.name, SYM_SHARED);
    s->count = ptx_element_bytes(&d);
    s->offset = from;
    s->size = size;
    if (p->function == NULL) p->module_shared = (uint32_t)(from + size);
    else p->shared_bytes = (uint32_t)(from + size);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

/* Reads .local variables. *end bytes lie before them. */
static void local_variables(struct parser *p, uint32_t *end) {
  struct ptx_declaration d;
  read_memory(p, &d);
  do {
    read_name(p, &d);
    if (d.open) ptx_fail(p, PTX_INVALID, "'%.*s' has no size", (int)d.name.length, d.name.text);
    uint64_t alignment = ptx_declared_alignment(&d), size = ptx_declared_bytes(&d);
    uint64_t from = (*end + alignment - 1) / alignment * alignment;
    if (from + size > PTX_LOCAL_MOST)
      ptx_fail(p, PTX_UNSUPPORTED, "more than 512 KiB of local memory a thread");
    struct symbol *s = ptx_define(p, d.name, SYM_LOCAL);
    s->count = ptx_element_bytes(&d);
    s->offset = from;
    s->size = size;
    *end = (uint32_t)(from + size);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

/* Each thread has one, shared by all functions, where the kernel's frame begins. */
void ptx_module_local(struct parser *p) {
  for (uint32_t i = 0; i < p->module->function_count; i++) {
    if (p->module->functions[i]->defined)
      ptx_fail(p, PTX_UNSUPPORTED, "'.local' in a module, behind a function");
  }
  local_variables(p, &p->module_local);
}

static struct word numbered(struct parser *p, struct word base, uint32_t number) {
  size_t room = base.length + 11;
  char *text = ptx_scratch(p, room);
  return (struct word){text, (uint32_t)snprintf(text, room, "%.*s%u", (int)base.length, base.text, number)};
}

/* Defines consecutive registers under one name: .v2, .v4, and .b128, which is two registers of 64 bits. */
static struct symbol *vector_register(struct parser *p, const struct ptx_declaration *d) {
  bool wide = d->type == T_B128;
  struct symbol *s = ptx_define(p, d->name, SYM_VECTOR);
  s->type = (uint8_t)d->type;
  s->number = p->register_count;
  s->count = wide ? 2 : d->vector;
  uint32_t bytes = wide ? 8 : ptx_type_bytes(d->type);
  for (uint32_t i = 0; i < s->count; i++) ptx_new_register(p, (uint8_t)(bytes == 1 ? 2 : bytes));
  return s;
}

static struct symbol *plain_registers(struct parser *p, const struct ptx_declaration *d) {
  uint32_t bytes = ptx_type_bytes(d->type), count = d->range ? d->range_count : 1;
  if (p->register_count + count > MAX_REGISTERS) {
    ptx_fail(p, PTX_UNSUPPORTED, "more than %d registers in a function", MAX_REGISTERS);
  }
  struct symbol *s = ptx_define(p, d->name, d->range ? SYM_REGISTERS : SYM_REGISTER);
  s->type = (uint8_t)d->type;
  s->number = p->register_count;
  s->count = count;
  for (uint32_t i = 0; i < count; i++) ptx_new_register(p, (uint8_t)(bytes == 1 ? 2 : bytes));
  return s;
}

static void read_register_type(struct parser *p, struct ptx_declaration *d) {
  ptx_read_type(p, d);
  if (d->vector != 1 && (d->type == T_PRED || d->type == T_B128))
    ptx_fail(p, PTX_INVALID, "a vector of registers of this type");
}

static void registers(struct parser *p) {
  struct ptx_declaration d;
  read_register_type(p, &d);
  do {
    ptx_read_name(p, &d);
    if (d.vector != 1 || d.type == T_B128) {
      struct word base = d.name;
      for (uint32_t i = 0; i < (d.range ? d.range_count : 1); i++) {
        if (d.range) d.name = numbered(p, base, i);
        vector_register(p, &d);
      }
    } else plain_registers(p, &d);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

void ptx_module_registers(struct parser *p) {
  if (p->module_register_count == MAX_MODULE_REGISTERS)
    ptx_fail(p, PTX_UNSUPPORTED, "more than %d declarations of registers in a module", MAX_MODULE_REGISTERS);
  p->module_registers[p->module_register_count++] = (struct ptx_source){p->at, p->line};
  while (p->at < p->end && *p->at != ';') p->line += *p->at++ == '\n';
  ptx_expect(p, ';');
}

void ptx_own_registers(struct parser *p, const struct ptx_function *f) {
  if (p->module_register_count > 0 && !f->entry)
    ptx_fail(p, PTX_UNSUPPORTED, "a function in a module that has registers outside of functions");
  for (uint32_t i = 0; i < p->module_register_count; i++) {
    p->at = p->module_registers[i].at;
    p->line = p->module_registers[i].line;
    registers(p);
  }
}

uint32_t ptx_frame_room(struct parser *p, uint64_t *size) {
  if (*size > MAX_PARAMETERS)
    ptx_fail(p, PTX_UNSUPPORTED, "a parameter of %llu bytes", (unsigned long long)*size);
  *size = (*size + PTX_SLOT - 1) / PTX_SLOT * PTX_SLOT;
  if (p->frame_params + *size * PTX_LANES > (16u << 20))
    ptx_fail(p, PTX_UNSUPPORTED, "too many parameters in a function");
  uint32_t offset = p->frame_params;
  p->frame_params += (uint32_t)(*size * PTX_LANES);
  return offset;
}

static struct symbol *frame_parameter(struct parser *p, const struct ptx_declaration *d) {
  uint64_t size = ptx_declared_bytes(d);
  uint32_t offset = ptx_frame_room(p, &size);
  struct symbol *s = ptx_define(p, d->name, SYM_PARAM);
  s->type = (uint8_t)d->type;
  s->offset = offset;
  s->size = size;
  return s;
}

/* .param .b64 %P<2>: %P0 and %P1, as GCC writes a call's parameters. */
static void numbered_parameters(struct parser *p, struct ptx_declaration *d) {
  struct word base = d->name;
  for (uint32_t i = 0; i < d->range_count; i++) {
    d->name = numbered(p, base, i);
    frame_parameter(p, d);
  }
}

static void parameter_variable(struct parser *p) {
  struct ptx_declaration d;
  read_memory(p, &d);
  do {
    ptx_read_name(p, &d);
    if (d.range) numbered_parameters(p, &d);
    else frame_parameter(p, &d);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

bool ptx_function_variable(struct parser *p, struct word word) {
  if (ptx_word_is(word, ".reg")) registers(p);
  else if (ptx_word_is(word, ".local")) local_variables(p, &p->local_bytes);
  else if (ptx_word_is(word, ".param")) parameter_variable(p);
  else return false;
  return true;
}

/* A predicate has no bytes, but takes a place. */
static uint64_t declared_room(const struct ptx_declaration *d) {
  return d->type == T_PRED ? 4 : ptx_declared_bytes(d);
}

/*
 * Defines a parameter of a function that is a register, or a vector of registers. It is passed like a .param:
 * an input is loaded where the function begins, a result is stored where it returns (ptx_store_results).
 */
static struct passed register_parameter(struct parser *p, const struct ptx_declaration *d, bool result) {
  bool vector = d->vector != 1 || d->type == T_B128;
  const struct symbol *r = vector ? vector_register(p, d) : plain_registers(p, d);
  uint64_t size = declared_room(d);
  uint32_t offset = ptx_frame_room(p, &size);
  const struct ptx_held held = {r->number << 2 | REF_FRAME, p->registers[r->number], (uint8_t)r->count};
  if (!result) {
    ptx_move_parameter(p, K_LOAD_PARAM, held, offset, (uint32_t)size);
  } else if (p->returned_count == MAX_RETURNED) {
    ptx_fail(p, PTX_UNSUPPORTED, "more than %d results in registers", MAX_RETURNED);
  } else {
    p->returned[p->returned_count].held = held;
    p->returned[p->returned_count++].offset = offset;
  }
  return (struct passed){offset, (uint32_t)size};
}

static struct passed memory_parameter(struct parser *p, const struct ptx_declaration *d, bool result) {
  struct symbol *s = frame_parameter(p, d);
  s->constant = !result;
  return (struct passed){(uint32_t)s->offset, (uint32_t)s->size};
}

/* Reads ".param" or, for a function, ".reg". True: it is a register. */
static bool parameter_space(struct parser *p, const struct ptx_function *f) {
  const char *before = p->at;
  struct word space = ptx_need_word(p, ".param");
  if (!f->entry && ptx_word_is(space, ".reg")) return true;
  p->at = before;
  ptx_need_param(p);
  return false;
}

void ptx_parameter_list(struct parser *p, struct ptx_function *f, bool define, bool results) {
  struct ptx_parameter *list = NULL;
  uint32_t room = 0, count = 0;
  uint32_t *place = NULL, place_room = 0;
  if (f->parameter_count > 0) {
    /* the return values, read before */
    for (count = 0; count < f->parameter_count; count++) {
      list = ptx_room(p, list, count, &room, sizeof *list);
      list[count] = f->parameters[count];
      place = ptx_room(p, place, count, &place_room, sizeof *place);
      place[count] = f->parameter_place[count];
    }
  }
  if (!ptx_accept(p, ')')) {
    do {
      bool in_register = parameter_space(p, f);
      struct ptx_declaration d;
      if (in_register) read_register_type(p, &d);
      else read_memory(p, &d);
      read_name(p, &d);
      list = ptx_room(p, list, count, &room, sizeof *list);
      place = ptx_room(p, place, count, &place_room, sizeof *place);
      uint64_t size = declared_room(&d);
      if (f->entry) {
        list[count] = ptx_place_parameter(p, &d, &f->parameter_bytes);
        place[count] = 0;
        if (define) {
          struct symbol *s = ptx_define(p, d.name, SYM_KERNEL_PARAM);
          s->offset = list[count].offset;
          s->size = size;
        }
      } else if (define) {
        struct passed at =
            in_register ? register_parameter(p, &d, results) : memory_parameter(p, &d, results);
        list[count] = (struct ptx_parameter){0, at.size};
        place[count] = at.offset;
      } else {
        if (size > MAX_PARAMETERS)
          ptx_fail(p, PTX_UNSUPPORTED, "a parameter of %llu bytes", (unsigned long long)size);
        list[count] = (struct ptx_parameter){0, (uint32_t)((size + PTX_SLOT - 1) / PTX_SLOT * PTX_SLOT)};
        place[count] = 0;
      }
      count++;
    } while (ptx_accept(p, ','));
    ptx_expect(p, ')');
  }
  f->parameters = ptx_take(p, count * sizeof *list);
  f->parameter_place = ptx_take(p, count * sizeof *place);
  for (uint32_t i = 0; i < count; i++) {
    f->parameters[i] = list[i];
    f->parameter_place[i] = place[i];
  }
  f->parameter_count = count;
}
