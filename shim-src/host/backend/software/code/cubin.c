/*
 * A cubin is an ELF64 file for machine 190. Kernels are global functions in sections .text.NAME. Their
 * parameters are in .nv.info.NAME (KPARAM_INFO), registers and stack in .nv.info. The size of .nv.shared.NAME
 * is their static shared memory. Variables are objects in .nv.global, .nv.global.init and .nv.constantN.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/code/cubin_info.h"
#include "host/backend/software/code/program.h"
#include "image/numbers.h"

#define MACHINE_CUDA 190

struct cubin {
  const unsigned char *bytes;
  uint64_t size;
  uint64_t sections;
  uint32_t section_count;
  const char *names;
  uint64_t names_size;
  Elf64_Shdr symbols; /* of .symtab; sh_size 0: none */
  const char *strings;
  uint64_t strings_size;
  uint64_t constant_bytes; /* of .nv.constant3, for the program's own constants */
};

static bool within(const struct cubin *cubin, uint64_t offset, uint64_t size) {
  return offset <= cubin->size && size <= cubin->size - offset;
}

static Elf64_Shdr section_at(const struct cubin *cubin, uint32_t index) {
  Elf64_Shdr section;
  memcpy(&section, cubin->bytes + cubin->sections + (uint64_t)index * sizeof section, sizeof section);
  return section;
}

/* Returns a name in a string table; "" if its end is not inside the table. */
static const char *string_at(const char *table, uint64_t size, uint64_t offset) {
  if (offset >= size || memchr(table + offset, '\0', size - offset) == NULL) return "";
  return table + offset;
}

static const char *section_name(const struct cubin *cubin, const Elf64_Shdr *section) {
  return string_at(cubin->names, cubin->names_size, section->sh_name);
}

static bool open_strings(const struct cubin *cubin, uint32_t index, const char **table, uint64_t *size) {
  if (index >= cubin->section_count) return false;
  Elf64_Shdr section = section_at(cubin, index);
  if (section.sh_type != SHT_STRTAB || !within(cubin, section.sh_offset, section.sh_size)) return false;
  *table = (const char *)cubin->bytes + section.sh_offset;
  *size = section.sh_size;
  return true;
}

static bool open_cubin(struct cubin *cubin, Elf64_Ehdr *header) {
  if (cubin->size < sizeof *header) return false;
  memcpy(header, cubin->bytes, sizeof *header);
  if (memcmp(header->e_ident, "\177ELF\2\1", 6) != 0 || header->e_machine != MACHINE_CUDA ||
      header->e_shentsize != sizeof(Elf64_Shdr) ||
      !within(cubin, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr))) {
    return false;
  }
  cubin->sections = header->e_shoff;
  cubin->section_count = header->e_shnum;
  if (!open_strings(cubin, header->e_shstrndx, &cubin->names, &cubin->names_size)) return false;
  for (uint32_t i = 0; i < cubin->section_count; i++) {
    Elf64_Shdr section = section_at(cubin, i);
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
        !within(cubin, section.sh_offset, section.sh_size)) {
      return false;
    }
    if (section.sh_type == SHT_SYMTAB) {
      if (section.sh_entsize != sizeof(Elf64_Sym) ||
          !open_strings(cubin, section.sh_link, &cubin->strings, &cubin->strings_size)) {
        return false;
      }
      cubin->symbols = section;
    }
    if (strcmp(section_name(cubin, &section), ".nv.constant3") == 0) cubin->constant_bytes = section.sh_size;
  }
  return true;
}

static Elf64_Sym symbol_at(const struct cubin *cubin, uint64_t index) {
  Elf64_Sym symbol;
  memcpy(&symbol, cubin->bytes + cubin->symbols.sh_offset + index * sizeof symbol, sizeof symbol);
  return symbol;
}

/*
 * Returns the architecture of the machine code. Its place in the flags changed with the ELF's ABI version 8.
 */
