/*
 * What PTX text declares: kernels with their parameters, and variables. Bodies are only looked through for
 * shared and local memory, so text that this device could not run is read all the same.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/software/program.h"

/* A kernel's registers are known only once it is compiled for a GPU: told is what compilers aim for. */
#define LIKELY_REGISTERS 32

#define MODULE_SHARED_MAX 256u

struct module_shared {
  const char *name;
  size_t length;
  uint64_t size;
};

struct reader {
  const char *at;
  const char *end;
  uint32_t line;
  const char *token;
  size_t length; /* 0: the end */
  const struct vgpu_program_target *target;
  struct vgpu_program *program;
  uint32_t architecture; /* of .target */
  bool version;
  uint64_t constant_bytes;
  struct module_shared shared[MODULE_SHARED_MAX];
  uint32_t shared_count;
  const char *wrong;
};

static bool word_byte(char byte) {
  return isalnum((unsigned char)byte) || byte == '_' || byte == '$' || byte == '.' || byte == '%';
}

static void skip_blank(struct reader *reader) {
  while (reader->at < reader->end) {
    const char *at = reader->at;
    size_t left = (size_t)(reader->end - at);
    if (*at == '\n') reader->line++;
    if (isspace((unsigned char)*at)) {
      reader->at++;
    } else if (left >= 2 && at[0] == '/' && at[1] == '/') {
      const char *stop = memchr(at, '\n', left);
      reader->at = stop == NULL ? reader->end : stop;
    } else if (left >= 2 && at[0] == '/' && at[1] == '*') {
      const char *stop = at + 2;
      while (stop + 1 < reader->end && !(stop[0] == '*' && stop[1] == '/')) {
        if (*stop == '\n') reader->line++;
        stop++;
      }
      reader->at = stop + 1 < reader->end ? stop + 2 : reader->end;
    } else {
      return;
    }
  }
}

/* The next token: a word (names, directives, numbers), a string, or a single character. */
static void next(struct reader *reader) {
  skip_blank(reader);
  const char *start = reader->at;
  if (reader->at < reader->end) {
    if (word_byte(*start)) {
      while (reader->at < reader->end && word_byte(*reader->at)) reader->at++;
    } else if (*start == '"') {
      reader->at++;
      while (reader->at < reader->end && *reader->at != '"' && *reader->at != '\n') reader->at++;
      if (reader->at < reader->end) reader->at++;
    } else {
      reader->at++;
    }
  }
  reader->token = start;
  reader->length = (size_t)(reader->at - start);
}

static bool is(const struct reader *reader, const char *text) {
  return strlen(text) == reader->length && memcmp(reader->token, text, reader->length) == 0;
}

static bool take(struct reader *reader, const char *text) {
  if (!is(reader, text)) return false;
  next(reader);
  return true;
}

static bool wrong(struct reader *reader, const char *text) {
  if (reader->wrong == NULL) reader->wrong = text;
  return false;
}

static bool expect(struct reader *reader, const char *text, const char *complaint) {
  return take(reader, text) || wrong(reader, complaint);
}

/* A number that stands here: decimal, 0x, 0b, octal; 0f and 0d give the bits. */
static bool number(struct reader *reader, uint64_t *value) {
  char text[40];
  if (reader->length == 0 || reader->length >= sizeof text || !isdigit((unsigned char)reader->token[0])) {
    return false;
  }
  memcpy(text, reader->token, reader->length);
  text[reader->length] = '\0';
  char *end = text;
  if (text[0] == '0' && (text[1] == 'f' || text[1] == 'F' || text[1] == 'd' || text[1] == 'D')) {
    *value = strtoull(text + 2, &end, 16);
  } else if (text[0] == '0' && (text[1] == 'b' || text[1] == 'B')) {
    *value = strtoull(text + 2, &end, 2);
  } else {
    *value = strtoull(text, &end, 0);
  }
  if (*end == 'U') end++;
  if (*end != '\0') return false;
  next(reader);
  return true;
}

