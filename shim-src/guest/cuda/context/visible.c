/*
 * CUDA_VISIBLE_DEVICES as the real driver reads it: indices or beginnings of UUIDs. A part of a GPU (MIG) is
 * a whole device here. The first entry that names no device ends the list; a device that is named twice hides
 * all devices.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "guest/cuda/internal.h"
#include "wire/uuid.h"

static bool find_uuid(const char *word, size_t length, const struct vgpu_device_facts *facts, uint32_t count,
                      uint32_t *index) {
  const char *prefix = strncasecmp(word, "MIG-", 4) == 0 ? "MIG-" : "GPU-";
  uint32_t found = 0;
  for (uint32_t i = 0; i < count; i++) {
    char text[VGPU_UUID_TEXT];
    vgpu_uuid_text(prefix, facts[i].uuid, text);
    if (length < VGPU_UUID_TEXT && strncasecmp(text, word, length) == 0) {
      *index = i;
      found++;
    }
  }
  return found == 1;
}

static bool find_index(const char *word, size_t length, uint32_t count, uint32_t *index) {
  uint32_t value = 0;
  if (length == 0 || length > 4) return false;
  for (size_t i = 0; i < length; i++) {
    if (!isdigit((unsigned char)word[i])) return false;
    value = value * 10 + (uint32_t)(word[i] - '0');
  }
  *index = value;
  return value < count;
}

uint32_t vgpu_cuda_visible(const char *list, const struct vgpu_device_facts *facts, uint32_t count,
                           uint32_t *chosen) {
  if (count > VGPU_DEVICES_MAX) count = VGPU_DEVICES_MAX;
  if (list == NULL) {
    for (uint32_t i = 0; i < count; i++) chosen[i] = i;
    return count;
  }
  bool taken[VGPU_DEVICES_MAX] = {false};
  uint32_t visible = 0;
  for (const char *at = list;;) {
    while (isspace((unsigned char)*at)) at++;
    size_t length = strcspn(at, ",");
    const char *next = at + length;
    while (length > 0 && isspace((unsigned char)at[length - 1])) length--;
    uint32_t index;
    bool named = length > 4 && (strncasecmp(at, "GPU-", 4) == 0 || strncasecmp(at, "MIG-", 4) == 0);
    bool found = named ? find_uuid(at, length, facts, count, &index) : find_index(at, length, count, &index);
    if (!found) break;
    if (taken[index]) return 0;
    taken[index] = true;
    chosen[visible++] = index;
    if (*next == '\0') break;
    at = next + 1;
  }
  return visible;
}
