/*
 * Runs kernels of a PTX file on the software device, as lines on stdin say:
 *
 *   module FILE [DEVICE [lazy]] loads it (DEVICE: 61 for 6.1); prints what it holds, and what kernels are
 * refused for; lazy: kernels are decoded when they are launched buffer BYTES [FILE]         device memory,
 * zeroed or from a file; prints its number, 1 for the first fresh BYTES                 the same, but taken
 * as never written (for checks) check LIST                  of launches from here on: race, init, race,init;
 * "most N" tells N places most N heap BYTES                  what kernels' malloc takes from limit
 * MILLISECONDS          of launches from here on stack BYTES helpers N                   threads beside this
 * one cooperative 0|1 cluster X Y Z               blocks of a cluster, of launches from here on; 0 0 0: as
 * the kernel says launch KERNEL GX GY GZ BX BY BZ SHARED [REPEAT] : ARGUMENT... ARGUMENT: bN+OFFSET (address
 * of buffer N), u32:V u64:V f32:V f64:V u16:V u8:V, x:HEX (bytes), g:NAME write N FILE                the
 * buffer's bytes to a file global NAME FILE            a variable's bytes to a file
 *   analyses BITS            of modules that are loaded from here on; PTX_ANALYSES in the environment is the
 * first frame KERNEL             prints the bytes of a warp's registers texture BUFFER WIDTH HEIGHT DEPTH
 * TEXEL CHANNELS [WORD...]   an image in a buffer, rows and levels packed; the first is tN with N = 1. TEXEL:
 * u8 ... f32. WORD: levels=N surface linear layered cube normalized (reads) coords (normalized) srgb seamless
 * linear-filter linear-mip modes=XYZ (wrap 0, clamp 1, mirror 2, border 3) bias=F min=F max=F border=F. As
 * ARGUMENT, tN is its object, and so is what `bind NAME tN` writes to a reference
 *
 * One line of output for each, "ok ..." or "error ...". Exit status 0 whatever launches say; 2: a line that
 * is not understood.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/backend/software/ptx/program.h"
#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/ptx/texture.h"

#define BASE 0x200000000000ull
#define STEP 0x100000000ull
#define MAX_BUFFERS 64

static struct {
  unsigned char *bytes;
  uint64_t size;
  unsigned char *written; /* NULL: all of it is */
} buffers[MAX_BUFFERS];
static unsigned buffer_count;
static struct ptx_module *module;
static unsigned heap_buffer;
static struct ptx_heap *heap;
static struct ptx_pool *pool;
static uint64_t limit_ms;
static uint32_t stack_limit;
static int cooperative;
static uint32_t cluster[3];
static uint64_t workspace;
static uint32_t checks, most;
static struct ptx_compiler *compiler;

static bool find(void *user, uint64_t address, struct ptx_region *region) {
  (void)user;
  uint64_t number = (address - BASE) / STEP;
  if (address < BASE || number >= buffer_count) return false;
  if (address - (BASE + number * STEP) >= buffers[number].size) return false;
  *region = (struct ptx_region){BASE + number * STEP, buffers[number].size, buffers[number].bytes,
                                buffers[number].written};
  return true;
}

#define OBJECTS 0x70000u /* the object of the first texture, less 1 */
#define MAX_TEXTURES 16

static struct ptx_texture textures[MAX_TEXTURES];
static struct ptx_level levels[MAX_TEXTURES][PTX_LEVELS_MOST];
static unsigned texture_count;

static bool find_texture(void *user, uint64_t object, struct ptx_texture *texture) {
  (void)user;
  uint64_t number = object - OBJECTS - 1;
  if (number >= texture_count) return false;
  *texture = textures[number];
  return true;
}

