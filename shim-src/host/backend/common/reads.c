#include "host/backend/common/reads.h"

#include <string.h>

bool vgpu_reads_pack(struct vgpu_bulk *bulk, uint32_t *at, uint64_t size, const void *bytes) {
  const uint64_t padded = bytes == NULL ? 0 : (size + 7) & ~(uint64_t)7;
  if (bulk->out_capacity - *at < sizeof size || bulk->out_capacity - *at - sizeof size < padded) return false;
  memcpy(bulk->out + *at, &size, sizeof size);
  *at += (uint32_t)sizeof size;
  if (bytes == NULL) return true;
  memcpy(bulk->out + *at, bytes, size);
  memset(bulk->out + *at + size, 0, padded - size);
  *at += (uint32_t)padded;
  return true;
}
