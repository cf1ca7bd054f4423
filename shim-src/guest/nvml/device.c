/* Device properties that never change. They are answered from the facts fetched at nvmlInit. */
#include "guest/nvml/nvml.h"

#include <string.h>
#include <unistd.h>

/* CUdevice_attribute numbers. */
enum {
  ATTRIBUTE_CLOCK_RATE = 13,
  ATTRIBUTE_COMPUTE_MODE = 20,
  ATTRIBUTE_ECC_ENABLED = 32,
  ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
  ATTRIBUTE_MEMORY_BUS_WIDTH = 37,
  ATTRIBUTE_MULTI_GPU_BOARD = 84,
};

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

/* Returns the number that this device's /dev/nvidiaN would have. The guest has no such file. */
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
  int result = attribute_of(device, bits, ATTRIBUTE_MEMORY_BUS_WIDTH, &value);

  if (result == NVML_SUCCESS) *bits = (unsigned)value;
  return result;
}

int nvmlDeviceGetMaxClockInfo(nvml_device device, int type, unsigned *mhz) {
  enum { GRAPHICS = 0, SM = 1, MEMORY = 2, VIDEO = 3 };
  int32_t khz;

  if (type < GRAPHICS || type > VIDEO) return NVML_INVALID_ARGUMENT;
  if (type == VIDEO) return NVML_NOT_SUPPORTED;
  int result =
      attribute_of(device, mhz, type == MEMORY ? ATTRIBUTE_MEMORY_CLOCK_RATE : ATTRIBUTE_CLOCK_RATE, &khz);
  if (result == NVML_SUCCESS) *mhz = (unsigned)khz / 1000;
  return result;
}

int nvmlDeviceGetEccMode(nvml_device device, int *current, int *pending) {
  int32_t value;
  int result = attribute_of(device, current && pending ? current : NULL, ATTRIBUTE_ECC_ENABLED, &value);

  if (result == NVML_SUCCESS) *current = *pending = value;
  return result;
}

int nvmlDeviceGetComputeMode(nvml_device device, int *mode) {
  int32_t value;
  int result = attribute_of(device, mode, ATTRIBUTE_COMPUTE_MODE, &value);

  if (result == NVML_SUCCESS) *mode = value;
  return result;
}

int nvmlDeviceGetMultiGpuBoard(nvml_device device, unsigned *multiple) {
  int32_t value;
  int result = attribute_of(device, multiple, ATTRIBUTE_MULTI_GPU_BOARD, &value);

  if (result == NVML_SUCCESS) *multiple = (unsigned)value;
  return result;
}

static int always(nvml_device device, int *out, int value) {
  struct vgpu_device_facts facts;
  int result = vgpu_nvml_facts(device, out, &facts, NULL);

  if (result == NVML_SUCCESS) *out = value;
  return result;
}

/* A remote device has no display. */
int nvmlDeviceGetDisplayMode(nvml_device device, int *mode) {
  return always(device, mode, 0);
}

int nvmlDeviceGetDisplayActive(nvml_device device, int *active) {
  return always(device, active, 0);
}

int nvmlDeviceIsMigDeviceHandle(nvml_device device, unsigned *mig) {
  return always(device, (int *)mig, 0);
}

/* nvmlGpuFabricInfo_t; nvmlDeviceGetGpuFabricInfoV has the same fields after the version. */
struct fabric_info {
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state; /* 0: not supported */
};
struct fabric_info_2 {
  unsigned version;
  struct fabric_info info;
  unsigned health;
};
struct fabric_info_3 {
  struct fabric_info_2 info;
  unsigned char summary;
};
_Static_assert(sizeof(struct fabric_info_2) == 36 && sizeof(struct fabric_info_3) == 40,
               "nvmlGpuFabricInfo_v*");

/* The guest has no access to a fabric of NVSwitches. The answer is that of a device without NVLink. */
int nvmlDeviceGetGpuFabricInfo(nvml_device device, void *info) {
  struct vgpu_device_facts facts;
  int result = vgpu_nvml_facts(device, info, &facts, NULL);

  if (result == NVML_SUCCESS) memset(info, 0, sizeof(struct fabric_info));
  return result;
}

int nvmlDeviceGetGpuFabricInfoV(nvml_device device, void *info) {
  struct vgpu_device_facts facts;
  int result = vgpu_nvml_facts(device, info, &facts, NULL);
  unsigned version, size;

  if (result != NVML_SUCCESS) return result;
  memcpy(&version, info, sizeof version);
  size = version >> 24 == 2   ? sizeof(struct fabric_info_2)
         : version >> 24 == 3 ? sizeof(struct fabric_info_3)
                              : 0;
  if (size == 0 || (version & 0xffffff) != size) return NVML_VERSION_MISMATCH;
  memset((unsigned char *)info + sizeof version, 0, size - sizeof version);
  return NVML_SUCCESS;
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
