/*
 * A library for vgpu-probe's tests: libcuda.so.1 and libnvidia-ml.so.1 in one, which works in
 * memory of its own and misbehaves as PROBE_FAULT says: "CALL:how", how one of hang, crash, exit,
 * or a number: the result that CALL gives or one of "wrong-bytes" (a copy that changes one),
 * "noise" (prints on stdout), "no-device", "odd-name".
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *fault) {
  const char *set = getenv("PROBE_FAULT");

  return set && strcmp(set, fault) == 0;
}

static int fault(const char *call) {
  const char *set = getenv("PROBE_FAULT");
  size_t length = strlen(call);

  if (!set || strncmp(set, call, length) != 0 || set[length] != ':') return 0;
  const char *how = set + length + 1;
  if (strcmp(how, "hang") == 0) {
    for (;;) pause();
  }
  if (strcmp(how, "crash") == 0) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  if (strcmp(how, "exit") == 0) _exit(0);
  return atoi(how);
}

int cuInit(unsigned flags) {
  if (is("noise")) printf("{\"ok\": true}\n");
  fflush(stdout);
  return flags ? 1 : fault("cuInit");
}

int cuDriverGetVersion(int *version) {
  *version = 12080;
  return fault("cuDriverGetVersion");
}

int cuDeviceGetCount(int *count) {
  *count = is("no-device") ? 0 : 2;
  return fault("cuDeviceGetCount");
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return fault("cuDeviceGet");
}

int cuDeviceGetName(char *name, int size, int device) {
  if (is("odd-name")) snprintf(name, (size_t)size, "A \"B\" \\ \xc3\xa9 \xff \x01");
  else snprintf(name, (size_t)size, device ? "NVIDIA Test" : "NVIDIA Test (simulated)");
  return fault("cuDeviceGetName");
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = (size_t)(device + 1) << 33;
  return fault("cuDeviceTotalMem");
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? device : -1;
  return fault("cuDeviceGetAttribute");
}

int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
  for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(i * 17 + device);
  return fault("cuDeviceGetUuid");
}

int cuDeviceGetPCIBusId(char *id, int size, int device) {
  snprintf(id, (size_t)size, "0000:%02x:00.0", device + 1);
  return fault("cuDeviceGetPCIBusId");
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)(uintptr_t)(device + 1);
  return fault("cuDevicePrimaryCtxRetain");
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return fault("cuDevicePrimaryCtxRelease");
}

int cuCtxSetCurrent(void *context) {
  (void)context;
  return fault("cuCtxSetCurrent");
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  *address = (uintptr_t)malloc(bytes);
  return fault("cuMemAlloc");
}

int cuMemFree_v2(uint64_t address) {
  free((void *)(uintptr_t)address);
  return fault("cuMemFree");
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  memcpy((void *)(uintptr_t)to, from, bytes);
  return fault("cuMemcpyHtoD");
}

int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
  memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
  return fault("cuMemcpyDtoD");
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  memcpy(to, (const void *)(uintptr_t)from, bytes);
  if (is("wrong-bytes")) ((unsigned char *)to)[bytes - 1] ^= 1;
  return fault("cuMemcpyDtoH");
}

int cuGetErrorName(int code, const char **name) {
  *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
  return *name ? 0 : 1;
}

int nvmlInit_v2(void) {
  return fault("nvmlInit_v2");
}

int nvmlShutdown(void) {
  return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  snprintf(version, size, "570.1.2");
  return fault("nvmlSystemGetDriverVersion");
}

const char *nvmlErrorString(int code) {
  return code == 9 ? "Driver Not Loaded" : "Unknown Error";
}
