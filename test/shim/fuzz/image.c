/* Fuzzes code as guests send it: fat binaries (also packed), cubins and PTX, as both ends read them. */
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/code/program.h"
#include "image/container.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  /* Of exactly this size, so that a sanitizer notices an access beyond the end. */
  unsigned char *copy = malloc(size == 0 ? 1 : size);
  if (copy == NULL) return 0;
  memcpy(copy, data, size);
  struct vgpu_entry entry;
  uint64_t offset = 0;
  volatile unsigned sum = 0;
  while (vgpu_fatbin_next(copy, size, &offset, &entry) == 1) {
    if (entry.payload_size > size) abort();
    for (uint64_t i = 0; i < entry.payload_size; i++) sum += entry.payload[i];
    vgpu_entry_fits(&entry, 90);
  }
  (void)sum;
  vgpu_elf_length(copy, size);
  static const struct vgpu_program_target targets[] = {{.architecture = 90,
                                                        .max_threads = 1024,
                                                        .shared_block = 49152,
                                                        .registers_block = 65536,
                                                        .memory_limit = 16 << 20},
                                                       {.architecture = 61,
                                                        .max_threads = 1024,
                                                        .shared_block = 49152,
                                                        .registers_block = 65536,
                                                        .memory_limit = 1 << 20}};
  for (int i = 0; i < 2; i++) {
    struct vgpu_program program = {0};
    char why[200];
    unsigned char *image = malloc(size == 0 ? 1 : size);
    if (image == NULL) break;
    memcpy(image, data, size);
    vgpu_program_read(image, size, &targets[i], &program, why, sizeof why);
    vgpu_program_free(&program);
  }
  free(copy);
  return 0;
}
