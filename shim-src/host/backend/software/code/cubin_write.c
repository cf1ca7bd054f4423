#include "host/backend/software/code/cubin_write.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/code/cubin_info.h"
#include "image/elf_text.h"

#define OSABI_CUDA 0x41 /* as ptxas of CUDA 13 writes it */
#define SECTION_INFO (SHT_LOPROC + 0)
#define SECTION_COMPATIBILITY (SHT_LOPROC + 0x86)
#define TEXT_ALIGNMENT 128
#define SHARED_RESERVED 1024u /* of each block, from 9.0 on */

struct bytes {
  unsigned char *at;
  size_t size;
  size_t room;
  bool failed;
};

/* Appends bytes, or zeros if `from` is NULL. */
static void put(struct bytes *bytes, const void *from, size_t size) {
  if (size == 0 || bytes->failed) return;
  if (size > bytes->room - bytes->size) {
    size_t room = (bytes->size + size) * 2;
    unsigned char *grown = realloc(bytes->at, room);
    if (grown == NULL) {
      bytes->failed = true;
      return;
    }
    bytes->at = grown;
    bytes->room = room;
  }
  if (from != NULL) memcpy(bytes->at + bytes->size, from, size);
  else memset(bytes->at + bytes->size, 0, size);
  bytes->size += size;
}

static void align(struct bytes *bytes, size_t alignment) {
  put(bytes, NULL, (alignment - bytes->size % alignment) % alignment);
}

struct writer {
  const struct vgpu_program *program;
  const struct vgpu_program_target *target;
  struct bytes file;
  struct bytes sections; /* Elf64_Shdr, in order */
  struct bytes section_names;
  struct bytes symbols;
  struct bytes strings;
};

/* Symbol 0 is the null symbol; then come the kernels, then the variables. */
enum { SECTION_NAMES = 1, SECTION_STRINGS = 2, SECTION_SYMBOLS = 3 };
#define OTHER_SECTIONS 11 /* at most, beside three of each kernel */

static uint32_t count_of(const struct writer *writer) {
  return (uint32_t)(writer->sections.size / sizeof(Elf64_Shdr));
}

static uint32_t add_name(struct bytes *table, const char *first, const char *second) {
  uint32_t at = (uint32_t)table->size;
  put(table, first, strlen(first));
  put(table, second, strlen(second) + 1);
  return at;
}

/*
 * Adds the header of a section whose bytes come next in the file. The section's name is `name` and `of`
 * together.
 */
static void add_section(struct writer *writer, const char *name, const char *of, Elf64_Shdr section) {
  section.sh_name = add_name(&writer->section_names, name, of);
  section.sh_offset = writer->file.size;
  put(&writer->sections, &section, sizeof section);
}

static void put_info(struct bytes *to, uint8_t name, const void *value, uint16_t size) {
  const uint8_t head[2] = {VGPU_INFO_SIZED, name};
  put(to, head, sizeof head);
  put(to, &size, sizeof size);
  put(to, value, size);
}

static void put_kernel_info(struct writer *writer, const struct vgpu_program_function *function) {
  struct bytes *to = &writer->file;
  for (uint32_t i = function->parameter_count; i-- > 0;) {
    const struct vgpu_parameter *parameter = &function->parameters[i];
    struct {
      uint32_t index;
      uint16_t ordinal;
      uint16_t offset;
      uint32_t size;
    } value = {.ordinal = (uint16_t)i, .offset = (uint16_t)parameter->offset, .size = parameter->size};
    bool is_long = parameter->size >= 1u << 14;
    /* The short form has the size in the upper 14 bits, then that it is not in a constant bank. */
    if (!is_long) value.size = parameter->size << 18 | 0x1f000;
    put_info(to, is_long ? VGPU_INFO_PARAMETER_LONG : VGPU_INFO_PARAMETER, &value, sizeof value);
  }
  const uint8_t bytes_head[2] = {VGPU_INFO_IN_PLACE, VGPU_INFO_PARAMETER_BYTES};
  const uint16_t bytes = (uint16_t)function->parameter_bytes;
  put(to, bytes_head, sizeof bytes_head);
  put(to, &bytes, sizeof bytes);
  const uint32_t threads[3] = {(uint32_t)function->attributes[VGPU_FUNCTION_MAX_THREADS], 1, 1};
  if (function->attributes[VGPU_FUNCTION_MAX_THREADS] < writer->target->max_threads)
    put_info(to, VGPU_INFO_MAX_THREADS, threads, sizeof threads);
  const int32_t *cluster = &function->attributes[VGPU_FUNCTION_CLUSTER_WIDTH];
  if (cluster[0] > 0) put_info(to, VGPU_INFO_CLUSTER, cluster, 3 * sizeof *cluster);
  if (function->attributes[VGPU_FUNCTION_CLUSTER_MUST] != 0) put_info(to, VGPU_INFO_CLUSTER_MUST, NULL, 0);
}

