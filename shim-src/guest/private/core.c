#include "guest/private/core.h"

#include "guest/guest_cuda.h"
#include "guest/log.h"
#include "guest/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order of visible ordinals: the runtime compares with cuDeviceGetUuid and cuDeviceGetAttribute. */
int vgpu_private_core_devices(uint32_t *driver_version,
                              struct vgpu_integrity_device devices[VGPU_PRIVATE_MAX_DEVICES],
                              unsigned *count) {
  int result = vgpu_cuda_ready();
  if (result != VGPU_PRIVATE_SUCCESS) return result;

  int visible = vgpu_cuda_device_count();
  *driver_version = (uint32_t)vgpu_cuda_driver_version();
  *count = 0;
  for (int i = 0; i < visible && *count < VGPU_PRIVATE_MAX_DEVICES; i++) {
    const struct vgpu_device_facts *facts = vgpu_cuda_device_facts(i);
    if (!facts) continue;
    struct vgpu_integrity_device *device = &devices[(*count)++];
    memcpy(device->uuid, facts->uuid, sizeof device->uuid);
    device->pci_domain = (int32_t)facts->pci_domain;
    device->pci_bus = (int32_t)facts->pci_bus;
    device->pci_device = (int32_t)facts->pci_device;
  }
  return VGPU_PRIVATE_SUCCESS;
}

int vgpu_private_core_current(void **context) {
  int result = vgpu_cuda_ready();
  if (result != VGPU_PRIVATE_SUCCESS) return result;
  *context = vgpu_cuda_current_context();
  return VGPU_PRIVATE_SUCCESS;
}

bool vgpu_private_core_active(const void *context) {
  return vgpu_cuda_context_check(context) == VGPU_PRIVATE_SUCCESS;
}

int vgpu_private_core_primary(int device, void **context) {
  struct vgpu_context *primary = NULL;
  int result = vgpu_cuda_ready();
  if (result != VGPU_PRIVATE_SUCCESS) return result;
  result = vgpu_cuda_primary_context(device, &primary);
  if (result == VGPU_PRIVATE_SUCCESS) *context = primary;
  return result;
}

static void (*on_destroyed)(void *context);

static void destroyed(struct vgpu_context *context) {
  on_destroyed(context);
}

void vgpu_private_core_on_destroyed(void (*function)(void *context)) {
  on_destroyed = function; /* always the same one */
  vgpu_cuda_on_context_destroyed(destroyed);
}

unsigned vgpu_private_core_generation(void) {
  const struct vgpu_process *process = vgpu_process();
  return process ? process->generation : 0;
}

/* Linked -Bsymbolic: no other library's functions can take the place of these exports. */
extern int cuCtxGetId(void *context, uint64_t *number);
extern int cuStreamGetId(void *stream, uint64_t *number);
extern int cuModuleGetFunctionCount(uint32_t *count, void *module);
extern int cuModuleEnumerateFunctions(void **functions, uint32_t count, void *module);
extern int cuModuleLoadData(void **module, const void *image);

int vgpu_private_core_load(void **module, const void *image) {
  return cuModuleLoadData(module, image);
}

uint64_t vgpu_private_core_functions(void *module, vgpu_private_function *take, void *user) {
  uint32_t count = 0;
  if (cuModuleGetFunctionCount(&count, module) != VGPU_PRIVATE_SUCCESS || count == 0) return 0;
  void **functions = calloc(count, sizeof *functions);
  if (functions == NULL) return 0;
  if (cuModuleEnumerateFunctions(functions, count, module) != VGPU_PRIVATE_SUCCESS) count = 0;
  for (uint32_t i = 0; i < count; i++) take(user, functions[i], (uint64_t)(uintptr_t)module);
  free(functions);
  return count;
}

void vgpu_private_core_refused(const char *table, unsigned slot) {
  vgpu_log("slot %u of the private table %s is not supported", slot, table);
}

void vgpu_private_core_unknown(const unsigned char uuid[16]) {
  char text[37], *to = text;
  for (int i = 0; i < 16; i++) {
    to += snprintf(to, 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
  }
  vgpu_log("the private table %s is not known: each of its functions answers that it is not supported", text);
}

int vgpu_private_core_number(void *context, uint64_t *number) {
  return cuCtxGetId(context, number);
}

int vgpu_private_core_stream(void *stream, uint64_t *number) {
  return cuStreamGetId(stream, number);
}

int vgpu_private_core_transport(struct vgpu_transport_word *word, size_t size) {
  return vgpu_cuda_transport(word, size);
}
