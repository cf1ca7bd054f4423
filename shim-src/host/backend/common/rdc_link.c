#include "host/backend/common/rdc_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/common/unpack.h"
#include "image/link_ptx.h"
#include "cuda_results.h"

#define PARTS_MAX 1024u

static bool alike(const struct vgpu_entry *entry, const struct vgpu_entry *like) {
  return entry->kind == like->kind && entry->architecture == like->architecture &&
         ((entry->flags ^ like->flags) & (VGPU_ENTRY_SPECIFIC | VGPU_ENTRY_FAMILY)) == 0;
}

uint32_t vgpu_rdc_count(const void *image, uint64_t size, const struct vgpu_entry *like) {
  struct vgpu_entry entry;
  uint64_t offset = 0;
  uint32_t count = 0;
  while (vgpu_fatbin_next(image, size, &offset, &entry) == 1) count += alike(&entry, like);
  return count;
}

/* Unpacks all parts to texts[]. The caller frees the first *have of them, also after a failure. */
static int32_t unpack_all(const void *image, uint64_t size, const struct vgpu_entry *like, uint64_t limit,
                          struct vgpu_ptx_text *texts, uint32_t *have) {
  struct vgpu_entry entry;
  uint64_t offset = 0, all = 0;
  while (vgpu_fatbin_next(image, size, &offset, &entry) == 1) {
    if (!alike(&entry, like)) continue;
    all += entry.unpacked;
    unsigned char *text = all > limit ? NULL : malloc(entry.unpacked + 1);
    if (text == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    texts[*have] = (struct vgpu_ptx_text){.text = (char *)text, .name = "the fat binary"};
    (*have)++;
    if (!vgpu_unpack(&entry, text)) return CUDA_ERROR_INVALID_IMAGE;
    text[entry.unpacked] = 0;
    texts[*have - 1].size = strlen((char *)text);
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_rdc_link(const void *image, uint64_t size, const struct vgpu_entry *like, uint64_t limit,
                      char **text, uint64_t *length, char *why, size_t why_size) {
  *text = NULL;
  uint32_t count = vgpu_rdc_count(image, size, like), have = 0;
  if (count > PARTS_MAX) {
    snprintf(why, why_size, "the fat binary has %u texts to link, %u is the limit", count, PARTS_MAX);
    return CUDA_ERROR_INVALID_IMAGE;
  }
  struct vgpu_ptx_text *texts = calloc(count + 1, sizeof *texts);
  if (texts == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  int32_t result = unpack_all(image, size, like, limit, texts, &have);
  if (result == CUDA_SUCCESS) {
    size_t bytes = 0;
    *text = vgpu_ptx_link(texts, have, &bytes, why, why_size);
    *length = bytes;
    if (*text == NULL) result = CUDA_ERROR_INVALID_PTX;
  } else {
    snprintf(why, why_size, "the texts of the fat binary take more memory than allowed, or are damaged");
  }
  for (uint32_t i = 0; i < have; i++) free((char *)(uintptr_t)texts[i].text);
  free(texts);
  return result;
}

char *vgpu_rdc_text(const void *image, uint64_t size, uint64_t limit) {
  if (vgpu_image_kind(image, size) != VGPU_IMAGE_FATBIN) return NULL;
  struct vgpu_entry entry, first = {0};
  uint64_t offset = 0, length;
  uint32_t count = 0;
  while (vgpu_fatbin_next(image, size, &offset, &entry) == 1) {
    if (count++ == 0) first = entry;
    if (entry.kind != VGPU_ENTRY_PTX || !alike(&entry, &first)) return NULL;
  }
  if (count < 2) return NULL;
  char why[256], *text;
  return vgpu_rdc_link(image, size, &first, limit, &text, &length, why, sizeof why) == CUDA_SUCCESS ? text
                                                                                                    : NULL;
}
