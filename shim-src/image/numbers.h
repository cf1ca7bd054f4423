/*
 * Reads numbers of an image, in this machine's byte order, at any alignment. The caller has checked the
 * bounds.
 */
#ifndef VGPU_IMAGE_NUMBERS_H
#define VGPU_IMAGE_NUMBERS_H

#include <stdint.h>
#include <string.h>

static inline uint16_t u16_at(const unsigned char *at) {
  uint16_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static inline uint32_t u32_at(const unsigned char *at) {
  uint32_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static inline uint64_t u64_at(const unsigned char *at) {
  uint64_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

#endif
