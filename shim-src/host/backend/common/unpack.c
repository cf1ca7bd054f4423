#include "host/backend/common/unpack.h"

#include <lz4.h>
#include <string.h>
#include <zstd.h>

bool vgpu_unpack(const struct vgpu_entry *entry, unsigned char *to) {
  if ((entry->flags & VGPU_ENTRY_ZSTD) != 0) {
    size_t size = ZSTD_decompress(to, entry->unpacked, entry->payload, entry->payload_size);
    return !ZSTD_isError(size) && size == entry->unpacked;
  }
  if ((entry->flags & VGPU_ENTRY_LZ4) != 0) {
    /* Sizes are below VGPU_IMAGE_MAX and fit an int. */
    int size = LZ4_decompress_safe((const char *)entry->payload, (char *)to, (int)entry->payload_size,
                                   (int)entry->unpacked);
    return size >= 0 && (uint64_t)size == entry->unpacked;
  }
  memcpy(to, entry->payload, entry->unpacked);
  return true;
}
