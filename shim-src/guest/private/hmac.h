#ifndef VGPU_PRIVATE_HMAC_H
#define VGPU_PRIVATE_HMAC_H

#include "guest/private/md2.h"

struct vgpu_hmac_md2 {
  struct vgpu_md2 inner;
  uint8_t key[VGPU_MD2_BLOCK];
};

/* A key longer than a block is replaced by its digest (RFC 2104). */
void vgpu_hmac_md2_init(struct vgpu_hmac_md2 *hmac, const void *key, size_t size);
void vgpu_hmac_md2_update(struct vgpu_hmac_md2 *hmac, const void *data, size_t size);
void vgpu_hmac_md2_final(struct vgpu_hmac_md2 *hmac, uint8_t mac[VGPU_MD2_DIGEST]);

#endif
