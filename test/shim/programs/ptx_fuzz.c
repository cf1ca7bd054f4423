/*
 * Hostile modules: changes PTX files at random, loads them, and runs those that still load for a short time.
 * No input may cause a crash, a hang, or the use of much memory; a sanitized build checks more strictly.
 * ptx_fuzz ROUNDS SEED FILE...   prints how many loaded and ran
 * With PTX_COMPILE=check in the environment, each kernel is also compiled and compared with the interpreter.
 * A difference, or a text that LLVM refuses, ends the process. Built with -DPTX_LIBFUZZER (clang
 * -fsanitize=fuzzer) it is a libFuzzer target instead; see docs/reference/software-gpu.md.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/compile/emit.h"
#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/ptx/texture.h"

#define BASE 0x200000000000ull
#define MEMORY 65536u

static unsigned char memory[MEMORY] __attribute__((aligned(256)));
static unsigned char written[MEMORY];
static unsigned long loaded, ran, emitted;
static struct ptx_compiler *compiler;
static struct ptx_compiler_counts compiled;

static bool find(void *user, uint64_t address, struct ptx_region *region) {
  (void)user;
  if (address < BASE || address - BASE >= MEMORY) return false;
  *region = (struct ptx_region){BASE, MEMORY, memory, written};
  return true;
}

/* The object in the parameters: a texture, or in every second run a surface. */
static bool find_texture(void *user, uint64_t object, struct ptx_texture *texture) {
  (void)user;
  static unsigned char texels[6 * 768]; /* all of the first level */
  static const struct ptx_level levels[2] = {{texels, 8, 6, 6, 128, 768}, {texels + 64, 4, 3, 6, 64, 192}};
  if (object != BASE + 4096) return false;
  uint8_t texel = (uint8_t)(loaded % 8), bytes = (uint8_t)(4 * ptx_texel_bytes((enum ptx_texel)texel));
  *texture = (struct ptx_texture){.levels = levels,
                                  .level_count = 2,
                                  .texel = texel,
                                  .channels = 4,
                                  .bytes = bytes,
                                  .surface = loaded % 2 == 0,
                                  .cube = loaded % 3 == 0,
                                  .seamless = loaded % 3 == 0,
                                  .layered = loaded % 5 == 0,
                                  .linear = loaded % 7 == 0,
                                  .normalized_reads = loaded % 4 == 0,
                                  .normalized_coordinates = loaded % 11 < 6,
                                  .address = {(uint8_t)(loaded / 3 % 4), (uint8_t)(loaded / 5 % 4), 1},
                                  .filter = (uint8_t)(loaded / 2 % 2),
                                  .mip_filter = 1,
                                  .max_level = 9};
  return true;
}

static void print(void *user, const char *text, size_t length) {
  (void)user;
  (void)text;
  (void)length;
}

/* The text for LLVM of each function that was decoded. */
static void emit(const struct ptx_module *module) {
  static char text[1 << 20];
  for (uint32_t i = 0; i < module->function_count; i++) {
    const struct ptx_function *f = module->functions[i];
    struct ptx_plan plan;
    if (f == NULL || f->state != BODY_DECODED || f->code_count == 0 || !ptx_plan_make(&plan, f, f->code))
      continue;
    struct ptx_emit e = {
        .text = {.bytes = text, .room = sizeof text}, .plan = &plan, .constants = module->constants};
    emitted += ptx_emit_function(&e);
    ptx_plan_free(&plan);
  }
}

static void look_at_compiled(const struct ptx_fault *fault) {
  const uint32_t refused = compiled.refused;
  const char *why = ptx_compiler_count(compiler, &compiled);
  bool is_text = compiled.refused > refused && strstr(why, "error:") != NULL;
  bool differs = strstr(fault->text, "compiled code differs") != NULL;
  if (!is_text && !differs) return;
  fprintf(stderr, "line %u: %s\n", fault->line, is_text ? why : fault->text);
  abort();
}

static void try_one(const char *text, size_t size) {
  struct ptx_module *module;
  char log[256];
  if (ptx_module_load(text, size, 90, &module, log, sizeof log) != PTX_OK) return;
  loaded++;
  if (ptx_module_data_bytes(module) <= MEMORY) ptx_module_place(module, BASE, memory);
  struct ptx_heap *heap = ptx_heap_new(BASE + MEMORY / 2, MEMORY / 2);
  static unsigned char parameters[65536];
  for (size_t i = 0; i < sizeof parameters; i += 8) {
    uint64_t address = BASE + 4096;
    memcpy(parameters + i, &address, 8);
  }
  uint32_t kernels = ptx_module_kernel_count(module);
  for (uint32_t k = 0; k < kernels && k < 4; k++) {
    const struct ptx_kernel_info *info = ptx_module_kernel(module, k);
    struct ptx_launch l = {.grid = {2, 1, 1},
                           .block = {40, 1, 1},
                           .dynamic_shared = 1024,
                           .parameters = parameters,
                           .parameter_bytes = info->parameter_bytes,
                           .timeout = 20000000,
                           .find = find,
                           .find_texture = find_texture,
                           .print = print,
                           .heap = heap,
                           /* every other module runs with checks, which record its accesses */
                           .checks = loaded % 2 == 0 ? PTX_CHECK_RACE | PTX_CHECK_INIT : 0,
                           .workspace = BASE,
                           .compiler = compiler};
    struct ptx_fault fault = {0};
    if (ptx_launch(module, k, &l, NULL, &fault) == PTX_OK) ran++;
    if (compiler != NULL) look_at_compiled(&fault);
  }
  emit(module);
  ptx_heap_free(heap);
  ptx_module_free(module);
}

