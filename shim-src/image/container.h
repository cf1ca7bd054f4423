/*
 * The forms of code that a program gives the driver: a fat binary (wrapped or bare), a cubin (ELF) or PTX
 * text. The length is in the image, not in the call. The guest picks the parts that fit its devices; the host
 * checks every bound.
 *
 * A fat binary is a header of 16 bytes (magic 0xBA55ED50, u16 version, u16 header size, u64 size of the rest)
 * and entries. An entry is a header (its own size at offset 4) and a payload (padded size at 8, compressed
 * size without padding at 16, architecture at 28, flags at 40, unpacked size at 56).
 */
#ifndef VGPU_IMAGE_CONTAINER_H
#define VGPU_IMAGE_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VGPU_IMAGE_MAX (1ull << 30) /* bytes; nothing longer is accepted as an image */
#define VGPU_WRAPPER_MAGIC 0x466243b1u
#define VGPU_FATBIN_MAGIC 0xba55ed50u
#define VGPU_FATBIN_HEADER 16u

enum vgpu_image_kind { VGPU_IMAGE_NONE = 0, VGPU_IMAGE_FATBIN = 1, VGPU_IMAGE_ELF = 2, VGPU_IMAGE_PTX = 3 };

#define VGPU_ENTRY_PTX 1u
#define VGPU_ENTRY_ELF 2u
#define VGPU_ENTRY_LZ4 0x2000ull
#define VGPU_ENTRY_ZSTD 0x8000ull
/* The code runs only on exactly this architecture, such as sm_90a. */
#define VGPU_ENTRY_SPECIFIC 0x100000ull
/* The code runs on its architecture and later ones of the same major number, such as sm_100f. */
#define VGPU_ENTRY_FAMILY 0x200000ull

struct vgpu_entry {
  uint32_t kind;
  uint32_t architecture; /* 90 is 9.0 */
  uint64_t flags;
  const unsigned char *whole; /* header and payload */
  uint64_t whole_size;
  const unsigned char *payload;
  uint64_t payload_size; /* without padding */
  uint64_t unpacked;     /* bytes after unpacking; payload_size if it is not packed */
};

/* Recognises an image by its first bytes; reads at most `size` of them. */
enum vgpu_image_kind vgpu_image_kind(const void *bytes, uint64_t size);

/*
 * Reads the next entry of a bare fat binary of `size` bytes; *offset is 0 at first. Returns 1: *entry is
 * filled; 0: there are no more; -1: the rest is invalid.
 */
int vgpu_fatbin_next(const void *bytes, uint64_t size, uint64_t *offset, struct vgpu_entry *entry);

/* Returns the length that an ELF64 file states; 0 if it is not ELF64, or states more than `limit`. */
uint64_t vgpu_elf_length(const void *bytes, uint64_t limit);

/* True if a device of compute capability `device` (90 is 9.0) can use the entry. */
bool vgpu_entry_fits(const struct vgpu_entry *entry, uint32_t device);

#endif
