#include "host/session/printed.h"

#include <stdlib.h>
#include <string.h>

bool vgpu_printed_add(struct vgpu_printed *printed, const char *text, size_t length) {
  if (printed->bytes == NULL) printed->bytes = malloc(VGPU_PRINTED_BYTES);
  if (printed->bytes == NULL) return false;
  if (length > VGPU_PRINTED_BYTES) {
    text += length - VGPU_PRINTED_BYTES;
    length = VGPU_PRINTED_BYTES;
  }
  size_t free = VGPU_PRINTED_BYTES - printed->used, over = length > free ? length - free : 0;
  printed->start = (printed->start + over) % VGPU_PRINTED_BYTES;
  printed->used -= over;
  size_t end = (printed->start + printed->used) % VGPU_PRINTED_BYTES;
  size_t first = VGPU_PRINTED_BYTES - end < length ? VGPU_PRINTED_BYTES - end : length;
  memcpy(printed->bytes + end, text, first);
  memcpy(printed->bytes, text + first, length - first);
  printed->used += length;
  return true;
}

size_t vgpu_printed_take(struct vgpu_printed *printed, unsigned char *to, size_t room) {
  size_t taken = 0;
  while (taken < room && printed->used > 0) {
    size_t piece = VGPU_PRINTED_BYTES - printed->start;
    if (piece > printed->used) piece = printed->used;
    if (piece > room - taken) piece = room - taken;
    memcpy(to + taken, printed->bytes + printed->start, piece);
    printed->start = (printed->start + piece) % VGPU_PRINTED_BYTES;
    printed->used -= piece;
    taken += piece;
  }
  return taken;
}
