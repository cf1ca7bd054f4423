/* Device properties that never change, from the facts fetched at nvmlInit. */
#include "api/device_attributes.h"
#include "guest/nvml/nvml.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int nvmlDeviceGetName(nvml_device device, char *name, unsigned size) {
  const struct vgpu_device_facts *facts;
  uint32_t index;
  int result;

  struct vgpu_nvml *nvml = vgpu_nvml_enter_device(device, &facts, &index, &result);
  if (!nvml) return result;
  result = vgpu_nvml_text(name, size, facts->name);
  vgpu_nvml_leave(nvml);
  return result;
}

int nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned size) {
  const struct vgpu_device_facts *facts;
  char text[48];
  uint32_t index;
  int result;

  struct vgpu_nvml *nvml = vgpu_nvml_enter_device(device, &facts, &index, &result);
  if (!nvml) return result;
  vgpu_nvml_format_uuid(facts, text);
  vgpu_nvml_leave(nvml);
  return vgpu_nvml_text(uuid, size, text);
}

int nvmlDeviceGetIndex(nvml_device device, unsigned *index) {
  struct vgpu_device_facts facts;
  uint32_t number = 0;
  int result = vgpu_nvml_facts(device, index, &facts, &number);

  if (result == NVML_SUCCESS) *index = number;
  return result;
}

int nvmlDeviceGetMinorNumber(nvml_device device, unsigned *minor) {
  return nvmlDeviceGetIndex(device, minor);
}

int nvmlDeviceGetBrand(nvml_device device, int *brand) {
  enum { QUADRO = 1, TESLA = 2, GEFORCE = 5, TITAN = 6, NVIDIA = 14 };
  struct vgpu_device_facts facts;
  int result = vgpu_nvml_facts(device, brand, &facts, NULL);

  if (result == NVML_SUCCESS)
    *brand = strstr(facts.name, "GeForce")  ? GEFORCE
             : strstr(facts.name, "Tesla")  ? TESLA
             : strstr(facts.name, "Quadro") ? QUADRO
             : strstr(facts.name, "TITAN")  ? TITAN
                                            : NVIDIA;
  return result;
}

int nvmlDeviceGetArchitecture(nvml_device device, unsigned *architecture) {
  enum { MAXWELL = 3, PASCAL, VOLTA, TURING, AMPERE, ADA, HOPPER, BLACKWELL };
  struct vgpu_device_facts facts;
  int result = vgpu_nvml_facts(device, architecture, &facts, NULL);

  if (result != NVML_SUCCESS) return result;
  unsigned compute = facts.compute_major * 10 + facts.compute_minor;
  *architecture = compute >= 100  ? BLACKWELL
                  : compute >= 90 ? HOPPER
                  : compute == 89 ? ADA
                  : compute >= 80 ? AMPERE
                  : compute >= 75 ? TURING
                  : compute >= 70 ? VOLTA
                  : compute >= 60 ? PASCAL
                  : compute >= 50 ? MAXWELL
                                  : 0xffffffffu; /* UNKNOWN */
  return NVML_SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(nvml_device device, int *major, int *minor) {
  struct vgpu_device_facts facts;
  int result = vgpu_nvml_facts(device, major && minor ? major : NULL, &facts, NULL);

  if (result == NVML_SUCCESS) {
    *major = (int)facts.compute_major;
    *minor = (int)facts.compute_minor;
  }
  return result;
}

static int attribute_of(nvml_device device, const void *out, unsigned attribute, int32_t *value) {
  struct vgpu_device_facts facts;
  int result = vgpu_nvml_facts(device, out, &facts, NULL);

  return result == NVML_SUCCESS ? vgpu_nvml_attribute(&facts, attribute, value) : result;
}

int nvmlDeviceGetMemoryBusWidth(nvml_device device, unsigned *bits) {
  int32_t value;
  int result = attribute_of(device, bits, VGPU_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &value);

  if (result == NVML_SUCCESS) *bits = (unsigned)value;
  return result;
}

int nvmlDeviceGetEccMode(nvml_device device, int *current, int *pending) {
  int32_t value;
  int result = attribute_of(device, current && pending ? current : NULL, VGPU_ATTRIBUTE_ECC_ENABLED, &value);

  if (result == NVML_SUCCESS) *current = *pending = value;
  return result;
}

int nvmlDeviceGetComputeMode(nvml_device device, int *mode) {
  int32_t value;
  int result = attribute_of(device, mode, VGPU_ATTRIBUTE_COMPUTE_MODE, &value);

  if (result == NVML_SUCCESS) *mode = value;
  return result;
}

int nvmlDeviceGetMultiGpuBoard(nvml_device device, unsigned *multiple) {
  int32_t value;
  int result = attribute_of(device, multiple, VGPU_ATTRIBUTE_MULTI_GPU_BOARD, &value);

  if (result == NVML_SUCCESS) *multiple = (unsigned)value;
  return result;
}

/* The device is at the host, equally far from all processors of this guest. */
int nvmlDeviceGetCpuAffinity(nvml_device device, unsigned size, unsigned long *set) {
  enum { BITS = 8 * sizeof *set };
  struct vgpu_device_facts facts;
  int result = vgpu_nvml_facts(device, set, &facts, NULL);
  long processors = sysconf(_SC_NPROCESSORS_CONF);

  if (result != NVML_SUCCESS) return result;
  if (size == 0) return NVML_INVALID_ARGUMENT;
  memset(set, 0, size * sizeof *set);
  for (long i = 0; i < processors && (unsigned long)i / BITS < size; i++) set[i / BITS] |= 1ul << i % BITS;
  return NVML_SUCCESS;
}

int nvmlDeviceGetCpuAffinityWithinScope(nvml_device device, unsigned size, unsigned long *set,
                                        unsigned scope) {
  enum { NODE = 0, SOCKET = 1 };

  return scope == NODE || scope == SOCKET ? nvmlDeviceGetCpuAffinity(device, size, set)
                                          : NVML_INVALID_ARGUMENT;
}

int nvmlDeviceGetMemoryAffinity(nvml_device device, unsigned size, unsigned long *set, unsigned scope) {
  enum { BITS = 8 * sizeof *set, NODE = 0, SOCKET = 1, NODES = 1024 };
  struct vgpu_device_facts facts;
  int result = vgpu_nvml_facts(device, set, &facts, NULL);

  if (result != NVML_SUCCESS) return result;
  if (size == 0 || (scope != NODE && scope != SOCKET)) return NVML_INVALID_ARGUMENT;
  memset(set, 0, size * sizeof *set);
  set[0] = 1;
  for (unsigned i = 1; i < NODES && i / BITS < size; i++) {
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u", i);
    if (access(path, F_OK) == 0) set[i / BITS] |= 1ul << i % BITS;
  }
  return NVML_SUCCESS;
}
