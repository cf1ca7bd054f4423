#include "image/container.h"

#include <string.h>

#include "image/numbers.h"

static bool may_be_text(unsigned char byte) {
  return (byte >= ' ' && byte <= '~') || (byte >= '\t' && byte <= '\r');
}

enum vgpu_image_kind vgpu_image_kind(const void *image, uint64_t size) {
  const unsigned char *bytes = image;
  /* Byte by byte: a text may be shorter than the magic. */
  if (size == 0 || bytes[0] == '\0') return VGPU_IMAGE_NONE;
  if (may_be_text(bytes[0]) && bytes[0] != 'P') return VGPU_IMAGE_PTX;
  if (size >= 4 && bytes[0] == 0x7f && bytes[1] == 'E' && bytes[2] == 'L' && bytes[3] == 'F') {
    return VGPU_IMAGE_ELF;
  }
  if (size >= 4 && bytes[0] == 0x50 && bytes[1] == 0xed && bytes[2] == 0x55 && bytes[3] == 0xba) {
    return VGPU_IMAGE_FATBIN;
  }
  return VGPU_IMAGE_NONE;
}

#define ENTRY_HEADER_LEAST 64u
#define ENTRY_HEADER_MOST 65536u

int vgpu_fatbin_next(const void *image, uint64_t size, uint64_t *offset, struct vgpu_entry *entry) {
  const unsigned char *bytes = image;
  if (size < VGPU_FATBIN_HEADER || u32_at(bytes) != VGPU_FATBIN_MAGIC) return -1;
  uint64_t header = u16_at(bytes + 6), content = u64_at(bytes + 8);
  if (u16_at(bytes + 4) != 1 || header < VGPU_FATBIN_HEADER || header > size || content > size - header) {
    return -1;
  }
  uint64_t end = header + content;
  uint64_t at = *offset == 0 ? header : *offset;
  if (at == end) return 0;
  if (at > end || end - at < ENTRY_HEADER_LEAST) return -1;
  const unsigned char *start = bytes + at;
  uint64_t entry_header = u32_at(start + 4), padded = u64_at(start + 8), packed = u32_at(start + 16);
  if (entry_header < ENTRY_HEADER_LEAST || entry_header > ENTRY_HEADER_MOST || entry_header > end - at ||
      padded > end - at - entry_header) {
    return -1;
  }
  *entry = (struct vgpu_entry){.kind = u16_at(start),
                               .architecture = u32_at(start + 28),
                               .flags = u64_at(start + 40),
                               .whole = start,
                               .whole_size = entry_header + padded,
                               .payload = start + entry_header,
                               .payload_size = padded,
                               .unpacked = padded};
  if ((entry->flags & (VGPU_ENTRY_LZ4 | VGPU_ENTRY_ZSTD)) != 0) {
    if (packed == 0 || packed > padded) return -1;
    entry->payload_size = packed;
    entry->unpacked = u64_at(start + 56);
    if (entry->unpacked > VGPU_IMAGE_MAX) return -1;
  }
  *offset = at + entry->whole_size;
  return 1;
}

#define ELF_HEADER 64u

uint64_t vgpu_elf_length(const void *image, uint64_t limit) {
  const unsigned char *bytes = image;
  if (limit < ELF_HEADER || memcmp(bytes, "\177ELF\2\1", 6) != 0) return 0;
  uint64_t segments = u64_at(bytes + 32), sections = u64_at(bytes + 40);
  uint64_t segment_bytes = (uint64_t)u16_at(bytes + 54) * u16_at(bytes + 56);
  uint64_t section_size = u16_at(bytes + 58), section_count = u16_at(bytes + 60);
  if (sections > limit || section_size * section_count > limit - sections) return 0;
  if (segments > limit || segment_bytes > limit - segments) return 0;
  if (section_count > 0 && section_size < 64) return 0;
  uint64_t length = ELF_HEADER;
  if (segment_bytes > 0 && segments + segment_bytes > length) length = segments + segment_bytes;
  if (section_count > 0 && sections + section_size * section_count > length) {
    length = sections + section_size * section_count;
  }
  for (uint64_t i = 0; i < section_count; i++) {
    const unsigned char *section = bytes + sections + i * section_size;
    uint64_t start = u64_at(section + 24), size = u64_at(section + 32);
    /* NULL and NOBITS sections have no bytes in the file. */
    if (u32_at(section + 4) == 0 || u32_at(section + 4) == 8) continue;
    if (start > limit || size > limit - start) return 0;
    if (start + size > length) length = start + size;
  }
  return length;
}

bool vgpu_entry_fits(const struct vgpu_entry *entry, uint32_t device) {
  if ((entry->flags & VGPU_ENTRY_SPECIFIC) != 0) return entry->architecture == device;
  if (entry->architecture > device) return false;
  if (entry->kind == VGPU_ENTRY_PTX && (entry->flags & VGPU_ENTRY_FAMILY) == 0) return true;
  /* Machine code runs on later devices of the same major architecture. */
  return (entry->kind == VGPU_ENTRY_ELF || entry->kind == VGPU_ENTRY_PTX) &&
         entry->architecture / 10 == device / 10;
}