#ifdef PTX_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try_one((const char *)data, size);
  return 0;
}
#else

static uint64_t state;
static uint32_t next(uint32_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16) % below;
}

struct text {
  char *bytes;
  size_t size;
};

/* Returns the line that contains a place. */
static struct text line_at(struct text t, size_t at) {
  size_t from = at, to = at;
  while (from > 0 && t.bytes[from - 1] != '\n') from--;
  while (to < t.size && t.bytes[to] != '\n') to++;
  if (to < t.size) to++;
  return (struct text){t.bytes + from, to - from};
}

static struct text changed(struct text from, struct text other) {
  static const char *const pieces[] = {"0",        "-1",         "4294967296", "18446744073709551615",
                                       "%r1",      "%rd1",       "%p1",        "%f1",
                                       ".u64",     ".f32",       ".b8",        ".v4",
                                       ".sat",     ".cc",        "{",          "}",
                                       "(",        ")",          "[",          "]",
                                       ";",        ",",          "bra",        "ret",
                                       "bar.sync", "call",       ".shared",    ".local",
                                       ".param",   "<1000000>",  "[99999999]", ":",
                                       "@",        "0f7f800000", "generic(",   "\"",
                                       "/*",       "_"};
  struct text t = {malloc(from.size + other.size + 4096), from.size};
  if (t.bytes == NULL) exit(1);
  memcpy(t.bytes, from.bytes, from.size);
  uint32_t changes = 1 + next(3);
  for (uint32_t i = 0; i < changes && t.size > 2; i++) {
    size_t at = next((uint32_t)t.size);
    switch (next(6)) {
      case 0:
        t.bytes[at] = (char)next(256);
        break;
      case 1:
        t.bytes[at] = "0123456789%.,;:{}()[]<>+-_"[next(26)];
        break;
      case 2: {
        struct text line = line_at(t, at);
        size_t start = (size_t)(line.bytes - t.bytes);
        memmove(line.bytes, line.bytes + line.size, t.size - start - line.size);
        t.size -= line.size;
        break;
      }
      case 3: {
        struct text line = line_at(other, next((uint32_t)other.size));
        if (line.size > 500) line.size = 500;
        struct text here = line_at(t, at);
        size_t start = (size_t)(here.bytes - t.bytes);
        memmove(t.bytes + start + line.size, t.bytes + start, t.size - start);
        memcpy(t.bytes + start, line.bytes, line.size);
        t.size += line.size;
        break;
      }
      case 4: {
        const char *piece = pieces[next(sizeof pieces / sizeof *pieces)];
        size_t length = strlen(piece);
        size_t room = t.size - at < length ? t.size - at : length;
        memcpy(t.bytes + at, piece, room);
        break;
      }
      default: {
        /* a number becomes another */
        for (size_t k = at; k < t.size && k < at + 40; k++) {
          if (t.bytes[k] >= '0' && t.bytes[k] <= '9') t.bytes[k] = (char)('0' + next(10));
        }
        break;
      }
    }
  }
  return t;
}

int main(int count, char **words) {
  if (count < 4) return 2;
  const char *compile = getenv("PTX_COMPILE");
  if (compile != NULL && strcmp(compile, "check") == 0) {
    compiler = ptx_compiler_start(PTX_COMPILE_CHECK, NULL);
    if (compiler == NULL) return 3;
  }
  unsigned long rounds = strtoul(words[1], NULL, 0);
  state = strtoull(words[2], NULL, 0) * 0x9e3779b97f4a7c15ull + 1;
  int files = count - 3;
  struct text *seeds = calloc((size_t)files, sizeof *seeds);
  if (seeds == NULL) return 1;
  for (int i = 0; i < files; i++) {
    FILE *f = fopen(words[3 + i], "rb");
    if (f == NULL) return 2;
    fseek(f, 0, SEEK_END);
    seeds[i].size = (size_t)ftell(f);
    rewind(f);
    seeds[i].bytes = malloc(seeds[i].size + 1);
    if (seeds[i].bytes == NULL || fread(seeds[i].bytes, 1, seeds[i].size, f) != seeds[i].size) return 1;
    fclose(f);
  }
  for (unsigned long i = 0; i < rounds; i++) {
    struct text t = changed(seeds[next((uint32_t)files)], seeds[next((uint32_t)files)]);
    if (getenv("PTX_FUZZ_KEEP") != NULL) {
      FILE *f = fopen(getenv("PTX_FUZZ_KEEP"), "wb");
      if (f != NULL) {
        fwrite(t.bytes, 1, t.size, f);
        fclose(f);
      }
    }
    try_one(t.bytes, t.size);
    free(t.bytes);
  }
  for (int i = 0; i < files; i++) free(seeds[i].bytes);
  free(seeds);
  printf("rounds %lu loaded %lu ran %lu compiled %u compared %llu\n", rounds, loaded, ran, compiled.compiled,
         (unsigned long long)compiled.compared);
  return 0;
}
#endif
