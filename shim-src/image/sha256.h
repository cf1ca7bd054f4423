/* SHA-256 (FIPS 180-4). The hash names an image, so that it is sent only once. */
#ifndef VGPU_IMAGE_SHA256_H
#define VGPU_IMAGE_SHA256_H

#include <stdint.h>

struct vgpu_hash {
  uint64_t words[4]; /* the 32 bytes of the digest, in order */
};

void vgpu_sha256(const void *bytes, uint64_t size, struct vgpu_hash *hash);

#endif
