/*
 * private_digest md2 HEX | hmac KEYHEX HEX | answer DRIVER RUNTIME PID THREAD CUDART TABLE FUNCTION
 * SECONDS [UUIDHEX DOMAIN BUS DEVICE]...
 * Prints the digest in hex. Input is fed in pieces of 1, 2, 3... bytes, so that buffering is tried
 * too.
 */
#include "guest/private/hmac.h"
#include "guest/private/integrity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t from_hex(const char *hex, uint8_t *bytes, size_t capacity) {
  size_t size = strlen(hex) / 2;
  if (size > capacity) exit(2);
  for (size_t i = 0; i < size; i++) {
    unsigned value;
    if (sscanf(hex + 2 * i, "%2x", &value) != 1) exit(2);
    bytes[i] = (uint8_t)value;
  }
  return size;
}

static void print(const uint8_t *digest) {
  for (int i = 0; i < 16; i++) printf("%02x", digest[i]);
  printf("\n");
}

int main(int argc, char **argv) {
  static uint8_t message[4096], key[4096];
  uint8_t digest[16];

  if (argc == 3 && strcmp(argv[1], "md2") == 0) {
    size_t size = from_hex(argv[2], message, sizeof message), at = 0;
    struct vgpu_md2 md2;
    vgpu_md2_init(&md2);
    for (size_t piece = 1; at < size; piece++) {
      size_t take = piece < size - at ? piece : size - at;
      vgpu_md2_update(&md2, message + at, take);
      at += take;
    }
    vgpu_md2_final(&md2, digest);
  } else if (argc == 4 && strcmp(argv[1], "hmac") == 0) {
    size_t key_size = from_hex(argv[2], key, sizeof key);
    size_t size = from_hex(argv[3], message, sizeof message);
    struct vgpu_hmac_md2 hmac;
    vgpu_hmac_md2_init(&hmac, key, key_size);
    vgpu_hmac_md2_update(&hmac, message, size);
    vgpu_hmac_md2_final(&hmac, digest);
  } else if (argc >= 10 && strcmp(argv[1], "answer") == 0) {
    struct vgpu_integrity_device devices[8];
    unsigned count = 0;
    struct vgpu_integrity_question question = {
        .driver_version = (uint32_t)strtoul(argv[2], NULL, 0),
        .runtime_version = (uint32_t)strtoul(argv[3], NULL, 0),
        .process = (uint32_t)strtoul(argv[4], NULL, 0),
        .thread = (uint32_t)strtoul(argv[5], NULL, 0),
        .cudart_table = strtoull(argv[6], NULL, 0),
        .integrity_table = strtoull(argv[7], NULL, 0),
        .function = strtoull(argv[8], NULL, 0),
        .seconds = strtoull(argv[9], NULL, 0),
    };
    for (int i = 10; i + 3 < argc && count < 8; i += 4, count++) {
      if (from_hex(argv[i], devices[count].uuid, 16) != 16) return 2;
      devices[count].pci_domain = atoi(argv[i + 1]);
      devices[count].pci_bus = atoi(argv[i + 2]);
      devices[count].pci_device = atoi(argv[i + 3]);
    }
    vgpu_integrity_answer(&question, devices, count, digest);
  } else {
    return 2;
  }
  print(digest);
  return 0;
}
