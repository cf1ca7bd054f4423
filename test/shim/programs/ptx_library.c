/*
 * ptx_library FILE: finds the fat binaries in a file, and loads every PTX entry of them. Prints one line for
 * each that is refused, and a count. Exit status 1 if one was refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/ptx.h"
#include "host/backend/common/unpack.h"
#include "image/container.h"

#define MAGIC 0xba55ed50u

int main(int count, char **words) {
  if (count != 2) return 2;
  FILE *f = fopen(words[1], "rb");
  if (f == NULL) return 2;
  fseek(f, 0, SEEK_END);
  size_t size = (size_t)ftell(f);
  rewind(f);
  unsigned char *bytes = malloc(size);
  if (bytes == NULL || fread(bytes, 1, size, f) != size) return 2;
  fclose(f);
  unsigned modules = 0, refused = 0;
  for (size_t at = 0; at + 16 <= size; at += 8) {
    unsigned magic;
    memcpy(&magic, bytes + at, 4);
    if (magic != MAGIC) continue;
    struct vgpu_entry entry;
    uint64_t offset = 0, whole;
    memcpy(&whole, bytes + at + 8, 8);
    if (whole > size - at - 16) continue;
    while (vgpu_fatbin_next(bytes + at, whole + 16, &offset, &entry) == 1) {
      if (entry.kind != VGPU_ENTRY_PTX) continue;
      unsigned char *text = malloc(entry.unpacked + 1);
      if (text == NULL || !vgpu_unpack(&entry, text)) {
        printf("cannot be unpacked: an entry at %zu\n", at);
        free(text);
        refused++;
        continue;
      }
      struct ptx_module *module;
      char log[256];
      modules++;
      if (ptx_module_load((const char *)text, entry.unpacked, entry.architecture, &module, log, sizeof log) !=
              PTX_OK ||
          log[0] != 0) {
        printf("sm_%u at %zu: %s\n", entry.architecture, at, log);
        refused++;
      }
      ptx_module_free(module);
      free(text);
    }
  }
  free(bytes);
  printf("%u modules, %u refused\n", modules, refused);
  return refused > 0;
}