static uint32_t architecture_of(const Elf64_Ehdr *header) {
  return header->e_ident[EI_ABIVERSION] >= 8 ? header->e_flags >> 8 & 0xff : header->e_flags & 0xff;
}

struct info {
  uint8_t name;
  const unsigned char *value;
  uint32_t size; /* 2 for values in place */
};

/* Reads the next attribute. Returns 1, 0 at the end, or -1 if it is invalid. */
static int next_info(const unsigned char *bytes, uint64_t size, uint64_t *at, struct info *info) {
  if (*at == size) return 0;
  if (size - *at < 4) return -1;
  uint8_t form = bytes[*at];
  info->name = bytes[*at + 1];
  info->value = bytes + *at + 2;
  info->size = 2;
  *at += 4;
  if (form != VGPU_INFO_SIZED) return 1;
  info->size = u16_at(info->value);
  if (info->size > size - *at) return -1;
  info->value = bytes + *at;
  *at += info->size;
  return 1;
}

static bool take_parameter(struct vgpu_program_function *function, const struct info *info) {
  if (info->size < 12) return false;
  uint32_t index = u16_at(info->value + 4), offset = u16_at(info->value + 6);
  uint32_t packed = u32_at(info->value + 8);
  uint32_t size = info->name == VGPU_INFO_PARAMETER ? packed >> 18 : packed;
  if (index >= VGPU_PARAMETERS_MAX || size == 0 || size > VGPU_PARAMETER_BYTES_MAX) return false;
  if (index >= function->parameter_count) {
    struct vgpu_parameter *array = realloc(function->parameters, (index + 1) * sizeof *array);
    if (array == NULL) return false;
    memset(array + function->parameter_count, 0, (index + 1 - function->parameter_count) * sizeof *array);
    function->parameters = array;
    function->parameter_count = index + 1;
  }
  function->parameters[index] = (struct vgpu_parameter){.offset = offset, .size = size};
  return true;
}

static bool every_parameter_told(const struct vgpu_program_function *function) {
  for (uint32_t i = 0; i < function->parameter_count; i++) {
    if (function->parameters[i].size == 0) return false;
  }
  return true;
}

static int32_t product(const unsigned char *at, int32_t most) {
  uint64_t all = (uint64_t)u32_at(at) * u32_at(at + 4);
  if (all > 1u << 20) return most;
  all *= u32_at(at + 8);
  return all == 0 || all > (uint64_t)most ? most : (int32_t)all;
}

static bool read_function_info(const struct cubin *cubin, const Elf64_Shdr *section,
                               const struct vgpu_program_target *target,
                               struct vgpu_program_function *function) {
  const unsigned char *bytes = cubin->bytes + section->sh_offset;
  uint64_t at = 0;
  struct info info;
  int more;
  while ((more = next_info(bytes, section->sh_size, &at, &info)) == 1) {
    switch (info.name) {
      case VGPU_INFO_PARAMETER:
      case VGPU_INFO_PARAMETER_LONG:
        if (!take_parameter(function, &info)) return false;
        break;
      case VGPU_INFO_PARAMETER_BYTES:
        function->parameter_bytes = u16_at(info.value);
        break;
      case VGPU_INFO_MAX_THREADS:
      case VGPU_INFO_REQUIRED_THREADS:
        if (info.size < 12) return false;
        function->attributes[VGPU_FUNCTION_MAX_THREADS] = product(info.value, target->max_threads);
        break;
      case VGPU_INFO_CLUSTER:
        if (info.size < 12) return false;
        for (int i = 0; i < 3; i++) {
          function->attributes[VGPU_FUNCTION_CLUSTER_WIDTH + i] = (int32_t)u32_at(info.value + i * 4);
        }
        break;
      case VGPU_INFO_CLUSTER_MUST:
        function->attributes[VGPU_FUNCTION_CLUSTER_MUST] = 1;
        break;
      default:
        break;
    }
  }
  return more == 0 && every_parameter_told(function);
}