/* Bytes of a type such as ".u32", or 0. */
static uint32_t type_bytes(const struct reader *reader) {
  static const struct {
    const char *name;
    uint32_t bytes;
  } types[] = {{".b8", 1},    {".u8", 1},     {".s8", 1},      {".b16", 2},       {".u16", 2}, {".s16", 2},
               {".f16", 2},   {".bf16", 2},   {".b32", 4},     {".u32", 4},       {".s32", 4}, {".f32", 4},
               {".f16x2", 4}, {".bf16x2", 4}, {".b64", 8},     {".u64", 8},       {".s64", 8}, {".f64", 8},
               {".b128", 16}, {".texref", 8}, {".surfref", 8}, {".samplerref", 8}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (is(reader, types[i].name)) return types[i].bytes;
  }
  return 0;
}

/* A declared variable or parameter, from its first attribute to its name and dimensions. */
struct declared {
  const char *name;
  size_t length;
  uint32_t element;
  uint64_t alignment;
  uint64_t size;
  bool open; /* the first dimension is left empty */
};

static bool power_of_two(uint64_t value) {
  return value != 0 && (value & (value - 1)) == 0 && value <= 4096;
}

static bool declaration(struct reader *reader, struct declared *declared) {
  *declared = (struct declared){0};
  uint32_t lanes = 1;
  while (reader->length > 0 && reader->token[0] == '.') {
    uint32_t bytes = type_bytes(reader);
    if (bytes != 0) {
      declared->element = bytes;
      next(reader);
    } else if (take(reader, ".align")) {
      if (!number(reader, &declared->alignment) || !power_of_two(declared->alignment)) {
        return wrong(reader, "an alignment that is no power of two");
      }
    } else if (take(reader, ".v2")) {
      lanes = 2;
    } else if (take(reader, ".v4")) {
      lanes = 4;
    } else if (take(reader, ".v8")) {
      lanes = 8;
    } else if (take(reader, ".ptr")) {
      /* What the pointer points to, and how that is aligned, is not our affair. */
      uint64_t ignored;
      while (is(reader, ".global") || is(reader, ".shared") || is(reader, ".const") || is(reader, ".local") ||
             is(reader, ".align")) {
        bool aligned = is(reader, ".align");
        next(reader);
        if (aligned && !number(reader, &ignored)) return wrong(reader, "an alignment that is no number");
      }
    } else if (take(reader, ".attribute")) {
      while (reader->length > 0 && !is(reader, ")")) next(reader);
      next(reader);
    } else {
      next(reader);
    }
  }
  if (declared->element == 0) return wrong(reader, "a declaration without a type");
  declared->element *= lanes;
  if (declared->alignment == 0) declared->alignment = declared->element;
  declared->name = reader->token;
  declared->length = reader->length;
  if (reader->length == 0 || !word_byte(reader->token[0]))
    return wrong(reader, "a declaration without a name");
  next(reader);
  declared->size = declared->element;
  while (take(reader, "[")) {
    uint64_t count = 0;
    if (is(reader, "]")) declared->open = true;
    else if (!number(reader, &count)) return wrong(reader, "a dimension that is no number");
    if (!declared->open &&
        (count > (1ull << 40) || __builtin_mul_overflow(declared->size, count, &declared->size) ||
         declared->size > (1ull << 40))) {
      return wrong(reader, "a variable too large for any device");
    }
    if (!expect(reader, "]", "\"]\" is missing")) return false;
  }
  return true;
}

static bool grow_parameters(struct vgpu_program_function *function) {
  uint32_t count = function->parameter_count;
  if (count == VGPU_PARAMETERS_MAX) return false;
  struct vgpu_parameter *array = realloc(function->parameters, (count + 1) * sizeof *array);
  if (array == NULL) return false;
  function->parameters = array;
  return true;
}

static bool parameters(struct reader *reader, struct vgpu_program_function *function) {
  while (!is(reader, ")")) {
    struct declared declared;
    if (!expect(reader, ".param", "a parameter that does not begin with .param")) return false;
    if (!declaration(reader, &declared)) return false;
    uint64_t offset = (function->parameter_bytes + declared.alignment - 1) & ~(declared.alignment - 1);
    if (declared.open || declared.size == 0 || declared.size > VGPU_PARAMETER_BYTES_MAX ||
        offset + declared.size > VGPU_PARAMETER_BYTES_MAX || !grow_parameters(function)) {
      return wrong(reader, "more parameters than a kernel may have");
    }
    function->parameters[function->parameter_count++] =
        (struct vgpu_parameter){.offset = (uint32_t)offset, .size = (uint32_t)declared.size};
    function->parameter_bytes = (uint32_t)(offset + declared.size);
    if (!take(reader, ",") && !is(reader, ")")) return wrong(reader, "\",\" or \")\" is missing");
  }
  next(reader);
  return true;
}

