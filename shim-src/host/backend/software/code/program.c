#include "host/backend/software/code/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/common/rdc_link.h"
#include "host/backend/common/unpack.h"
#include "image/container.h"
#include "image/elf_text.h"

static void *grown(void *array, size_t count, size_t size) {
  /* The capacity doubles at powers of two; between them there is room. */
  if ((count & (count - 1)) != 0) return array;
  return realloc(array, (count == 0 ? 1 : count * 2) * size);
}

struct vgpu_program_function *vgpu_program_add_function(struct vgpu_program *program, const char *name,
                                                        size_t length) {
  void *array = grown(program->functions, program->function_count, sizeof *program->functions);
  if (array == NULL) return NULL;
  program->functions = array;
  struct vgpu_program_function *function = &program->functions[program->function_count];
  *function = (struct vgpu_program_function){.name = strndup(name, length)};
  if (function->name == NULL) return NULL;
  program->function_count++;
  program->bytes += sizeof *function + length;
  return function;
}

struct vgpu_program_global *vgpu_program_add_global(struct vgpu_program *program, const char *name,
                                                    size_t length) {
  void *array = grown(program->globals, program->global_count, sizeof *program->globals);
  if (array == NULL) return NULL;
  program->globals = array;
  struct vgpu_program_global *global = &program->globals[program->global_count];
  *global = (struct vgpu_program_global){.name = strndup(name, length)};
  if (global->name == NULL) return NULL;
  program->global_count++;
  program->bytes += sizeof *global + length;
  return global;
}

void vgpu_program_free(struct vgpu_program *program) {
  for (size_t i = 0; i < program->function_count; i++) {
    free(program->functions[i].name);
    free(program->functions[i].parameters);
  }
  for (size_t i = 0; i < program->global_count; i++) {
    free(program->globals[i].name);
    free(program->globals[i].initial);
  }
  free(program->functions);
  free(program->globals);
  free(program->ptx);
  *program = (struct vgpu_program){0};
}

static int by_function_name(const void *a, const void *b) {
  const struct vgpu_program_function *left = a, *right = b;
  return strcmp(left->name, right->name);
}

static int by_global_name(const void *a, const void *b) {
  const struct vgpu_program_global *left = a, *right = b;
  return strcmp(left->name, right->name);
}

static bool parameters_sound(const struct vgpu_program_function *function) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < function->parameter_count; i++) {
    const struct vgpu_parameter *parameter = &function->parameters[i];
    if (parameter->offset < end) return false;
    end = (uint64_t)parameter->offset + parameter->size;
  }
  return end <= function->parameter_bytes && function->parameter_bytes <= VGPU_PARAMETER_BYTES_MAX;
}

int32_t vgpu_program_finish(struct vgpu_program *program) {
  if (program->function_count > 1) {
    qsort(program->functions, program->function_count, sizeof *program->functions, by_function_name);
  }
  if (program->global_count > 1) {
    qsort(program->globals, program->global_count, sizeof *program->globals, by_global_name);
  }
  for (size_t i = 0; i < program->function_count; i++) {
    if (!parameters_sound(&program->functions[i])) return VGPU_PROGRAM_INVALID_IMAGE;
    if (i > 0 && strcmp(program->functions[i - 1].name, program->functions[i].name) == 0) {
      return VGPU_PROGRAM_INVALID_IMAGE;
    }
  }
  return VGPU_PROGRAM_OK;
}

static int compare_name(const char *name, size_t length, const char *other) {
  int order = strncmp(name, other, length);
  return order != 0 ? order : other[length] == '\0' ? 0 : -1;
}

const struct vgpu_program_function *vgpu_program_function(const struct vgpu_program *program,
                                                          const char *name, size_t length) {
  for (size_t low = 0, high = program->function_count; low < high;) {
    size_t middle = low + (high - low) / 2;
    int order = compare_name(name, length, program->functions[middle].name);
    if (order == 0) return &program->functions[middle];
    if (order > 0) low = middle + 1;
    else high = middle;
  }
  return NULL;
}

long vgpu_program_global(const struct vgpu_program *program, const char *name, size_t length) {
  for (size_t low = 0, high = program->global_count; low < high;) {
    size_t middle = low + (high - low) / 2;
    int order = compare_name(name, length, program->globals[middle].name);
    if (order == 0) return (long)middle;
    if (order > 0) low = middle + 1;
    else high = middle;
  }
  return -1;
}