static void texture_word(struct ptx_texture *t, const char *word) {
  const char *equals = strchr(word, '=');
  float value = equals == NULL ? 0 : strtof(equals + 1, NULL);
  if (strcmp(word, "surface") == 0) t->surface = true;
  else if (strcmp(word, "linear") == 0) t->linear = true;
  else if (strcmp(word, "layered") == 0) t->layered = true;
  else if (strcmp(word, "cube") == 0) t->cube = true;
  else if (strcmp(word, "normalized") == 0) t->normalized_reads = true;
  else if (strcmp(word, "coords") == 0) t->normalized_coordinates = true;
  else if (strcmp(word, "srgb") == 0) t->srgb = true;
  else if (strcmp(word, "seamless") == 0) t->seamless = true;
  else if (strcmp(word, "linear-filter") == 0) t->filter = FILTER_LINEAR;
  else if (strcmp(word, "linear-mip") == 0) t->mip_filter = FILTER_LINEAR;
  else if (equals == NULL) exit(2);
  else if (strncmp(word, "levels=", 7) == 0) t->level_count = (uint32_t)value;
  else if (strncmp(word, "bias=", 5) == 0) t->bias = value;
  else if (strncmp(word, "min=", 4) == 0) t->min_level = value;
  else if (strncmp(word, "max=", 4) == 0) t->max_level = value;
  else if (strncmp(word, "border=", 7) == 0)
    t->border[0] = t->border[1] = t->border[2] = t->border[3] = value;
  else if (strncmp(word, "modes=", 6) == 0 && strlen(word) == 9)
    for (int i = 0; i < 3; i++) t->address[i] = (uint8_t)(word[6 + i] - '0');
  else exit(2);
}

static void texture(char *rest) {
  static const char *const texels[] = {"u8", "u16", "u32", "s8", "s16", "s32", "f16", "f32"};
  unsigned buffer, width, height, depth, channels;
  char texel[8];
  int used = 0;
  if (sscanf(rest, "%u %u %u %u %7s %u%n", &buffer, &width, &height, &depth, texel, &channels, &used) != 6 ||
      buffer >= buffer_count || texture_count == MAX_TEXTURES) {
    exit(2);
  }
  struct ptx_texture *t = &textures[texture_count];
  *t = (struct ptx_texture){.level_count = 1, .channels = (uint8_t)channels, .max_level = 100};
  while (t->texel < 8 && strcmp(texels[t->texel], texel) != 0) t->texel++;
  if (t->texel == 8) exit(2);
  t->bytes = (uint8_t)(channels * ptx_texel_bytes((enum ptx_texel)t->texel));
  for (char *word = strtok(rest + used, " "); word != NULL; word = strtok(NULL, " ")) texture_word(t, word);
  uint64_t at = 0;
  for (uint32_t i = 0; i < t->level_count && i < PTX_LEVELS_MOST; i++) {
    struct ptx_level *level = &levels[texture_count][i];
    level->width = width >> i == 0 ? 1 : width >> i;
    level->height = height >> i == 0 ? 1 : height >> i;
    level->depth = t->layered || t->cube ? depth : depth >> i == 0 ? 1 : depth >> i;
    level->row = (uint64_t)level->width * t->bytes;
    level->slice = level->row * level->height;
    level->bytes = buffers[buffer].bytes + at;
    at += level->slice * level->depth;
  }
  if (at > buffers[buffer].size) exit(2);
  t->levels = levels[texture_count++];
  printf("ok t%u\n", texture_count);
}

static void print(void *user, const char *text, size_t length) {
  (void)user;
  fputs("print ", stdout);
  for (size_t i = 0; i < length; i++) {
    if (text[i] == '\n') fputs("\\n", stdout);
    else fputc(text[i], stdout);
  }
  fputc('\n', stdout);
}

static void report(void *user, const struct ptx_finding *f) {
  (void)user;
  if (f->check == 0) {
    printf("finding rest %" PRIu64 "\n", f->rest);
    return;
  }
  printf("finding %s %s %s %s line %u block %u,%u,%u thread %u,%u,%u bytes %u address 0x%" PRIx64,
         f->check == PTX_CHECK_RACE ? "race" : "init", f->kernel, f->instruction, f->space, f->line,
         f->block[0], f->block[1], f->block[2], f->thread[0], f->thread[1], f->thread[2], f->bytes,
         f->address);
  if (f->check == PTX_CHECK_RACE) {
    printf(" %s after %s line %u thread %u,%u,%u", f->writes ? "write" : "read",
           f->other_writes ? "write" : "read", f->other_line, f->other_thread[0], f->other_thread[1],
           f->other_thread[2]);
  }
  putchar('\n');
}

static unsigned char *aligned(uint64_t size) {
  void *memory = NULL;
  if (posix_memalign(&memory, 256, size == 0 ? 256 : size) != 0) exit(2);
  memset(memory, 0, size == 0 ? 256 : size);
  return memory;
}

static unsigned add_buffer(uint64_t size) {
  if (buffer_count == MAX_BUFFERS) exit(2);
  buffers[buffer_count].bytes = aligned(size);
  buffers[buffer_count].size = size;
  return buffer_count++;
}