static uint64_t threads(struct reader *reader) {
  uint64_t all = 1, value;
  do {
    if (!number(reader, &value) || value == 0 || value > 65536) return 0;
    all *= value;
  } while (take(reader, ",") && all <= 1u << 20);
  return all;
}

static bool directives(struct reader *reader, struct vgpu_program_function *function) {
  int32_t *attributes = function->attributes;
  while (reader->length > 0 && !is(reader, "{") && !is(reader, ";")) {
    uint64_t value;
    if (take(reader, ".maxntid") || take(reader, ".reqntid")) {
      value = threads(reader);
      if (value == 0) return wrong(reader, "a thread count that is none");
      if (value < (uint64_t)attributes[VGPU_FUNCTION_MAX_THREADS])
        attributes[VGPU_FUNCTION_MAX_THREADS] = (int32_t)value;
    } else if (take(reader, ".maxnreg")) {
      if (!number(reader, &value) || value == 0 || value > 255)
        return wrong(reader, "a register count that is none");
      if (value < (uint64_t)attributes[VGPU_FUNCTION_REGISTERS])
        attributes[VGPU_FUNCTION_REGISTERS] = (int32_t)value;
    } else if (take(reader, ".explicitcluster")) {
      attributes[VGPU_FUNCTION_CLUSTER_MUST] = 1;
    } else if (take(reader, ".reqnctapercluster")) {
      for (int i = 0; i < 3; i++) {
        attributes[VGPU_FUNCTION_CLUSTER_WIDTH + i] = 1;
      }
      for (int i = 0; i < 3; i++) {
        if (!number(reader, &value) || value > 64) return wrong(reader, "a cluster size that is none");
        attributes[VGPU_FUNCTION_CLUSTER_WIDTH + i] = (int32_t)value;
        if (!take(reader, ",")) break;
      }
    } else {
      next(reader);
    }
  }
  return true;
}

static int32_t bounded(uint64_t value) {
  return value > INT32_MAX ? INT32_MAX : (int32_t)value;
}

static uint64_t placed(uint64_t used, const struct declared *declared) {
  return ((used + declared->alignment - 1) & ~(declared->alignment - 1)) + declared->size;
}

/* A body: what it declares of shared and local memory, and which of the module's shared it names. */
static bool body(struct reader *reader, struct vgpu_program_function *function) {
  uint64_t shared = 0, local = 0;
  bool named[MODULE_SHARED_MAX] = {false};
  unsigned depth = 0;
  do {
    if (reader->length == 0) return wrong(reader, "the text ends inside a body");
    struct declared declared;
    if (is(reader, "{")) depth++;
    if (is(reader, "}")) depth--;
    if (is(reader, ".shared") || is(reader, ".local")) {
      bool is_shared = is(reader, ".shared");
      next(reader);
      if (!declaration(reader, &declared)) return false;
      if (is_shared) shared = placed(shared, &declared);
      else local = placed(local, &declared);
      continue;
    }
    for (uint32_t i = 0; i < reader->shared_count; i++) {
      const struct module_shared *candidate = &reader->shared[i];
      if (candidate->length == reader->length &&
          memcmp(candidate->name, reader->token, reader->length) == 0) {
        named[i] = true;
      }
    }
    next(reader);
  } while (depth > 0);
  for (uint32_t i = 0; i < reader->shared_count; i++) {
    if (named[i]) shared = ((shared + 15) & ~15ull) + reader->shared[i].size;
  }
  if (function != NULL) {
    function->attributes[VGPU_FUNCTION_SHARED] = bounded(shared);
    function->attributes[VGPU_FUNCTION_LOCAL] = bounded(local);
  }
  return true;
}