static unsigned narrowness(const struct vgpu_entry *entry) {
  if ((entry->flags & VGPU_ENTRY_SPECIFIC) != 0) return 2;
  return (entry->flags & VGPU_ENTRY_FAMILY) != 0 ? 1 : 0;
}

/*
 * Chooses the best entry of a kind: the latest architecture that fits. Code for exactly this architecture is
 * better than code for its family, and that is better than general code.
 */
static void choose(const struct vgpu_entry *entry, uint32_t architecture, struct vgpu_entry *best) {
  if (!vgpu_entry_fits(entry, architecture)) return;
  if (best->whole == NULL || entry->architecture > best->architecture ||
      (entry->architecture == best->architecture && narrowness(entry) > narrowness(best))) {
    *best = *entry;
  }
}

/* Returns the unpacked bytes of an entry, zero-terminated, for free(). NULL: *result has the reason. */
static unsigned char *unpacked(const struct vgpu_entry *entry, const struct vgpu_program_target *target,
                               int32_t *result) {
  *result = VGPU_PROGRAM_NO_MEMORY;
  if (entry->unpacked > target->memory_limit) return NULL;
  unsigned char *bytes = malloc(entry->unpacked + 1);
  if (bytes == NULL) return NULL;
  bytes[entry->unpacked] = '\0';
  if (vgpu_unpack(entry, bytes)) return bytes;
  free(bytes);
  *result = VGPU_PROGRAM_INVALID_IMAGE;
  return NULL;
}

/*
 * `text` is zero-terminated and from malloc(). The program keeps it, because copying 260 MB takes longer than
 * reading.
 */
static int32_t read_ptx_text(char *text, uint64_t size, const struct vgpu_program_target *target,
                             struct vgpu_program *program, bool facts, char *why, size_t why_size) {
  int32_t result = VGPU_PROGRAM_OK;
  if (facts) result = vgpu_ptx_read(text, strlen(text), target, program, why, why_size);
  if (result != VGPU_PROGRAM_OK) {
    free(text);
    return result;
  }
  program->ptx = text;
  program->bytes += size;
  return VGPU_PROGRAM_OK;
}

/* A linked image of the software device has a text instead of machine code. */
static int32_t read_elf(const unsigned char *bytes, uint64_t size, const struct vgpu_program_target *target,
                        struct vgpu_program *program, char *why, size_t why_size) {
  uint64_t length;
  const char *text = vgpu_elf_text(bytes, size, &length);
  if (text == NULL) return vgpu_cubin_read(bytes, size, target, program, why, why_size);
  char *copy = length > target->memory_limit ? NULL : strdup(text);
  if (copy == NULL) return VGPU_PROGRAM_NO_MEMORY;
  return read_ptx_text(copy, length, target, program, true, why, why_size);
}

static int32_t read_elf_entry(const struct vgpu_entry *entry, const struct vgpu_program_target *target,
                              struct vgpu_program *program, char *why, size_t why_size) {
  int32_t result;
  unsigned char *bytes = unpacked(entry, target, &result);
  if (bytes == NULL) return result;
  result = read_elf(bytes, entry->unpacked, target, program, why, why_size);
  free(bytes);
  return result;
}

/*
 * Machine code and PTX are two compilations, with launch bounds of their own. CUB asks for the version of a
 * kernel's PTX and launches for it, so the attributes must be those of the text that runs. If it cannot be
 * read, those of the machine code stay.
 */
static void take_attributes(const char *text, uint32_t architecture, const struct vgpu_program_target *target,
                            struct vgpu_program *program) {
  if (program->function_count == 0 ||
      program->functions[0].attributes[VGPU_FUNCTION_PTX_VERSION] == (int32_t)architecture)
    return;
  struct vgpu_program read = {0};
  char why[256];
  if (vgpu_ptx_read(text, strlen(text), target, &read, why, sizeof why) == VGPU_PROGRAM_OK &&
      vgpu_program_finish(&read) == VGPU_PROGRAM_OK) {
    for (size_t i = 0; i < program->function_count; i++) {
      struct vgpu_program_function *function = &program->functions[i];
      const struct vgpu_program_function *runs =
          vgpu_program_function(&read, function->name, strlen(function->name));
      if (runs != NULL) memcpy(function->attributes, runs->attributes, sizeof function->attributes);
    }
  }
  vgpu_program_free(&read);
}

