#include "host/policy/devices.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "wire/uuid.h"

struct search {
  const struct vgpu_inventory *inventory;
  char *error;
  size_t error_size;
};

__attribute__((format(printf, 2, 3))) static bool wrong(const struct search *search, const char *format,
                                                        ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(search->error, search->error_size, format, arguments);
  va_end(arguments);
  return false;
}

static bool find(const struct search *search, const char *word, uint32_t *index) {
  const struct vgpu_inventory *inventory = search->inventory;
  if (word[0] >= '0' && word[0] <= '9') {
    *index = (uint32_t)strtoul(word, NULL, 10);
    if (*index < inventory->count) return true;
    return wrong(search, "this host has no device %s; it has %u, and the first is 0", word, inventory->count);
  }
  uint32_t found = 0;
  for (uint32_t i = 0; i < inventory->count; i++) {
    char text[VGPU_UUID_TEXT];
    vgpu_uuid_text(inventory->is_part[i] ? "MIG-" : "GPU-", inventory->devices[i].uuid, text);
    if (strncasecmp(text, word, strlen(word)) != 0) continue;
    *index = i;
    found++;
  }
  if (found == 1) return true;
  return wrong(search, "the UUID of %s of this host begins with \"%s\"",
               found == 0 ? "no device" : "several devices", word);
}

static bool add(const struct search *search, uint32_t index, struct vgpu_chosen_devices *devices) {
  for (uint32_t i = 0; i < devices->count; i++) {
    if (devices->index[i] == index) return wrong(search, "device %u is named twice", index);
  }
  devices->index[devices->count++] = (uint8_t)index;
  return true;
}

static bool find_all(const struct search *search, const char *text, struct vgpu_chosen_devices *devices) {
  char words[VGPU_DEVICES_TEXT], *rest = words;
  snprintf(words, sizeof words, "%s", text);
  devices->count = 0;
  for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
    uint32_t index = 0;
    if (!find(search, word, &index) || !add(search, index, devices)) return false;
  }
  bool parts = false;
  for (uint32_t i = 0; i < devices->count; i++) parts |= search->inventory->is_part[devices->index[i]];
  if (!parts || devices->count == 1) return true;
  return wrong(search,
               "CUDA shows one process a single MIG instance, and no other device beside it: name one");
}

bool vgpu_policy_find_devices(struct vgpu_policy *policy, const char *name,
                              const struct vgpu_inventory *inventory, char *error, size_t error_size) {
  for (uint32_t i = 0; i < policy->choice_count; i++) {
    struct vgpu_device_choice *choice = &policy->choices[i];
    char what[256];
    const struct search search = {.inventory = inventory, .error = what, .error_size = sizeof what};
    if (find_all(&search, choice->text, &choice->found)) continue;
    snprintf(error, error_size, "%s: line %u: devices=\"%.120s\": %s", name, choice->line, choice->text,
             what);
    return false;
  }
  return true;
}

void vgpu_devices_usual(const struct vgpu_inventory *inventory, struct vgpu_chosen_devices *devices) {
  bool parts = false;
  for (uint32_t i = 0; i < inventory->count; i++) parts |= inventory->is_part[i];
  /* With MIG on any GPU the driver shows only one device to a process. */
  devices->count = parts ? 1 : inventory->count;
  for (uint32_t i = 0; i < devices->count; i++) devices->index[i] = (uint8_t)i;
}
