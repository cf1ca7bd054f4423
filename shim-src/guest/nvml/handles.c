#include "guest/nvml/query.h"
#include "nvml_queries.h"
#include "wire/uuid.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void vgpu_nvml_format_uuid(const struct vgpu_device_facts *facts, char text[48]) {
  vgpu_uuid_text("GPU-", facts->uuid, text);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  int result;
  struct vgpu_nvml *nvml = vgpu_nvml_enter(&result);

  if (!nvml) return result;
  if (count) *count = nvml->device_count;
  vgpu_nvml_leave(nvml);
  return count ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

int nvmlDeviceGetCount(unsigned *count) {
  return nvmlDeviceGetCount_v2(count);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device) {
  int result;
  struct vgpu_nvml *nvml = vgpu_nvml_enter(&result);

  if (!nvml) return result;
  if (!device || index >= nvml->device_count) result = NVML_INVALID_ARGUMENT;
  else *device = vgpu_nvml_handle(index);
  vgpu_nvml_leave(nvml);
  return result;
}

int nvmlDeviceGetHandleByIndex(unsigned index, nvml_device *device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device) {
  char text[48];
  int result;
  struct vgpu_nvml *nvml = vgpu_nvml_enter(&result);

  if (!nvml) return result;
  result = uuid && device ? NVML_NOT_FOUND : NVML_INVALID_ARGUMENT;
  for (uint32_t i = 0; result == NVML_NOT_FOUND && i < nvml->device_count; i++) {
    vgpu_nvml_format_uuid(&nvml->facts[i], text);
    if (strcasecmp(uuid, text) == 0) {
      *device = vgpu_nvml_handle(i);
      result = NVML_SUCCESS;
    }
  }
  vgpu_nvml_leave(nvml);
  return result;
}

/* Reads 1 to 8 hexadecimal digits. Returns the place after them, or NULL. */
static const char *hexadecimal(const char *text, unsigned *value) {
  size_t digits = strspn(text, "0123456789abcdefABCDEF");

  if (digits < 1 || digits > 8) return NULL;
  *value = (unsigned)strtoul(text, NULL, 16);
  return text + digits;
}

/* Reads "domain:bus:device[.0]" or "bus:device[.0]", as NVML does. */
static int parse_bus_id(const char *text, unsigned *domain, unsigned *bus, unsigned *device) {
  unsigned fields[3], function = 0;
  int count = 0;

  for (;;) {
    text = hexadecimal(text, &fields[count++]);
    if (!text || *text != ':' || count == 3) break;
    text++;
  }
  if (text && *text == '.') text = hexadecimal(text + 1, &function);
  if (!text || *text || count < 2 || function != 0) return NVML_INVALID_ARGUMENT;
  *domain = count == 3 ? fields[0] : 0;
  *bus = fields[count - 2];
  *device = fields[count - 1];
  return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device *device) {
  unsigned domain = 0, bus = 0, number = 0;
  int result;
  struct vgpu_nvml *nvml = vgpu_nvml_enter(&result);

  if (!nvml) return result;
  result = id && device ? parse_bus_id(id, &domain, &bus, &number) : NVML_INVALID_ARGUMENT;
  if (result == NVML_SUCCESS) {
    result = NVML_NOT_FOUND;
    for (uint32_t i = 0; i < nvml->device_count; i++) {
      const struct vgpu_device_facts *facts = &nvml->facts[i];
      if (facts->pci_domain == domain && facts->pci_bus == bus && facts->pci_device == number) {
        *device = vgpu_nvml_handle(i);
        result = NVML_SUCCESS;
        break;
      }
    }
  }
  vgpu_nvml_leave(nvml);
  return result;
}

int nvmlDeviceGetHandleByPciBusId(const char *id, nvml_device *device) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

int nvmlDeviceGetHandleBySerial(const char *serial, nvml_device *device) {
  char text[64];
  unsigned count = 0;
  int result = nvmlDeviceGetCount_v2(&count);

  if (result != NVML_SUCCESS) return result;
  if (!serial || !device) return NVML_INVALID_ARGUMENT;
  for (unsigned i = 0; i < count; i++) {
    if (nvmlDeviceGetSerial(vgpu_nvml_handle(i), text, sizeof text) != NVML_SUCCESS ||
        strcmp(text, serial) != 0)
      continue;
    *device = vgpu_nvml_handle(i);
    return NVML_SUCCESS;
  }
  return NVML_NOT_FOUND;
}

int nvmlDeviceGetP2PStatus(void *one, void *other, uint32_t capability, uint32_t *status) {
  enum { CAPABILITIES = 6, STATUS_NOT_SUPPORTED = 5 };
  unsigned index;
  int result = nvmlDeviceGetIndex(one, &index);

  if (result == NVML_SUCCESS) result = nvmlDeviceGetIndex(other, &index);
  if (result != NVML_SUCCESS) return result;
  if (capability >= CAPABILITIES || !status) return NVML_INVALID_ARGUMENT;
  /* NCCL asks for each pair, also for a device and itself, and needs success. */
  uint32_t told = STATUS_NOT_SUPPORTED;
  const uint64_t values[] = {(uintptr_t)other, capability, (uintptr_t)&told};
  if (vgpu_nvml_query(one, VGPU_QUERY_nvmlDeviceGetP2PStatus, values) != NVML_SUCCESS)
    told = STATUS_NOT_SUPPORTED; /* an older host, or one without NVML */
  *status = told;
  return NVML_SUCCESS;
}

/*
 * Lists the devices that `has` accepts. *count is the capacity of `devices`, and then the number of these
 * devices.
 */
static int list(unsigned *count, nvml_device *devices, bool (*has)(unsigned index, const void *context),
                const void *context) {
  unsigned all = 0, found = 0;
  int result = nvmlDeviceGetCount_v2(&all);

  if (result != NVML_SUCCESS) return result;
  if (!count || (*count > 0 && !devices)) return NVML_INVALID_ARGUMENT;
  for (unsigned i = 0; i < all; i++) {
    if (!has(i, context)) continue;
    if (found < *count) devices[found] = vgpu_nvml_handle(i);
    found++;
  }
  *count = found;
  return NVML_SUCCESS;
}

struct near {
  nvml_device device;
  unsigned level;
};

static bool is_near(unsigned index, const void *context) {
  const struct near *near = context;
  unsigned level;

  return near->device != vgpu_nvml_handle(index) &&
         nvmlDeviceGetTopologyCommonAncestor(near->device, vgpu_nvml_handle(index), &level) == NVML_SUCCESS &&
         level == near->level;
}

int nvmlDeviceGetTopologyNearestGpus(nvml_device device, unsigned level, unsigned *count,
                                     nvml_device *devices) {
  const struct near near = {device, level};
  unsigned index;
  int result = nvmlDeviceGetIndex(device, &index);

  return result == NVML_SUCCESS ? list(count, devices, is_near, &near) : result;
}

static bool any(unsigned index, const void *context) {
  (void)index;
  (void)context;
  return true;
}

int nvmlSystemGetTopologyGpuSet(unsigned processor, unsigned *count, nvml_device *devices) {
  (void)processor;
  return list(count, devices, any, NULL);
}
