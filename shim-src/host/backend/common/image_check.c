#include "host/backend/common/image_check.h"

#include <elf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/common/unpack.h"
#include "image/container.h"
#include "image/numbers.h"
#include "cuda_results.h"

#define MACHINE_CUDA 190

struct file {
  const unsigned char *bytes;
  uint64_t size;
};

static bool within(const struct file *file, uint64_t offset, uint64_t size) {
  return offset <= file->size && size <= file->size - offset;
}

static Elf64_Shdr section_at(const struct file *file, const Elf64_Ehdr *header, uint32_t index) {
  Elf64_Shdr section;
  memcpy(&section, file->bytes + header->e_shoff + (uint64_t)index * sizeof section, sizeof section);
  return section;
}

static bool has_bytes(const Elf64_Shdr *section) {
  return section->sh_type != SHT_NULL && section->sh_type != SHT_NOBITS;
}

static bool strings_sound(const struct file *file, const Elf64_Shdr *section) {
  return section->sh_type == SHT_STRTAB && section->sh_size > 0 &&
         file->bytes[section->sh_offset + section->sh_size - 1] == '\0';
}

static bool symbols_sound(const struct file *file, const Elf64_Ehdr *header, const Elf64_Shdr *section) {
  if (section->sh_entsize != sizeof(Elf64_Sym) || section->sh_link >= header->e_shnum) return false;
  Elf64_Shdr strings = section_at(file, header, section->sh_link);
  if (!strings_sound(file, &strings)) return false;
  for (uint64_t i = 0; i < section->sh_size / sizeof(Elf64_Sym); i++) {
    Elf64_Sym symbol;
    memcpy(&symbol, file->bytes + section->sh_offset + i * sizeof symbol, sizeof symbol);
    if (symbol.st_name >= strings.sh_size) return false;
    if (symbol.st_shndx < SHN_LORESERVE && symbol.st_shndx >= header->e_shnum) return false;
  }
  return true;
}

static bool segments_sound(const struct file *file, const Elf64_Ehdr *header) {
  if (header->e_phnum == 0) return true;
  if (header->e_phentsize != sizeof(Elf64_Phdr) ||
      !within(file, header->e_phoff, (uint64_t)header->e_phnum * sizeof(Elf64_Phdr))) {
    return false;
  }
  for (uint32_t i = 0; i < header->e_phnum; i++) {
    Elf64_Phdr segment;
    memcpy(&segment, file->bytes + header->e_phoff + (uint64_t)i * sizeof segment, sizeof segment);
    if (!within(file, segment.p_offset, segment.p_filesz)) return false;
  }
  return true;
}

/* `machine` 0: any. */
static bool elf_sound(const struct file *file, uint16_t machine) {
  Elf64_Ehdr header;
  if (file->size < sizeof header) return false;
  memcpy(&header, file->bytes, sizeof header);
  if (memcmp(header.e_ident, "\177ELF\2\1", 6) != 0 || (machine != 0 && header.e_machine != machine) ||
      header.e_ehsize != sizeof header || header.e_shentsize != sizeof(Elf64_Shdr) ||
      !within(file, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr)) ||
      header.e_shstrndx >= header.e_shnum || !segments_sound(file, &header)) {
    return false;
  }
  /* First the bounds of all sections, then the references between them. */
  for (uint32_t i = 0; i < header.e_shnum; i++) {
    Elf64_Shdr section = section_at(file, &header, i);
    if (has_bytes(&section) && !within(file, section.sh_offset, section.sh_size)) return false;
  }
  Elf64_Shdr names = section_at(file, &header, header.e_shstrndx);
  if (!strings_sound(file, &names)) return false;
  for (uint32_t i = 0; i < header.e_shnum; i++) {
    Elf64_Shdr section = section_at(file, &header, i);
    if (section.sh_name >= names.sh_size) return false;
    bool relocates = section.sh_type == SHT_REL || section.sh_type == SHT_RELA;
    if (relocates && (section.sh_link >= header.e_shnum || section.sh_info >= header.e_shnum)) return false;
    if (section.sh_type == SHT_SYMTAB && !symbols_sound(file, &header, &section)) return false;
  }
  return true;
}

static int32_t fail(int32_t result, char *why, size_t why_size, const char *text) {
  snprintf(why, why_size, "%s", text);
  return result;
}

static int32_t walk_elf(const struct file *file, char *why, size_t why_size) {
  return elf_sound(file, MACHINE_CUDA)
             ? CUDA_SUCCESS
             : fail(CUDA_ERROR_INVALID_IMAGE, why, why_size, "a cubin whose parts lie outside of it");
}

static int32_t walk_entry(const struct vgpu_entry *entry, uint64_t limit, char *why, size_t why_size) {
  if (entry->kind != VGPU_ENTRY_ELF) return CUDA_SUCCESS; /* text, or an entry that the driver ignores */
  if ((entry->flags & (VGPU_ENTRY_LZ4 | VGPU_ENTRY_ZSTD)) == 0) {
    return walk_elf(&(struct file){.bytes = entry->payload, .size = entry->payload_size}, why, why_size);
  }
  unsigned char *bytes = entry->unpacked > limit ? NULL : malloc(entry->unpacked + 1);
  if (bytes == NULL)
    return fail(CUDA_ERROR_OUT_OF_MEMORY, why, why_size, "a packed part takes more memory than allowed");
  int32_t result =
      vgpu_unpack(entry, bytes)
          ? walk_elf(&(struct file){.bytes = bytes, .size = entry->unpacked}, why, why_size)
          : fail(CUDA_ERROR_INVALID_IMAGE, why, why_size, "a packed part that cannot be unpacked");
  free(bytes);
  return result;
}

static int32_t walk_fatbin(const struct file *file, uint64_t limit, char *why, size_t why_size) {
  struct vgpu_entry entry;
  uint64_t offset = 0;
  int more;
  while ((more = vgpu_fatbin_next(file->bytes, file->size, &offset, &entry)) == 1) {
    int32_t result = walk_entry(&entry, limit, why, why_size);
    if (result != CUDA_SUCCESS) return result;
  }
  return more == 0 ? CUDA_SUCCESS
                   : fail(CUDA_ERROR_INVALID_IMAGE, why, why_size, "a fat binary whose sizes do not agree");
}

int32_t vgpu_image_check(const void *image, uint64_t size, uint64_t limit, char *why, size_t why_size) {
  const struct file file = {.bytes = image, .size = size};
  if (size >= 4 && u32_at(file.bytes) == VGPU_WRAPPER_MAGIC)
    return fail(CUDA_ERROR_INVALID_IMAGE, why, why_size, "nvcc's wrapper, which is a pointer of the guest's");
  switch (vgpu_image_kind(image, size)) {
    case VGPU_IMAGE_FATBIN:
      return walk_fatbin(&file, limit, why, why_size);
    case VGPU_IMAGE_ELF:
      return walk_elf(&file, why, why_size);
    case VGPU_IMAGE_PTX:
      return CUDA_SUCCESS;
    case VGPU_IMAGE_NONE:
      break;
  }
  return fail(CUDA_ERROR_INVALID_IMAGE, why, why_size, "neither a fat binary nor a cubin nor PTX");
}

bool vgpu_object_check(const void *object, uint64_t size) {
  return elf_sound(&(struct file){.bytes = object, .size = size}, 0);
}