static unsigned char *read_file(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  if (f == NULL) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(2);
  }
  fseek(f, 0, SEEK_END);
  *size = (size_t)ftell(f);
  rewind(f);
  unsigned char *bytes = malloc(*size + 1);
  if (bytes == NULL || fread(bytes, 1, *size, f) != *size) exit(2);
  fclose(f);
  return bytes;
}

static void write_file(const char *path, const void *bytes, size_t size) {
  FILE *f = fopen(path, "wb");
  if (f == NULL || fwrite(bytes, 1, size, f) != size || fclose(f) != 0) exit(2);
  puts("ok");
}

static uint64_t clock_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t now(void) {
  return clock_of(CLOCK_MONOTONIC);
}

static void load(char *rest) {
  char path[4096];
  unsigned device = 0;
  char how[8] = "";
  if (sscanf(rest, "%4095s %u %7s", path, &device, how) < 1) exit(2);
  bool lazy = strcmp(how, "lazy") == 0;
  size_t size;
  char *text = (char *)read_file(path, &size);
  char log[4096];
  uint64_t begun = now();
  ptx_module_free(module);
  static char *kept;
  free(kept);
  kept = NULL;
  enum ptx_status status =
      (lazy ? ptx_module_load_lazily : ptx_module_load)(text, size, device, &module, log, sizeof log);
  uint64_t took = now() - begun;
  if (lazy) {
    kept = text;
  } else {
    /* the module must not keep pointers into the text */
    memset(text, 'x', size);
    free(text);
  }
  if (status != PTX_OK) {
    printf("error %s: %s\n", ptx_status_name(status), log);
    return;
  }
  uint64_t bytes = ptx_module_data_bytes(module);
  /* the first buffer is the module's, whichever module it is */
  if (buffer_count == 0) add_buffer(0);
  free(buffers[0].bytes);
  buffers[0].bytes = aligned(bytes);
  buffers[0].size = bytes;
  ptx_module_place(module, BASE, buffers[0].bytes);
  printf("ok kernels=%u globals=%u data=%" PRIu64 " microseconds=%" PRIu64 "\n",
         ptx_module_kernel_count(module), ptx_module_global_count(module), bytes, took / 1000);
  for (uint32_t i = 0; i < ptx_module_kernel_count(module); i++) {
    const struct ptx_kernel_info *k = ptx_module_kernel(module, i);
    printf("kernel %s parameters=%u bytes=%u shared=%u local=%u registers=%u threads=%u\n", k->name,
           k->parameter_count, k->parameter_bytes, k->static_shared, k->local_bytes, k->registers,
           k->max_threads);
  }
  for (char *line = strtok(log, "\n"); line != NULL; line = strtok(NULL, "\n")) printf("refused %s\n", line);
}

static const struct ptx_global_info *global(const char *name) {
  for (uint32_t i = 0; i < ptx_module_global_count(module); i++) {
    if (strcmp(ptx_module_global(module, i)->name, name) == 0) return ptx_module_global(module, i);
  }
  fprintf(stderr, "no variable %s\n", name);
  exit(2);
}