static int32_t read_fatbin(const void *image, uint64_t size, const struct vgpu_program_target *target,
                           struct vgpu_program *program, char *why, size_t why_size) {
  struct vgpu_entry entry, elf = {0}, ptx = {0};
  uint64_t offset = 0;
  int more;
  while ((more = vgpu_fatbin_next(image, size, &offset, &entry)) == 1) {
    if (entry.kind == VGPU_ENTRY_ELF) choose(&entry, target->architecture, &elf);
    else if (entry.kind == VGPU_ENTRY_PTX) choose(&entry, target->architecture, &ptx);
  }
  if (more < 0) {
    snprintf(why, why_size, "the fat binary's sizes do not agree");
    return VGPU_PROGRAM_INVALID_IMAGE;
  }
  if (elf.whole == NULL && ptx.whole == NULL) {
    snprintf(why, why_size, "the fat binary has nothing for compute capability %u.%u",
             target->architecture / 10, target->architecture % 10);
    return VGPU_PROGRAM_NO_BINARY;
  }
  int32_t result = VGPU_PROGRAM_OK;
  if (elf.whole != NULL) result = read_elf_entry(&elf, target, program, why, why_size);
  if (result != VGPU_PROGRAM_OK || program->ptx != NULL) return result;
  program->machine_code = elf.whole != NULL;
  if (ptx.whole == NULL) return result;
  char *text;
  uint64_t length = ptx.unpacked;
  if (vgpu_rdc_count(image, size, &ptx) > 1) {
    result = vgpu_rdc_link(image, size, &ptx, target->memory_limit, &text, &length, why, why_size);
  } else {
    text = (char *)unpacked(&ptx, target, &result);
  }
  /* Without PTX text such a program is loaded, as on a GPU, but its kernels cannot run. */
  if (text == NULL) return elf.whole != NULL && result == VGPU_PROGRAM_INVALID_PTX ? VGPU_PROGRAM_OK : result;
  take_attributes(text, ptx.architecture, target, program);
  return read_ptx_text(text, length, target, program, elf.whole == NULL, why, why_size);
}

/*
 * True if a directive comes first, behind blanks and comments. Other text is no image, as with NVIDIA's
 * driver.
 */
static bool begins_as_ptx(const char *text) {
  for (;;) {
    text += strspn(text, " \t\r\n\v\f");
    if (text[0] != '/' || (text[1] != '/' && text[1] != '*')) return text[0] == '.';
    const char *end = strstr(text + 2, text[1] == '/' ? "\n" : "*/");
    if (end == NULL) return false;
    text = end + (text[1] == '/' ? 1 : 2);
  }
}

int32_t vgpu_program_read(unsigned char *image, uint64_t size, const struct vgpu_program_target *target,
                          struct vgpu_program *program, char *why, size_t why_size) {
  *program = (struct vgpu_program){0};
  int32_t result = VGPU_PROGRAM_INVALID_IMAGE;
  snprintf(why, why_size, "neither a fat binary nor a cubin nor PTX");
  switch (vgpu_image_kind(image, size)) {
    case VGPU_IMAGE_FATBIN:
      result = read_fatbin(image, size, target, program, why, why_size);
      break;
    case VGPU_IMAGE_ELF:
      result = read_elf(image, size, target, program, why, why_size);
      break;
    case VGPU_IMAGE_PTX: {
      char *text = realloc(image, size + 1);
      result = VGPU_PROGRAM_NO_MEMORY;
      if (text == NULL) break;
      image = NULL;
      text[size] = '\0';
      if (!begins_as_ptx(text)) {
        free(text);
        result = VGPU_PROGRAM_INVALID_IMAGE;
        break;
      }
      result = read_ptx_text(text, size, target, program, true, why, why_size);
      break;
    }
    case VGPU_IMAGE_NONE:
      break;
  }
  free(image);
  if (result == VGPU_PROGRAM_OK) {
    result = vgpu_program_finish(program);
    if (result != VGPU_PROGRAM_OK)
      snprintf(why, why_size, "two functions of one name, or parameters overlap");
  }
  if (result == VGPU_PROGRAM_OK && program->bytes > target->memory_limit) result = VGPU_PROGRAM_NO_MEMORY;
  if (result == VGPU_PROGRAM_NO_MEMORY) snprintf(why, why_size, "the image takes more memory than allowed");
  if (result != VGPU_PROGRAM_OK) vgpu_program_free(program);
  else if (why_size > 0) why[0] = '\0';
  return result;
}
