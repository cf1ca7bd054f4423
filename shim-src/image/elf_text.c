#include "image/elf_text.h"

#include <elf.h>
#include <string.h>

static Elf64_Shdr section_at(const unsigned char *bytes, const Elf64_Ehdr *header, uint32_t index) {
  Elf64_Shdr section;
  memcpy(&section, bytes + header->e_shoff + (uint64_t)index * sizeof section, sizeof section);
  return section;
}

const char *vgpu_elf_text(const void *file, uint64_t size, uint64_t *length) {
  const unsigned char *bytes = file;
  Elf64_Ehdr header;
  if (size < sizeof header) return NULL;
  memcpy(&header, bytes, sizeof header);
  if (memcmp(header.e_ident, "\177ELF\2\1", 6) != 0 || header.e_ident[EI_ABIVERSION] != VGPU_ELF_TEXT_ABI ||
      header.e_machine != EM_CUDA || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff > size ||
      (uint64_t)header.e_shnum * sizeof(Elf64_Shdr) > size - header.e_shoff ||
      header.e_shstrndx >= header.e_shnum) {
    return NULL;
  }
  const Elf64_Shdr names = section_at(bytes, &header, header.e_shstrndx);
  if (names.sh_offset > size || names.sh_size > size - names.sh_offset) return NULL;
  static const char wanted[] = VGPU_ELF_TEXT_SECTION;
  for (uint32_t i = 0; i < header.e_shnum; i++) {
    const Elf64_Shdr section = section_at(bytes, &header, i);
    if (section.sh_type != SHT_PROGBITS || section.sh_name > names.sh_size ||
        names.sh_size - section.sh_name < sizeof wanted ||
        memcmp(bytes + names.sh_offset + section.sh_name, wanted, sizeof wanted) != 0) {
      continue;
    }
    if (section.sh_offset > size || section.sh_size == 0 || section.sh_size > size - section.sh_offset)
      return NULL;
    const char *text = (const char *)bytes + section.sh_offset;
    if (text[section.sh_size - 1] != '\0') return NULL;
    *length = strlen(text);
    return text;
  }
  return NULL;
}