static bool entry(struct reader *reader) {
  const char *name = reader->token;
  size_t length = reader->length;
  if (length == 0 || !word_byte(name[0])) return wrong(reader, "a kernel without a name");
  next(reader);
  struct vgpu_program_function parsed = {0};
  parsed.attributes[VGPU_FUNCTION_MAX_THREADS] = reader->target->max_threads;
  parsed.attributes[VGPU_FUNCTION_REGISTERS] = LIKELY_REGISTERS;
  bool sound = (!take(reader, "(") || parameters(reader, &parsed)) && directives(reader, &parsed);
  if (sound && take(reader, ";")) { /* only declared */
    free(parsed.parameters);
    return true;
  }
  sound = sound && (is(reader, "{") || wrong(reader, "a kernel without a body")) && body(reader, &parsed);
  struct vgpu_program_function *function =
      sound ? vgpu_program_add_function(reader->program, name, length) : NULL;
  if (function == NULL) {
    free(parsed.parameters);
    return wrong(reader, "no memory");
  }
  parsed.name = function->name;
  *function = parsed;
  return true;
}

/* Device functions matter to nobody here: to the end of the body, or of the declaration. */
static bool skip_function(struct reader *reader) {
  while (reader->length > 0 && !is(reader, "{") && !is(reader, ";")) next(reader);
  if (is(reader, "{")) return body(reader, NULL);
  next(reader);
  return true;
}

static void put(struct vgpu_program_global *global, uint64_t at, uint64_t value, uint32_t bytes) {
  if (at <= global->size && bytes <= global->size - at && bytes <= 8)
    memcpy(global->initial + at, &value, bytes);
}

/* Numbers in order; the address of another variable is left zero. */
static bool initial_values(struct reader *reader, struct vgpu_program_global *global,
                           const struct declared *declared) {
  if (global->size > reader->target->memory_limit - reader->program->bytes) return wrong(reader, "no memory");
  global->initial = calloc(1, global->size == 0 ? 1 : global->size);
  if (global->initial == NULL) return wrong(reader, "no memory");
  reader->program->bytes += global->size;
  uint64_t at = 0, value;
  bool negative = false;
  unsigned depth = 0;
  do {
    if (take(reader, "{")) {
      depth++;
    } else if (take(reader, "}")) {
      depth--;
    } else if (take(reader, "-")) {
      negative = true;
    } else if (number(reader, &value)) {
      put(global, at, negative ? 0 - value : value, declared->element);
      at += declared->element;
      negative = false;
    } else if (!take(reader, ",")) {
      next(reader);
      if (take(reader, "(")) {
        while (reader->length > 0 && !take(reader, ")")) next(reader);
      }
      at += declared->element;
    }
  } while (depth > 0 && reader->length > 0);
  return true;
}

static bool variable(struct reader *reader, bool is_external, bool is_constant) {
  struct declared declared;
  do {
    if (!declaration(reader, &declared)) return false;
    if (is_constant) reader->constant_bytes = placed(reader->constant_bytes, &declared);
    struct vgpu_program_global *global = NULL;
    if (!is_external) {
      if (declared.open) declared.size = declared.element;
      global = vgpu_program_add_global(reader->program, declared.name, declared.length);
      if (global == NULL) return wrong(reader, "no memory");
      global->size = declared.size;
    }
    if (take(reader, "=") && global != NULL) {
      bool negative = take(reader, "-");
      uint64_t value;
      if (number(reader, &value)) {
        global->initial = calloc(1, declared.element);
        if (global->initial == NULL || global->size < declared.element) return wrong(reader, "no memory");
        global->size = declared.element;
        put(global, 0, negative ? 0 - value : value, declared.element);
      } else if (is(reader, "{")) {
        if (!initial_values(reader, global, &declared)) return false;
      }
    }
    while (reader->length > 0 && !is(reader, ";") && !is(reader, ",")) next(reader);
  } while (take(reader, ","));
  return expect(reader, ";", "\";\" is missing after a variable");
}

static bool module_shared(struct reader *reader) {
  struct declared declared;
  if (!declaration(reader, &declared)) return false;
  if (!declared.open && reader->shared_count < MODULE_SHARED_MAX) {
    reader->shared[reader->shared_count++] =
        (struct module_shared){.name = declared.name, .length = declared.length, .size = declared.size};
  }
  while (reader->length > 0 && !take(reader, ";")) next(reader);
  return true;
}

/* ".target sm_90a, ..." */
static bool target_line(struct reader *reader) {
  if (reader->length < 4 || memcmp(reader->token, "sm_", 3) != 0)
    return wrong(reader, "a .target that is no sm_NN");
  uint32_t architecture = 0;
  for (size_t i = 3; i < reader->length && isdigit((unsigned char)reader->token[i]); i++) {
    architecture = architecture * 10 + (uint32_t)(reader->token[i] - '0');
    if (architecture > 10000) return wrong(reader, "a .target that is no sm_NN");
  }
  reader->architecture = architecture;
  next(reader);
  while (take(reader, ",")) next(reader);
  return true;
}

