/*
 * CUDA_VISIBLE_DEVICES as the real driver reads it: a list of indices or of beginnings of GPU UUIDs; the
 * first entry that names no device ends the list; a device named twice hides all.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest/cuda/internal.h"

#define UUID_TEXT 41 /* "GPU-" + 36 characters + zero */

static void uuid_text(const uint8_t uuid[16], char text[UUID_TEXT]) {
  snprintf(text, UUID_TEXT, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
           uuid[0], uuid[1], uuid[2], uuid[3], uuid[4], uuid[5], uuid[6], uuid[7], uuid[8], uuid[9], uuid[10],
           uuid[11], uuid[12], uuid[13], uuid[14], uuid[15]);
}

/* The one device whose UUID begins so; none if several do. */
static bool find_uuid(const char *word, size_t length, const struct vgpu_device_facts *facts, uint32_t count,
                      uint32_t *index) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < count; i++) {
    char text[UUID_TEXT];
    uuid_text(facts[i].uuid, text);
    if (length < UUID_TEXT && strncasecmp(text, word, length) == 0) {
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
    bool found = length > 4 && strncasecmp(at, "GPU-", 4) == 0 ? find_uuid(at, length, facts, count, &index)
                                                               : find_index(at, length, count, &index);
    if (!found) break;
    if (taken[index]) return 0;
    taken[index] = true;
    chosen[visible++] = index;
    if (*next == '\0') break;
    at = next + 1;
  }
  return visible;
}
