/*
 * Reads declarations in PTX text: kernels and variables. Bodies are searched only for shared and local
 * memory, so text that this device cannot run is read, too. The parser's own code decides the offset of a
 * parameter.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/code/program.h"
#include "host/backend/software/ptx/text/parse.h"

#define MOST_REGISTERS 255

#define MODULE_SHARED_MAX 256u

struct module_shared {
  struct word name;
  uint64_t size;
};

struct reader {
  const struct vgpu_program_target *target;
  struct vgpu_program *program;
  struct vgpu_program_function kernel; /* the kernel that is being read */
  struct ptx_target ptx;               /* what the text is for */
  bool version;
  uint64_t constant_bytes;
  struct module_shared shared[MODULE_SHARED_MAX];
  uint32_t shared_count;
};

static _Noreturn void no_memory(struct parser *p) {
  ptx_fail(p, PTX_OUT_OF_MEMORY, "no memory");
}

static void read_type(struct parser *p, struct ptx_declaration *d) {
  ptx_read_attributes(p, d);
  if (d->type == T_PRED) ptx_fail(p, PTX_INVALID, "a predicate in memory");
}

static void parameters(struct parser *p, struct vgpu_program_function *kernel) {
  if (ptx_accept(p, ')')) return;
  do {
    struct ptx_declaration d;
    ptx_need_param(p);
    read_type(p, &d);
    ptx_read_name(p, &d);
    struct ptx_parameter place = ptx_place_parameter(p, &d, &kernel->parameter_bytes);
    uint32_t count = kernel->parameter_count;
    if (count == VGPU_PARAMETERS_MAX) ptx_fail(p, PTX_INVALID, "more parameters than a kernel may have");
    struct vgpu_parameter *array = realloc(kernel->parameters, (count + 1) * sizeof *array);
    if (array == NULL) no_memory(p);
    array[count] = (struct vgpu_parameter){.offset = place.offset, .size = place.size};
    kernel->parameters = array;
    kernel->parameter_count = count + 1;
  } while (ptx_accept(p, ','));
  ptx_expect(p, ')');
}

static int32_t threads(struct parser *p) {
  uint32_t sizes[3];
  ptx_dimensions(p, sizes);
  uint64_t all = 1;
  for (int i = 0; i < 3; i++) {
    if (sizes[i] == 0 || sizes[i] > 65536) ptx_fail(p, PTX_INVALID, "a thread count of %u", sizes[i]);
    all *= sizes[i]; /* 48 bits at most */
  }
  return all > 1u << 20 ? 1 << 20 : (int32_t)all;
}

static void skip_arguments(struct parser *p) {
  for (ptx_skip(p); p->at < p->end && *p->at != '.' && *p->at != '{' && *p->at != ';'; ptx_skip(p)) p->at++;
}

static void directives(struct parser *p, int32_t *attributes) {
  struct word word;
  while (ptx_directive(p, &word)) {
    if (ptx_word_is(word, ".maxntid") || ptx_word_is(word, ".reqntid")) {
      int32_t most = threads(p);
      if (most < attributes[VGPU_FUNCTION_MAX_THREADS]) attributes[VGPU_FUNCTION_MAX_THREADS] = most;
    } else if (ptx_word_is(word, ".maxnreg")) {
      int64_t most = ptx_integer(p);
      if (most <= 0) ptx_fail(p, PTX_INVALID, "a register count of %lld", (long long)most);
      /* ptxas ignores a count that no GPU has. */
      if (most < attributes[VGPU_FUNCTION_REGISTERS]) attributes[VGPU_FUNCTION_REGISTERS] = (int32_t)most;
    } else if (ptx_word_is(word, ".explicitcluster")) {
      attributes[VGPU_FUNCTION_CLUSTER_MUST] = 1;
    } else if (ptx_word_is(word, ".reqnctapercluster")) {
      uint32_t sizes[3];
      ptx_dimensions(p, sizes);
      for (int i = 0; i < 3; i++) {
        if (sizes[i] > 64) ptx_fail(p, PTX_INVALID, "a cluster of %u", sizes[i]);
        attributes[VGPU_FUNCTION_CLUSTER_WIDTH + i] = (int32_t)sizes[i];
      }
    } else if (ptx_word_is(word, ".pragma")) {
      ptx_string(p);
      ptx_expect(p, ';');
    } else {
      skip_arguments(p);
    }
  }
}