static bool statement(struct reader *reader) {
  bool is_external = false;
  while (is(reader, ".visible") || is(reader, ".extern") || is(reader, ".weak") || is(reader, ".common")) {
    is_external |= is(reader, ".extern");
    next(reader);
  }
  if (take(reader, ".version")) {
    reader->version = reader->length > 0 && isdigit((unsigned char)reader->token[0]);
    next(reader);
    return reader->version || wrong(reader, "a .version that is no number");
  }
  if (!reader->version) return wrong(reader, "no .version at the beginning");
  if (take(reader, ".target")) return target_line(reader);
  if (take(reader, ".entry")) return entry(reader);
  if (take(reader, ".func")) return skip_function(reader);
  if (take(reader, ".global")) return variable(reader, is_external, false);
  if (take(reader, ".const")) return variable(reader, is_external, true);
  if (take(reader, ".shared")) return module_shared(reader);
  if (take(reader, ".section")) {
    while (reader->length > 0 && !is(reader, "{")) next(reader);
    return reader->length > 0 ? body(reader, NULL) : wrong(reader, "a .section without a body");
  }
  if (take(reader, ".address_size") || take(reader, ".file") || take(reader, ".loc") ||
      take(reader, ".pragma") || take(reader, ".alias") || take(reader, ".tex")) {
    uint32_t line = reader->line;
    while (reader->length > 0 && reader->line == line && !is(reader, ";")) next(reader);
    take(reader, ";");
    return true;
  }
  if (take(reader, ";")) return true;
  return wrong(reader, "a statement that is not PTX");
}

static void complete(struct reader *reader) {
  struct vgpu_program *program = reader->program;
  for (size_t i = 0; i < program->function_count; i++) {
    int32_t *attributes = program->functions[i].attributes;
    attributes[VGPU_FUNCTION_CONSTANT] = bounded(reader->constant_bytes);
    attributes[VGPU_FUNCTION_PTX_VERSION] = (int32_t)reader->architecture;
    attributes[VGPU_FUNCTION_BINARY_VERSION] = (int32_t)reader->target->architecture;
    attributes[VGPU_FUNCTION_CARVEOUT] = -1;
    attributes[VGPU_FUNCTION_MAX_DYNAMIC] = reader->target->shared_block - attributes[VGPU_FUNCTION_SHARED];
    if (attributes[VGPU_FUNCTION_MAX_DYNAMIC] < 0) attributes[VGPU_FUNCTION_MAX_DYNAMIC] = 0;
    /* As many registers as leave room for the largest block it allows. */
    while (attributes[VGPU_FUNCTION_REGISTERS] > 16 &&
           (int64_t)attributes[VGPU_FUNCTION_REGISTERS] * attributes[VGPU_FUNCTION_MAX_THREADS] >
               reader->target->registers_block) {
      attributes[VGPU_FUNCTION_REGISTERS] -= 8;
    }
  }
}

int32_t vgpu_ptx_read(const char *text, uint64_t size, const struct vgpu_program_target *target,
                      struct vgpu_program *program, char *why, size_t why_size) {
  struct reader reader = {.at = text, .end = text + size, .line = 1, .target = target, .program = program};
  next(&reader);
  bool sound = true;
  while (sound && reader.length > 0) sound = statement(&reader);
  if (sound && !reader.version) sound = wrong(&reader, "no .version at the beginning");
  if (!sound) {
    snprintf(why, why_size, "ptxas application ptx input, line %u; error : %s at \"%.*s\"", reader.line,
             reader.wrong == NULL ? "unreadable" : reader.wrong,
             (int)(reader.length < 40 ? reader.length : 40), reader.token);
    return VGPU_PROGRAM_INVALID_PTX;
  }
  if (reader.architecture > target->architecture) {
    snprintf(why, why_size, "the PTX is for sm_%u, the device is %u.%u", reader.architecture,
             target->architecture / 10, target->architecture % 10);
    return VGPU_PROGRAM_NO_BINARY;
  }
  complete(&reader);
  return VGPU_PROGRAM_OK;
}
