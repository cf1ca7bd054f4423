#ifndef VGPU_PRIVATE_MD2_H
#define VGPU_PRIVATE_MD2_H

#include <stddef.h>
#include <stdint.h>

enum { VGPU_MD2_BLOCK = 16, VGPU_MD2_DIGEST = 16 };

struct vgpu_md2 {
  uint8_t state[VGPU_MD2_DIGEST];
  uint8_t checksum[VGPU_MD2_BLOCK];
  uint8_t buffer[VGPU_MD2_BLOCK];
  size_t buffered; /* bytes waiting in buffer, 0..15 */
};

void vgpu_md2_init(struct vgpu_md2 *md2);
void vgpu_md2_update(struct vgpu_md2 *md2, const void *data, size_t size);
/* After this call *md2 must be initialised again before it is used. */
void vgpu_md2_final(struct vgpu_md2 *md2, uint8_t digest[VGPU_MD2_DIGEST]);

#endif