static int32_t bounded(uint64_t value) {
  return value > INT32_MAX ? INT32_MAX : (int32_t)value;
}

/*
 * Returns `used` with a variable after it. The sum stops at a value that no device has, because it could
 * overflow otherwise.
 */
static uint64_t placed(uint64_t used, const struct ptx_declaration *d) {
  uint64_t alignment = ptx_declared_alignment(d);
  uint64_t bytes = ptx_declared_bytes(d), whole = (bytes + alignment - 1) / alignment * alignment;
  uint64_t end = (used + alignment - 1) / alignment * alignment + bytes;
  if (d->range && d->range_count > 1) end += (d->range_count - 1) * whole; /* x<4>: four of them */
  return end > (uint64_t)1 << 48 ? (uint64_t)1 << 48 : end;
}

/* Returns the bytes that a body's variables take, from after .shared or .local on. */
static uint64_t body_variables(struct parser *p, uint64_t used) {
  struct ptx_declaration d;
  read_type(p, &d);
  do {
    ptx_read_name(p, &d);
    used = placed(used, &d);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
  return used;
}

/* Most of a module's text is instructions whose words do not matter here. */
static void skip_instruction(struct parser *p) {
  const char *at = p->at;
  for (; at < p->end; at++) {
    char c = *at;
    if (c == ';' || c == '{' || c == '}' || c == ':' || c == '"' || c == '/' || c == '\n') break;
  }
  p->at = at;
}

/*
 * Returns the number of 32-bit registers that a statement after .reg declares. Lenient, because it also reads
 * text that this device cannot run.
 */
static uint64_t declared_registers(struct parser *p) {
  uint64_t width = 1, lanes = 1, sum = 0;
  for (ptx_skip(p); p->at < p->end && *p->at != ';'; ptx_skip(p)) {
    struct word word = ptx_word(p);
    if (word.length > 0 && *word.text != '.') {
      sum += width * lanes;
    } else if (word.length == 3 && word.text[1] == 'v') {
      lanes = word.text[2] == '4' ? 4 : 2;
    } else if (word.length > 0) {
      width = ptx_word_is(word, ".pred")                          ? 0
              : ptx_word_is(word, ".b128")                        ? 4
              : memcmp(word.text + word.length - 2, "64", 2) == 0 ? 2
                                                                  : 1;
    } else if (*p->at++ == '<') { /* x<4>: four of them */
      uint64_t count = 0;
      for (ptx_skip(p); p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        if (count < 1u << 20) count = count * 10 + (uint64_t)(*p->at - '0');
      if (count > 0) sum += (count - 1) * width * lanes;
    }
  }
  return sum;
}

/*
 * A GPU's compiler decides the number. PTX declares a register for nearly each result; ptxas of CUDA 13
 * needed about 4 + 1.6 * sqrt(declared) for 187 kernels of nvcc and Triton (28 % off on average).
 */
static int32_t likely_registers(uint64_t declared) {
  uint64_t root = 0;
  while (root < MOST_REGISTERS && (root + 1) * (root + 1) <= declared) root++;
  const uint64_t likely = 4 + root * 8 / 5;
  return likely < 8 ? 8 : likely > MOST_REGISTERS ? MOST_REGISTERS : (int32_t)likely;
}

/*
 * Reads a body: the registers, shared and local memory that it declares, and the module's shared variables
 * that it names.
 */
static void body(struct parser *p, const struct reader *reader, int32_t *attributes) {
  uint64_t shared = 0, local = 0, declared = 0;
  bool named[MODULE_SHARED_MAX] = {false};
  uint32_t depth = 0;
  bool begins = false; /* a statement may begin here */
  do {
    ptx_skip(p);
    if (p->at >= p->end) ptx_fail(p, PTX_INVALID, "the text ends inside a body");
    char first = *p->at;
    struct word word = ptx_word(p);
    if (first == '"') {
      ptx_string(p);
    } else if (begins && first == '@' && p->end - p->at > 1 && p->at[1] == '@') {
      ptx_skip_line(p);
    } else if (word.length == 0) {
      p->at++;
      if (first == '{') depth++;
      else if (first == '}') depth--;
      begins = first == '{' || first == '}' || first == ';' || first == ':';
    } else if (begins && ptx_word_is(word, ".shared")) {
      shared = body_variables(p, shared);
    } else if (begins && ptx_word_is(word, ".local")) {
      local = body_variables(p, local);
    } else if (begins && ptx_word_is(word, ".reg")) {
      declared += declared_registers(p);
    } else if (begins && ptx_word_is(word, ".loc")) {
      ptx_skip_line(p);
    } else {
      begins = false;
      for (uint32_t i = 0; i < reader->shared_count; i++) {
        struct word name = reader->shared[i].name;
        if (name.length == word.length && memcmp(name.text, word.text, word.length) == 0) named[i] = true;
      }
      if (reader->shared_count == 0) skip_instruction(p);
    }
  } while (depth > 0);
  for (uint32_t i = 0; i < reader->shared_count; i++) {
    if (named[i]) shared = ((shared + 15) & ~15ull) + reader->shared[i].size;
  }
  attributes[VGPU_FUNCTION_SHARED] = bounded(shared);
  attributes[VGPU_FUNCTION_LOCAL] = bounded(local);
  const int32_t registers = likely_registers(declared);
  if (registers < attributes[VGPU_FUNCTION_REGISTERS]) attributes[VGPU_FUNCTION_REGISTERS] = registers;
}

static void entry(struct parser *p, struct reader *reader) {
  struct vgpu_program_function *kernel = &reader->kernel;
  struct word name = ptx_need_name(p, "a kernel's name");
  kernel->attributes[VGPU_FUNCTION_MAX_THREADS] = reader->target->max_threads;
  kernel->attributes[VGPU_FUNCTION_REGISTERS] = MOST_REGISTERS;
  if (ptx_accept(p, '(')) parameters(p, kernel);
  directives(p, kernel->attributes);
  if (ptx_accept(p, ';')) { /* only a declaration */
    free(kernel->parameters);
  } else {
    ptx_expect(p, '{');
    p->at--;
    body(p, reader, kernel->attributes);
    struct vgpu_program_function *function =
        vgpu_program_add_function(reader->program, name.text, name.length);
    if (function == NULL) no_memory(p);
    kernel->name = function->name;
    *function = *kernel;
  }
  *kernel = (struct vgpu_program_function){0};
}

static void skip_parentheses(struct parser *p) {
  for (uint32_t depth = 1; depth > 0; p->at++) {
    ptx_skip(p);
    if (p->at >= p->end) ptx_fail(p, PTX_INVALID, "the text ends in parentheses");
    depth += (uint32_t)(*p->at == '(') - (uint32_t)(*p->at == ')');
  }
}

/* Device functions are not needed here. */
static void skip_function(struct parser *p, const struct reader *reader) {
  for (;;) {
    ptx_skip(p);
    if (p->at >= p->end || *p->at == '{' || *p->at == ';' || *p->at == '@') break;
    const char *before = p->at;
    struct word word = ptx_word(p);
    if (ptx_begins_statement(word)) { /* a prototype without a semicolon */
      p->at = before;
      return;
    }
    if (word.length > 0) continue;
    if (ptx_accept(p, '(')) {
      skip_parentheses(p);
    } else if (*p->at == '"') { /* .pragma "..."; of a function, before its body */
      ptx_string(p);
      ptx_accept(p, ';');
    } else {
      p->at++;
    }
  }
  if (p->at >= p->end || *p->at != '{') {
    ptx_accept(p, ';');
    return;
  }
  int32_t nobodys[VGPU_FUNCTION_ATTRIBUTES] = {0};
  body(p, reader, nobodys);
}

static void put_number(struct parser *p, void *user, uint64_t at, uint64_t bits, uint32_t bytes) {
  (void)p;
  memcpy((unsigned char *)user + at, &bits, bytes);
}

/* Reads the initial value of a variable. Addresses in it are left zero. */
static void initial_values(struct parser *p, const struct reader *reader, struct vgpu_program_global *global,
                           enum ptx_type type) {
  struct vgpu_program *program = reader->program;
  uint64_t limit = reader->target->memory_limit;
  if (program->bytes > limit || global->size > limit - program->bytes) no_memory(p);
  global->initial = calloc(1, global->size == 0 ? 1 : global->size);
  if (global->initial == NULL) no_memory(p);
  program->bytes += global->size;
  struct ptx_initial to = {.user = global->initial, .number = put_number};
  ptx_initial_values(p, global->size, type, &to);
}

static void skip_statement(struct parser *p) {
  for (ptx_skip(p); p->at < p->end && *p->at != ';'; ptx_skip(p)) p->at++;
  ptx_expect(p, ';');
}

static void variables(struct parser *p, struct reader *reader, bool is_external, bool is_constant) {
  struct ptx_declaration d;
  read_type(p, &d);
  do {
    ptx_read_name(p, &d);
    bool initialised = ptx_accept(p, '=');
    if (initialised && d.open && !d.opaque) ptx_close_dimension(p, &d);
    if (is_constant) reader->constant_bytes = placed(reader->constant_bytes, &d);
    struct vgpu_program_global nobodys = {.size = ptx_declared_bytes(&d)}, *global = &nobodys;
    /* A program cannot request the address of a texture or surface. */
    if (!is_external && !d.opaque) {
      global = vgpu_program_add_global(reader->program, d.name.text, d.name.length);
      if (global == NULL) no_memory(p);
      global->size = ptx_declared_bytes(&d);
      global->constant = is_constant;
    }
    if (d.opaque) { /* the initial value of a sampler has a syntax of its own */
      skip_statement(p);
      return;
    }
    if (initialised && is_external) ptx_fail(p, PTX_INVALID, "an initial value of an external variable");
    if (initialised) initial_values(p, reader, global, d.type);
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

static void module_shared(struct parser *p, struct reader *reader) {
  struct ptx_declaration d;
  read_type(p, &d);
  do {
    ptx_read_name(p, &d);
    if (!d.open && reader->shared_count < MODULE_SHARED_MAX) {
      reader->shared[reader->shared_count++] =
          (struct module_shared){.name = d.name, .size = ptx_declared_bytes(&d)};
    }
  } while (ptx_accept(p, ','));
  ptx_expect(p, ';');
}

static void statement(struct parser *p, struct reader *reader) {
  struct word word = ptx_need_word(p, "a directive");
  bool is_external = false;
  while (ptx_word_is(word, ".visible") || ptx_word_is(word, ".extern") || ptx_word_is(word, ".weak") ||
         ptx_word_is(word, ".common")) {
    is_external |= ptx_word_is(word, ".extern");
    word = ptx_need_word(p, "a directive");
  }
  if (ptx_word_is(word, ".version")) {
    struct operand number = {0}; /* any version: none changes how variables are declared */
    reader->version = ptx_literal(p, &number);
    if (!reader->version) ptx_fail(p, PTX_INVALID, "a .version that is no number");
    return;
  }
  if (!reader->version) ptx_fail(p, PTX_INVALID, "no .version at the beginning");
  if (ptx_word_is(word, ".target")) reader->ptx = ptx_target(p);
  else if (ptx_word_is(word, ".address_size")) ptx_integer(p);
  else if (ptx_word_is(word, ".entry")) entry(p, reader);
  else if (ptx_word_is(word, ".func")) skip_function(p, reader);
  else if (ptx_word_is(word, ".global")) variables(p, reader, is_external, false);
  else if (ptx_word_is(word, ".const")) variables(p, reader, is_external, true);
  else if (ptx_word_is(word, ".shared")) module_shared(p, reader);
  else if (ptx_word_is(word, ".section")) ptx_skip_section(p);
  else if (ptx_word_is(word, ".file") || ptx_word_is(word, ".loc")) ptx_skip_line(p);
  else if (ptx_word_is(word, ".pragma")) {
    ptx_string(p);
    ptx_expect(p, ';');
  } else if (ptx_word_is(word, ".alias") || ptx_word_is(word, ".tex") || ptx_word_is(word, ".local") ||
             ptx_word_is(word, ".reg")) {
    skip_statement(p);
  } else ptx_fail(p, PTX_INVALID, "a statement that is not PTX at '%.*s'", (int)word.length, word.text);
}

static void text(struct parser *p, void *user) {
  struct reader *reader = user;
  for (ptx_skip(p); p->at < p->end; ptx_skip(p)) {
    if (*p->at == '@') ptx_skip_line(p);
    else if (!ptx_accept(p, ';')) statement(p, reader);
  }
  if (!reader->version) ptx_fail(p, PTX_INVALID, "no .version at the beginning");
}

static void complete(const struct reader *reader) {
  struct vgpu_program *program = reader->program;
  for (size_t i = 0; i < program->function_count; i++) {
    int32_t *attributes = program->functions[i].attributes;
    attributes[VGPU_FUNCTION_CONSTANT] = bounded(reader->constant_bytes);
    attributes[VGPU_FUNCTION_PTX_VERSION] = (int32_t)reader->ptx.architecture;
    attributes[VGPU_FUNCTION_BINARY_VERSION] = (int32_t)reader->target->architecture;
    attributes[VGPU_FUNCTION_CARVEOUT] = -1;
    attributes[VGPU_FUNCTION_MAX_DYNAMIC] = reader->target->shared_block - attributes[VGPU_FUNCTION_SHARED];
    if (attributes[VGPU_FUNCTION_MAX_DYNAMIC] < 0) attributes[VGPU_FUNCTION_MAX_DYNAMIC] = 0;
    /* The number of registers must leave room for the largest block that the kernel allows. */
    while (attributes[VGPU_FUNCTION_REGISTERS] > 16 &&
           (int64_t)attributes[VGPU_FUNCTION_REGISTERS] * attributes[VGPU_FUNCTION_MAX_THREADS] >
               reader->target->registers_block) {
      attributes[VGPU_FUNCTION_REGISTERS] -= 8;
    }
  }
}

static int32_t outcome(const struct parser *p, const struct reader *reader, bool sound, char *why,
                       size_t why_size) {
  if (!sound) {
    snprintf(why, why_size, "ptxas application ptx input, line %u; error : %s", p->line, p->why);
    return p->status == PTX_OUT_OF_MEMORY ? VGPU_PROGRAM_NO_MEMORY : VGPU_PROGRAM_INVALID_PTX;
  }
  uint32_t architecture = reader->target->architecture;
  if (!ptx_target_fits(reader->ptx, architecture)) {
    snprintf(why, why_size, "the PTX is for sm_%u%s, the device is %u.%u", reader->ptx.architecture,
             reader->ptx.suffix, architecture / 10, architecture % 10);
    return VGPU_PROGRAM_NO_BINARY;
  }
  complete(reader);
  return VGPU_PROGRAM_OK;
}

int32_t vgpu_ptx_read(const char *text_bytes, uint64_t size, const struct vgpu_program_target *target,
                      struct vgpu_program *program, char *why, size_t why_size) {
  struct parser *p = calloc(1, sizeof *p);
  if (p == NULL) return VGPU_PROGRAM_NO_MEMORY;
  p->start = p->at = text_bytes;
  p->end = text_bytes + size;
  p->line = 1;
  struct reader reader = {.target = target, .program = program};
  bool sound = ptx_guarded(p, text, &reader);
  free(reader.kernel.parameters);
  int32_t result = outcome(p, &reader, sound, why, why_size);
  free(p);
  return result;
}