static int32_t bounded(uint64_t value) {
  return value > INT32_MAX ? INT32_MAX : (int32_t)value;
}

/*
 * From 9.0 on, devices keep 1 KiB of each block's shared memory for themselves, and the section's size
 * contains it.
 */
static int32_t static_shared(uint64_t size, uint32_t architecture) {
  const uint64_t reserved = 1024;
  return bounded(architecture >= 90 && size >= reserved ? size - reserved : size);
}

static bool read_sections(const struct cubin *cubin, const struct vgpu_program_target *target,
                          uint32_t architecture, struct vgpu_program_function *function) {
  for (uint32_t i = 0; i < cubin->section_count; i++) {
    Elf64_Shdr section = section_at(cubin, i);
    const char *name = section_name(cubin, &section);
    if (strncmp(name, ".nv.info.", 9) == 0 && strcmp(name + 9, function->name) == 0) {
      if (section.sh_type == SHT_NOBITS || !read_function_info(cubin, &section, target, function))
        return false;
    } else if (strncmp(name, ".nv.shared.", 11) == 0 && strcmp(name + 11, function->name) == 0) {
      function->attributes[VGPU_FUNCTION_SHARED] = static_shared(section.sh_size, architecture);
    }
  }
  return true;
}

static bool read_common_info(const struct cubin *cubin, struct vgpu_program *program,
                             const uint64_t *symbol_of) {
  for (uint32_t i = 0; i < cubin->section_count; i++) {
    Elf64_Shdr section = section_at(cubin, i);
    if (strcmp(section_name(cubin, &section), ".nv.info") != 0 || section.sh_type == SHT_NOBITS) continue;
    uint64_t at = 0;
    struct info info;
    int more;
    while ((more = next_info(cubin->bytes + section.sh_offset, section.sh_size, &at, &info)) == 1) {
      if ((info.name != VGPU_INFO_REGISTERS && info.name != VGPU_INFO_FRAME_SIZE) || info.size < 8) continue;
      for (size_t j = 0; j < program->function_count; j++) {
        if (symbol_of[j] != u32_at(info.value)) continue;
        program->functions[j]
            .attributes[info.name == VGPU_INFO_REGISTERS ? VGPU_FUNCTION_REGISTERS : VGPU_FUNCTION_LOCAL] =
            bounded(u32_at(info.value + 4));
      }
    }
    if (more < 0) return false;
  }
  return true;
}

static bool take_global(const struct cubin *cubin, const struct vgpu_program_target *target,
                        const Elf64_Sym *symbol, struct vgpu_program *program) {
  if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= cubin->section_count || symbol->st_size == 0)
    return true;
  Elf64_Shdr section = section_at(cubin, symbol->st_shndx);
  const char *where = section_name(cubin, &section);
  if (strncmp(where, ".nv.global", 10) != 0 && strcmp(where, ".nv.constant3") != 0) return true;
  const char *name = string_at(cubin->strings, cubin->strings_size, symbol->st_name);
  if (name[0] == '\0') return true;
  if (symbol->st_value > section.sh_size || symbol->st_size > section.sh_size - symbol->st_value)
    return false;
  struct vgpu_program_global *global = vgpu_program_add_global(program, name, strlen(name));
  if (global == NULL) return false;
  global->size = symbol->st_size;
  if (section.sh_type == SHT_NOBITS) return true;
  if (program->bytes > target->memory_limit || symbol->st_size > target->memory_limit - program->bytes) {
    return false;
  }
  global->initial = malloc(symbol->st_size);
  if (global->initial == NULL) return false;
  memcpy(global->initial, cubin->bytes + section.sh_offset + symbol->st_value, symbol->st_size);
  program->bytes += symbol->st_size;
  return true;
}

