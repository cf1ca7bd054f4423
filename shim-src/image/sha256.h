/* SHA-256 (FIPS 180-4): names an image, so that it travels once. */
#ifndef VGPU_IMAGE_SHA256_H
#define VGPU_IMAGE_SHA256_H

#include <stdint.h>

struct vgpu_hash {
  uint64_t words[4]; /* the digest's 32 bytes, as they come */
};

void vgpu_sha256(const void *bytes, uint64_t size, struct vgpu_hash *hash);

#endif
