#include "host/backend/software/ptx/compile/object.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#define SECTIONS 64u

struct object {
  const unsigned char *bytes;
  size_t size;
  const Elf64_Shdr *sections;
  uint32_t count;
  size_t place[SECTIONS]; /* in the result, + 1; 0: not loaded */
};

static bool within(const struct object *o, uint64_t offset, uint64_t size) {
  return offset <= o->size && size <= o->size - offset;
}

static bool refuse(char *why, size_t why_size, const char *reason) {
  snprintf(why, why_size, "%s", reason);
  return false;
}

static bool read_header(struct object *o) {
  const Elf64_Ehdr *header = (const void *)o->bytes;
  if (o->size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_type != ET_REL ||
      header->e_machine != EM_X86_64 || header->e_shentsize != sizeof *o->sections ||
      header->e_shnum > SECTIONS || header->e_shoff % 8 != 0 ||
      !within(o, header->e_shoff, (uint64_t)header->e_shnum * sizeof *o->sections))
    return false;
  o->sections = (const void *)(o->bytes + header->e_shoff);
  o->count = header->e_shnum;
  for (uint32_t i = 0; i < o->count; i++) {
    const Elf64_Shdr *s = &o->sections[i];
    if (s->sh_type != SHT_NOBITS && !within(o, s->sh_offset, s->sh_size)) return false;
    if (s->sh_offset % 8 != 0 && (s->sh_type == SHT_SYMTAB || s->sh_type == SHT_RELA)) return false;
    if (s->sh_addralign > 4096 || (s->sh_addralign & (s->sh_addralign - 1)) != 0) return false;
  }
  return true;
}

static bool is_named(const struct object *o, const Elf64_Shdr *symbols, const Elf64_Sym *symbol,
                     const char *name) {
  if (symbols->sh_link >= o->count) return false;
  const Elf64_Shdr *names = &o->sections[symbols->sh_link];
  size_t length = strlen(name) + 1;
  return symbol->st_name < names->sh_size && names->sh_size - symbol->st_name >= length &&
         memcmp(o->bytes + names->sh_offset + symbol->st_name, name, length) == 0;
}

static bool relocate(const struct object *o, const Elf64_Shdr *list, unsigned char *to, size_t used) {
  if (list->sh_info >= o->count || list->sh_link >= o->count) return false;
  if (o->place[list->sh_info] == 0) return true; /* of notes, not of code */
  const Elf64_Shdr *symbols = &o->sections[list->sh_link];
  const Elf64_Rela *relocations = (const void *)(o->bytes + list->sh_offset);
  for (uint64_t i = 0; i < list->sh_size / sizeof *relocations; i++) {
    const Elf64_Rela *r = &relocations[i];
    uint64_t number = ELF64_R_SYM(r->r_info), type = ELF64_R_TYPE(r->r_info);
    if (number >= symbols->sh_size / sizeof(Elf64_Sym) || symbols->sh_type != SHT_SYMTAB) return false;
    const Elf64_Sym *symbol = (const Elf64_Sym *)(const void *)(o->bytes + symbols->sh_offset) + number;
    if (symbol->st_shndx >= o->count || o->place[symbol->st_shndx] == 0) return false;
    if (type != R_X86_64_PC32 && type != R_X86_64_PLT32) return false;
    size_t at = o->place[list->sh_info] - 1 + r->r_offset;
    int64_t value = (int64_t)(o->place[symbol->st_shndx] - 1 + symbol->st_value) + r->r_addend - (int64_t)at;
    if (at > used || used - at < 4 || value != (int32_t)value) return false;
    int32_t word = (int32_t)value;
    memcpy(to + at, &word, sizeof word);
  }
  return true;
}

bool ptx_object_place(const unsigned char *object, size_t size, const char *symbol, unsigned char *to,
                      size_t room, size_t *used, size_t *entry, char *why, size_t why_size) {
  struct object o = {.bytes = object, .size = size};
  if (!read_header(&o)) return refuse(why, why_size, "LLVM's object file cannot be read");
  *used = 0;
  for (uint32_t i = 0; i < o.count; i++) {
    const Elf64_Shdr *s = &o.sections[i];
    if ((s->sh_flags & SHF_ALLOC) == 0 || s->sh_size == 0) continue;
    if ((s->sh_flags & SHF_WRITE) != 0 || s->sh_type != SHT_PROGBITS) {
      if (s->sh_type == SHT_X86_64_UNWIND) continue;
      return refuse(why, why_size, "the code has data that is written");
    }
    size_t align = s->sh_addralign == 0 ? 1 : s->sh_addralign, at = (*used + align - 1) / align * align;
    if (at > room || s->sh_size > room - at) return refuse(why, why_size, "no room for the code");
    memcpy(to + at, object + s->sh_offset, s->sh_size);
    o.place[i] = at + 1;
    *used = at + s->sh_size;
  }
  bool found = false;
  for (uint32_t i = 0; i < o.count; i++) {
    const Elf64_Shdr *s = &o.sections[i];
    if (s->sh_type == SHT_RELA && !relocate(&o, s, to, *used))
      return refuse(why, why_size, "the code needs a symbol from outside");
    for (uint64_t k = 0; s->sh_type == SHT_SYMTAB && k < s->sh_size / sizeof(Elf64_Sym); k++) {
      const Elf64_Sym *sym = (const Elf64_Sym *)(const void *)(object + s->sh_offset) + k;
      if (sym->st_shndx >= o.count || o.place[sym->st_shndx] == 0 || !is_named(&o, s, sym, symbol)) continue;
      *entry = o.place[sym->st_shndx] - 1 + sym->st_value;
      found = *entry < *used;
    }
  }
  return found || refuse(why, why_size, "the code has no beginning");
}
