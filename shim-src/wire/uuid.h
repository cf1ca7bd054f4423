/* A device's UUID as programs and people write it: "GPU-5a0d1c6e-80b0-4c1d-9e55-1f00a1b2c301". */
#ifndef VGPU_WIRE_UUID_H
#define VGPU_WIRE_UUID_H

#include <stdint.h>
#include <stdio.h>

#define VGPU_UUID_TEXT 41 /* four characters of prefix, 36 of the UUID, zero */

/* `prefix`: "GPU-", or "MIG-" for a part of a GPU. */
static inline void vgpu_uuid_text(const char *prefix, const uint8_t uuid[16], char text[VGPU_UUID_TEXT]) {
  char *at = text + snprintf(text, 5, "%s", prefix);
  for (int i = 0; i < 16; i++) {
    at += snprintf(at, 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
  }
}

#endif
