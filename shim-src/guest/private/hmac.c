#include "guest/private/hmac.h"

#include <string.h>

static void keyed(struct vgpu_md2 *md2, const uint8_t key[VGPU_MD2_BLOCK], uint8_t pad) {
  uint8_t padded[VGPU_MD2_BLOCK];

  for (int i = 0; i < VGPU_MD2_BLOCK; i++) padded[i] = key[i] ^ pad;
  vgpu_md2_init(md2);
  vgpu_md2_update(md2, padded, sizeof padded);
}

void vgpu_hmac_md2_init(struct vgpu_hmac_md2 *hmac, const void *key, size_t size) {
  memset(hmac->key, 0, sizeof hmac->key);
  if (size > VGPU_MD2_BLOCK) {
    struct vgpu_md2 md2;
    vgpu_md2_init(&md2);
    vgpu_md2_update(&md2, key, size);
    vgpu_md2_final(&md2, hmac->key);
  } else if (size > 0) {
    memcpy(hmac->key, key, size);
  }
  keyed(&hmac->inner, hmac->key, 0x36);
}

void vgpu_hmac_md2_update(struct vgpu_hmac_md2 *hmac, const void *data, size_t size) {
  vgpu_md2_update(&hmac->inner, data, size);
}

void vgpu_hmac_md2_final(struct vgpu_hmac_md2 *hmac, uint8_t mac[VGPU_MD2_DIGEST]) {
  uint8_t digest[VGPU_MD2_DIGEST];
  struct vgpu_md2 outer;

  vgpu_md2_final(&hmac->inner, digest);
  keyed(&outer, hmac->key, 0x5c);
  vgpu_md2_update(&outer, digest, sizeof digest);
  vgpu_md2_final(&outer, mac);
}
