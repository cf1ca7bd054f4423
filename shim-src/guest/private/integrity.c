#include "guest/private/integrity.h"

#include "guest/private/hmac.h"

#include <string.h>

/* Little-endian on every machine. */
static void put32(struct vgpu_hmac_md2 *hmac, uint32_t value) {
  uint8_t bytes[4];

  for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(value >> (8 * i));
  vgpu_hmac_md2_update(hmac, bytes, sizeof bytes);
}

static void put64(struct vgpu_hmac_md2 *hmac, uint64_t value) {
  put32(hmac, (uint32_t)value);
  put32(hmac, (uint32_t)(value >> 32));
}

void vgpu_integrity_answer(const struct vgpu_integrity_question *question,
                           const struct vgpu_integrity_device *devices, unsigned count,
                           uint8_t answer[VGPU_INTEGRITY_ANSWER]) {
  /* For versions that end in 0 and 1 the answer is constant. */
  static const uint8_t constant[2][VGPU_INTEGRITY_ANSWER] = {
      {0x5c, 0x67, 0xcb, 0x03, 0x1c, 0x18, 0x41, 0x33, 0xe8, 0xd1, 0x4c, 0x1f, 0xaa, 0x83, 0xd3, 0x8e},
      {0x5c, 0x67, 0xcb, 0x03, 0x1c, 0x18, 0x41, 0x18, 0xe8, 0xd1, 0x4c, 0x1f, 0xaa, 0x83, 0xd3, 0x8e},
  };
  static const uint8_t key[16] = {
      0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f,
  };

  if (question->runtime_version % 10 < 2) {
    memcpy(answer, constant[question->runtime_version % 10], VGPU_INTEGRITY_ANSWER);
    return;
  }

  struct vgpu_hmac_md2 hmac;
  vgpu_hmac_md2_init(&hmac, key, sizeof key);
  put32(&hmac, question->driver_version);
  put32(&hmac, question->runtime_version);
  put32(&hmac, question->process);
  put32(&hmac, question->thread);
  put64(&hmac, question->cudart_table);
  put64(&hmac, question->integrity_table);
  put64(&hmac, question->function);
  put64(&hmac, question->seconds);
  for (unsigned i = 0; i < count; i++) {
    vgpu_hmac_md2_update(&hmac, devices[i].uuid, sizeof devices[i].uuid);
    put32(&hmac, (uint32_t)devices[i].pci_domain);
    put32(&hmac, (uint32_t)devices[i].pci_bus);
    put32(&hmac, (uint32_t)devices[i].pci_device);
  }
  vgpu_hmac_md2_final(&hmac, answer);
}