static void put_common_info(struct writer *writer) {
  for (size_t i = 0; i < writer->program->function_count; i++) {
    const int32_t *attributes = writer->program->functions[i].attributes;
    const uint32_t registers[2] = {(uint32_t)(i + 1), (uint32_t)attributes[VGPU_FUNCTION_REGISTERS]};
    const uint32_t frame[2] = {(uint32_t)(i + 1), (uint32_t)attributes[VGPU_FUNCTION_LOCAL]};
    put_info(&writer->file, VGPU_INFO_REGISTERS, registers, sizeof registers);
    put_info(&writer->file, VGPU_INFO_FRAME_SIZE, frame, sizeof frame);
  }
}

static void set_size(struct writer *writer) {
  if (writer->sections.failed) return;
  Elf64_Shdr *section = (Elf64_Shdr *)(void *)writer->sections.at + count_of(writer) - 1;
  section->sh_size = writer->file.size - section->sh_offset;
}

static void add_symbol(struct writer *writer, const char *name, Elf64_Sym symbol) {
  symbol.st_name = add_name(&writer->strings, "", name);
  put(&writer->symbols, &symbol, sizeof symbol);
}

static void add_note(struct writer *writer, const char *name, uint32_t type, const void *content,
                     uint32_t size) {
  static const char owner[12] = "NVIDIA Corp";
  const Elf64_Nhdr head = {.n_namesz = sizeof owner, .n_descsz = size, .n_type = type};
  add_section(writer, name, "", (Elf64_Shdr){.sh_type = SHT_NOTE, .sh_addralign = 4});
  put(&writer->file, &head, sizeof head);
  put(&writer->file, owner, sizeof owner);
  put(&writer->file, content, size);
  align(&writer->file, 4);
  set_size(writer);
}

/*
 * The text, a note of the tool, a note of the architecture and the toolkit (13.0), and one of ptxas's
 * compatibility attributes. cuobjdump of CUDA 13 reads the section with index 6 as the second note, and
 * requires the attributes.
 */
static void add_origin(struct writer *writer) {
  static const char tool[] = "\0vgpu-hostd\0the linker of the simulated device";
  struct {
    uint32_t version, object, name, tool_version, build, options; /* offsets in the strings */
    char strings[sizeof tool];
  } from = {.version = 2, .name = 1, .tool_version = 12};
  memcpy(from.strings, tool, sizeof tool);
  const struct {
    uint16_t version;
    uint16_t architecture;
    uint32_t toolkit;
  } about = {.version = 2, .architecture = (uint16_t)writer->target->architecture, .toolkit = 130};
  const uint8_t attribute[4] = {2, 9, 0, 0};
  add_section(writer, VGPU_ELF_TEXT_SECTION, "", (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_addralign = 1});
  put(&writer->file, writer->program->ptx, strlen(writer->program->ptx) + 1);
  set_size(writer);
  align(&writer->file, 4);
  add_note(writer, ".note.nv.tkinfo", 2000, &from, sizeof from);
  add_note(writer, ".note.nv.cuinfo", 1000, &about, sizeof about);
  add_section(writer, ".nv.compat", "", (Elf64_Shdr){.sh_type = SECTION_COMPATIBILITY, .sh_addralign = 4});
  put(&writer->file, attribute, sizeof attribute);
  set_size(writer);
}

static void add_kernels(struct writer *writer) {
  const struct vgpu_program *program = writer->program;
  add_section(writer, ".nv.info", "",
              (Elf64_Shdr){.sh_type = SECTION_INFO, .sh_link = SECTION_SYMBOLS, .sh_addralign = 4});
  put_common_info(writer);
  set_size(writer);
  for (size_t i = 0; i < program->function_count; i++) {
    const struct vgpu_program_function *function = &program->functions[i];
    uint32_t text = count_of(writer);
    add_symbol(writer, function->name,
               (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                           .st_other = VGPU_CUBIN_ENTRY_POINT,
                           .st_shndx = (uint16_t)text});
    add_section(writer, ".text.", function->name,
                (Elf64_Shdr){.sh_type = SHT_PROGBITS,
                             .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                             .sh_addralign = TEXT_ALIGNMENT});
    add_section(writer, ".nv.info.", function->name,
                (Elf64_Shdr){.sh_type = SECTION_INFO,
                             .sh_flags = SHF_INFO_LINK,
                             .sh_link = SECTION_SYMBOLS,
                             .sh_info = text,
                             .sh_addralign = 4});
    put_kernel_info(writer, function);
    set_size(writer);
    uint64_t shared = (uint64_t)function->attributes[VGPU_FUNCTION_SHARED];
    if (shared == 0) continue;
    if (writer->target->architecture >= 90) shared += SHARED_RESERVED;
    add_section(writer, ".nv.shared.", function->name,
                (Elf64_Shdr){.sh_type = SHT_NOBITS,
                             .sh_flags = SHF_WRITE | SHF_ALLOC | SHF_INFO_LINK,
                             .sh_size = shared,
                             .sh_info = text,
                             .sh_addralign = 16});
  }
}

enum kind { CONSTANT, INITIALISED, ZEROS, KINDS };