static bool is_kernel(const struct cubin *cubin, const Elf64_Sym *symbol) {
  if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF ||
      symbol->st_shndx >= cubin->section_count || (symbol->st_other & VGPU_CUBIN_ENTRY_POINT) == 0) {
    return false;
  }
  Elf64_Shdr section = section_at(cubin, symbol->st_shndx);
  return strncmp(section_name(cubin, &section), ".text.", 6) == 0;
}

static void set_defaults(const struct vgpu_program_target *target, uint32_t architecture,
                         uint32_t virtual_architecture, const struct cubin *cubin,
                         struct vgpu_program_function *function) {
  function->attributes[VGPU_FUNCTION_MAX_THREADS] = target->max_threads;
  function->attributes[VGPU_FUNCTION_CONSTANT] = bounded(cubin->constant_bytes);
  function->attributes[VGPU_FUNCTION_PTX_VERSION] =
      (int32_t)(virtual_architecture == 0 ? architecture : virtual_architecture);
  function->attributes[VGPU_FUNCTION_BINARY_VERSION] = (int32_t)architecture;
  function->attributes[VGPU_FUNCTION_CARVEOUT] = -1;
}

static bool take_symbols(const struct cubin *cubin, const struct vgpu_program_target *target,
                         const Elf64_Ehdr *header, struct vgpu_program *program, uint64_t *symbol_of) {
  uint64_t count = cubin->symbols.sh_size / sizeof(Elf64_Sym);
  uint32_t architecture = architecture_of(header);
  uint32_t virtual_architecture = header->e_ident[EI_ABIVERSION] >= 8 ? 0 : header->e_flags >> 16 & 0xff;
  for (uint64_t i = 0; i < count; i++) {
    Elf64_Sym symbol = symbol_at(cubin, i);
    if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT) {
      if (!take_global(cubin, target, &symbol, program)) return false;
    } else if (is_kernel(cubin, &symbol)) {
      const char *name = string_at(cubin->strings, cubin->strings_size, symbol.st_name);
      if (name[0] == '\0') return false;
      struct vgpu_program_function *function = vgpu_program_add_function(program, name, strlen(name));
      if (function == NULL) return false;
      symbol_of[program->function_count - 1] = i;
      set_defaults(target, architecture, virtual_architecture, cubin, function);
      if (!read_sections(cubin, target, architecture, function)) return false;
      function->attributes[VGPU_FUNCTION_MAX_DYNAMIC] =
          target->shared_block - function->attributes[VGPU_FUNCTION_SHARED];
      if (function->attributes[VGPU_FUNCTION_MAX_DYNAMIC] < 0)
        function->attributes[VGPU_FUNCTION_MAX_DYNAMIC] = 0;
    }
  }
  return true;
}

int32_t vgpu_cubin_read(const unsigned char *bytes, uint64_t size, const struct vgpu_program_target *target,
                        struct vgpu_program *program, char *why, size_t why_size) {
  struct cubin cubin = {.bytes = bytes, .size = size};
  Elf64_Ehdr header;
  snprintf(why, why_size, "the cubin is cut off, or its sections do not agree");
  if (!open_cubin(&cubin, &header)) return VGPU_PROGRAM_INVALID_IMAGE;
  uint32_t architecture = architecture_of(&header);
  if (architecture / 10 != target->architecture / 10 || architecture > target->architecture) {
    snprintf(why, why_size, "the cubin is for sm_%u, the device is %u.%u", architecture,
             target->architecture / 10, target->architecture % 10);
    return VGPU_PROGRAM_NO_BINARY;
  }
  uint64_t *symbol_of = calloc(cubin.symbols.sh_size / sizeof(Elf64_Sym) + 1, sizeof *symbol_of);
  if (symbol_of == NULL) return VGPU_PROGRAM_NO_MEMORY;
  bool read = take_symbols(&cubin, target, &header, program, symbol_of) &&
              read_common_info(&cubin, program, symbol_of);
  free(symbol_of);
  return read ? VGPU_PROGRAM_OK : VGPU_PROGRAM_INVALID_IMAGE;
}