/* Writes the bytes of one argument. Returns their number. */
static size_t argument(char *word, unsigned char *to) {
  uint64_t value = 0;
  size_t size = 8;
  if (word[0] == 'b') {
    char *plus;
    unsigned long number = strtoul(word + 1, &plus, 10);
    value = BASE + number * STEP + (*plus == '+' ? strtoull(plus + 1, NULL, 0) : 0);
  } else if (word[0] == 't') {
    value = OBJECTS + strtoull(word + 1, NULL, 10);
  } else if (word[0] == 'g') {
    value = BASE + global(word + 2)->offset;
  } else if (word[0] == 'x') {
    size = 0;
    for (char *c = word + 2; c[0] != 0 && c[1] != 0 && size < 4096; c += 2) {
      char pair[3] = {c[0], c[1], 0};
      to[size++] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return size;
  } else {
    char *colon = strchr(word, ':');
    if (colon == NULL) exit(2);
    size = (size_t)atoi(word + 1) / 8;
    if (word[0] == 'f' && size == 4) {
      float f = strtof(colon + 1, NULL);
      memcpy(&value, &f, 4);
    } else if (word[0] == 'f') {
      double f = strtod(colon + 1, NULL);
      memcpy(&value, &f, 8);
    } else {
      value = colon[1] == '-' ? (uint64_t)strtoll(colon + 1, NULL, 0) : strtoull(colon + 1, NULL, 0);
    }
  }
  memcpy(to, &value, size);
  return size;
}

static void launch(char *rest) {
  char name[1024];
  struct ptx_launch l = {.find = find,
                         .find_texture = find_texture,
                         .print = print,
                         .heap = heap,
                         .timeout = limit_ms * 1000000ull,
                         .cooperative = cooperative != 0,
                         .cluster = {cluster[0], cluster[1], cluster[2]},
                         .stack_limit = stack_limit,
                         .checks = checks,
                         .most_findings = most,
                         .report = report,
                         .workspace = workspace,
                         .compiler = compiler};
  unsigned repeat = 1;
  char *colon = strstr(rest, " :");
  if (colon == NULL) exit(2);
  *colon = 0;
  if (sscanf(rest, "%1023s %u %u %u %u %u %u %u %u", name, &l.grid[0], &l.grid[1], &l.grid[2], &l.block[0],
             &l.block[1], &l.block[2], &l.dynamic_shared, &repeat) < 8) {
    exit(2);
  }
  int32_t kernel = module == NULL ? -1 : ptx_module_find_kernel(module, name);
  if (kernel < 0) {
    printf("error no kernel %s\n", name);
    return;
  }
  const struct ptx_kernel_info *info = ptx_module_kernel(module, (uint32_t)kernel);
  static unsigned char parameters[65536];
  memset(parameters, 0, sizeof parameters);
  uint32_t count = 0;
  for (char *word = strtok(colon + 2, " "); word != NULL; word = strtok(NULL, " "), count++) {
    if (count >= info->parameter_count) exit(2);
    argument(word, parameters + info->parameters[count].offset);
  }
  l.parameters = parameters;
  l.parameter_bytes = info->parameter_bytes;
  struct ptx_fault fault;
  enum ptx_status status = PTX_OK;
  uint64_t begun = now(), used = clock_of(CLOCK_PROCESS_CPUTIME_ID);
  for (unsigned i = 0; i < repeat && status == PTX_OK; i++)
    status = ptx_launch(module, (uint32_t)kernel, &l, pool, &fault);
  uint64_t took = now() - begun;
  if (status == PTX_OK) {
    used = clock_of(CLOCK_PROCESS_CPUTIME_ID) - used;
    printf("ok nanoseconds=%" PRIu64 " processor=%" PRIu64 "\n", took / repeat, used / repeat);
  } else {
    printf("error %s: line %u block %u,%u,%u thread %u,%u,%u address 0x%" PRIx64 ": %s\n",
           ptx_status_name(status), fault.line, fault.block[0], fault.block[1], fault.block[2],
           fault.thread[0], fault.thread[1], fault.thread[2], fault.address, fault.text);
  }
}

/* The bytes of a warp's registers. */
static void frame(const char *name) {
  int32_t number = module == NULL ? -1 : ptx_module_find_kernel(module, name);
  enum ptx_status status;
  const char *refused = number < 0 ? "no such kernel" : ptx_module_prepare(module, (uint32_t)number, &status);
  if (refused != NULL) printf("error %s\n", refused);
  else printf("ok %u\n", module->functions[module->kernel_function[number]]->frame_bytes);
}

/* PTX_COMPILE=never|auto|always|check in the environment. */
static void start_compiler(void) {
  static const char *const modes[] = {"never", "auto", "always", "check"};
  const char *word = getenv("PTX_COMPILE");
  int mode = 0;
  if (word == NULL || *word == 0) return;
  while (mode < 4 && strcmp(modes[mode], word) != 0) mode++;
  if (mode == 4) exit(2);
  uint32_t llvm;
  const char *why = ptx_compiler_possible(&llvm);
  compiler = ptx_compiler_start((enum ptx_compile)mode, NULL);
  if (mode > 0 && compiler == NULL) {
    fprintf(stderr, "kernels cannot be compiled: %s\n", why == NULL ? "the compiler does not start" : why);
    exit(3);
  }
}

int main(void) {
  start_compiler();
  const char *analyses = getenv("PTX_ANALYSES");
  if (analyses != NULL) ptx_analyses = (uint32_t)strtoul(analyses, NULL, 0);
  char *line = NULL;
  size_t room = 0;
  ssize_t length;
  while ((length = getline(&line, &room, stdin)) > 0) {
    if (line[length - 1] == '\n') line[length - 1] = 0;
    char word[32];
    int used = 0;
    if (sscanf(line, "%31s%n", word, &used) < 1) continue;
    char *rest = line + used;
    if (strcmp(word, "module") == 0) {
      load(rest);
    } else if (strcmp(word, "analyses") == 0) {
      ptx_analyses = (uint32_t)strtoul(rest, NULL, 0);
      puts("ok");
    } else if (strcmp(word, "frame") == 0) {
      frame(rest + strspn(rest, " "));
    } else if (strcmp(word, "buffer") == 0) {
      unsigned long long size = 0;
      char path[4096];
      int words = sscanf(rest, "%llu %4095s", &size, path);
      if (words < 1) return 2;
      unsigned number = add_buffer(size);
      if (words == 2) {
        size_t have;
        unsigned char *bytes = read_file(path, &have);
        memcpy(buffers[number].bytes, bytes, have < size ? have : size);
        free(bytes);
      }
      printf("ok %u\n", number);
    } else if (strcmp(word, "fresh") == 0) {
      unsigned number = add_buffer(strtoull(rest, NULL, 0));
      buffers[number].written = aligned(buffers[number].size);
      printf("ok %u\n", number);
    } else if (strcmp(word, "check") == 0) {
      checks = (strstr(rest, "race") != NULL ? PTX_CHECK_RACE : 0u) |
               (strstr(rest, "init") != NULL ? PTX_CHECK_INIT : 0u);
      puts("ok");
    } else if (strcmp(word, "most") == 0) {
      most = (uint32_t)strtoul(rest, NULL, 0);
      puts("ok");
    } else if (strcmp(word, "heap") == 0) {
      uint64_t size = strtoull(rest, NULL, 0);
      heap_buffer = add_buffer(size);
      heap = ptx_heap_new(BASE + heap_buffer * STEP, size);
      puts("ok");
    } else if (strcmp(word, "limit") == 0) {
      limit_ms = strtoull(rest, NULL, 0);
      puts("ok");
    } else if (strcmp(word, "stack") == 0) {
      stack_limit = (uint32_t)strtoul(rest, NULL, 0);
      puts("ok");
    } else if (strcmp(word, "helpers") == 0) {
      ptx_pool_free(pool);
      pool = ptx_pool_new((uint32_t)strtoul(rest, NULL, 0));
      puts("ok");
    } else if (strcmp(word, "cooperative") == 0) {
      cooperative = atoi(rest);
      if (workspace == 0) workspace = BASE + add_buffer(64) * STEP;
      puts("ok");
    } else if (strcmp(word, "cluster") == 0) {
      if (sscanf(rest, "%u %u %u", &cluster[0], &cluster[1], &cluster[2]) != 3) return 2;
      puts("ok");
    } else if (strcmp(word, "texture") == 0) {
      texture(rest);
    } else if (strcmp(word, "bind") == 0) {
      char name[1024];
      unsigned number;
      if (sscanf(rest, "%1023s t%u", name, &number) != 2) return 2;
      uint64_t object = OBJECTS + number;
      memcpy(buffers[0].bytes + global(name)->offset, &object, sizeof object);
      puts("ok");
    } else if (strcmp(word, "launch") == 0) {
      launch(rest);
    } else if (strcmp(word, "write") == 0 || strcmp(word, "global") == 0) {
      char name[1024], path[4096];
      if (sscanf(rest, "%1023s %4095s", name, path) != 2) return 2;
      if (word[0] == 'w') {
        unsigned long number = strtoul(name, NULL, 10);
        if (number >= buffer_count) return 2;
        write_file(path, buffers[number].bytes, buffers[number].size);
      } else {
        const struct ptx_global_info *g = global(name);
        write_file(path, buffers[0].bytes + g->offset, g->size);
      }
    } else {
      return 2;
    }
    fflush(stdout);
  }
  if (compiler != NULL) {
    struct ptx_compiler_counts counts;
    const char *why = ptx_compiler_count(compiler, &counts);
    fprintf(stderr,
            "compiled %u refused %u asked %u compared %" PRIu64 " stepped %" PRIu64 " saved %" PRIu64 " %s\n",
            counts.compiled, counts.refused, counts.asked, counts.compared, counts.stepped, counts.saved,
            why);
  }
  free(line);
  for (unsigned i = 0; i < buffer_count; i++) {
    free(buffers[i].bytes);
    free(buffers[i].written);
  }
  ptx_heap_free(heap);
  ptx_pool_free(pool);
  ptx_module_free(module);
  return 0;
}