static enum kind kind_of(const struct vgpu_program_global *global) {
  return global->constant ? CONSTANT : global->initial != NULL ? INITIALISED : ZEROS;
}

static void add_variables(struct writer *writer, enum kind kind) {
  static const char *const names[KINDS] = {".nv.constant3", ".nv.global.init", ".nv.global"};
  uint32_t index = count_of(writer);
  uint64_t size = 0;
  bool any = false;
  for (size_t i = 0; i < writer->program->global_count; i++) {
    const struct vgpu_program_global *global = &writer->program->globals[i];
    if (kind_of(global) != kind || global->size == 0) continue;
    if (!any) {
      align(&writer->file, 256);
      add_section(writer, names[kind], "",
                  (Elf64_Shdr){.sh_type = kind == ZEROS ? SHT_NOBITS : SHT_PROGBITS,
                               .sh_flags = SHF_ALLOC | (kind == CONSTANT ? 0 : SHF_WRITE),
                               .sh_addralign = 256});
    }
    any = true;
    if (kind != ZEROS) put(&writer->file, NULL, (256 - size % 256) % 256);
    size = (size + 255) / 256 * 256;
    add_symbol(writer, global->name,
               (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
                           .st_shndx = (uint16_t)index,
                           .st_value = size,
                           .st_size = global->size});
    if (kind != ZEROS) put(&writer->file, global->initial, global->size);
    size += global->size;
  }
  if (!any || writer->sections.failed) return;
  ((Elf64_Shdr *)(void *)writer->sections.at)[index].sh_size = size;
}

static void finish_section(struct writer *writer, uint32_t index, const struct bytes *content) {
  align(&writer->file, 8);
  if (writer->sections.failed || content->failed) return;
  Elf64_Shdr *section = (Elf64_Shdr *)(void *)writer->sections.at + index;
  section->sh_offset = writer->file.size;
  section->sh_size = content->size;
  put(&writer->file, content->at, content->size);
}

static void begin(struct writer *writer) {
  const Elf64_Ehdr room = {0};
  const Elf64_Sym no_symbol = {0};
  const Elf64_Shdr no_section = {0};
  put(&writer->file, &room, sizeof room);
  put(&writer->section_names, "", 1);
  put(&writer->strings, "", 1);
  put(&writer->symbols, &no_symbol, sizeof no_symbol);
  put(&writer->sections, &no_section, sizeof no_section);
  add_section(writer, ".shstrtab", "", (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_addralign = 1});
  add_section(writer, ".strtab", "", (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_addralign = 1});
  add_section(writer, ".symtab", "",
              (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                           .sh_link = SECTION_STRINGS,
                           .sh_info = 1, /* the first global symbol */
                           .sh_addralign = 8,
                           .sh_entsize = sizeof(Elf64_Sym)});
}

static void finish(struct writer *writer) {
  finish_section(writer, SECTION_NAMES, &writer->section_names);
  finish_section(writer, SECTION_STRINGS, &writer->strings);
  finish_section(writer, SECTION_SYMBOLS, &writer->symbols);
  align(&writer->file, 8);
  const Elf64_Ehdr header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
                                         EV_CURRENT, OSABI_CUDA, VGPU_ELF_TEXT_ABI},
                             .e_type = ET_EXEC,
                             .e_machine = EM_CUDA,
                             .e_version = EV_CURRENT,
                             .e_shoff = writer->file.size,
                             .e_flags = 0x6000004 | writer->target->architecture
                                                        << 8, /* as ptxas of CUDA 13 writes them */
                             .e_ehsize = sizeof header,
                             .e_shentsize = sizeof(Elf64_Shdr),
                             .e_shnum = (uint16_t)count_of(writer),
                             .e_shstrndx = SECTION_NAMES};
  if (!writer->file.failed) memcpy(writer->file.at, &header, sizeof header);
  put(&writer->file, writer->sections.at, writer->sections.size);
}

unsigned char *vgpu_cubin_write(const struct vgpu_program *program, const struct vgpu_program_target *target,
                                uint64_t *size, char *why, size_t why_size) {
  struct writer writer = {.program = program, .target = target};
  if (program->function_count > (SHN_LORESERVE - OTHER_SECTIONS) / 3) {
    snprintf(why, why_size, "%zu kernels are more than one image can have", program->function_count);
    return NULL;
  }
  snprintf(why, why_size, "the image takes more memory than there is");
  begin(&writer);
  add_origin(&writer);
  add_kernels(&writer);
  for (enum kind kind = CONSTANT; kind < KINDS; kind++) add_variables(&writer, kind);
  finish(&writer);
  bool failed = writer.file.failed || writer.sections.failed || writer.section_names.failed ||
                writer.symbols.failed || writer.strings.failed;
  free(writer.sections.at);
  free(writer.section_names.at);
  free(writer.symbols.at);
  free(writer.strings.at);
  *size = writer.file.size;
  if (!failed) return writer.file.at;
  free(writer.file.at);
  return NULL;
}
