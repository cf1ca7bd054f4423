/*
 * A libcuda.so.1 with one invented device, to test the stand-in's own words. It fails on demand:
 *   FAKE_INIT=N     cuInit gives N              FAKE_SLEEP=S    cuInit takes S seconds
 *   FAKE_ABORT=1    cuInit aborts               FAKE_COUNT=N    cuDeviceGetCount gives error N
 *   FAKE_CC=MM      compute capability M.M      FAKE_ATTRIBUTE=N  cuDeviceGetAttribute gives error
 * N FAKE_VERSION=N  cuDriverGetVersion says N Built with -DWITHOUT_CONTEXT it lacks cuCtxCreate_v3,
 * as old drivers do.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static int told(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value == NULL ? otherwise : (int)strtol(value, NULL, 10);
}

EXPORT int cuInit(unsigned flags) {
  (void)flags;
  if (told("FAKE_ABORT", 0) != 0) abort();
  sleep((unsigned)told("FAKE_SLEEP", 0));
  return told("FAKE_INIT", 0);
}

EXPORT int cuDriverGetVersion(int *version) {
  *version = told("FAKE_VERSION", 13000);
  return 0;
}

EXPORT int cuDeviceGetCount(int *count) {
  *count = 1;
  return told("FAKE_COUNT", 0);
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? 0 : 101;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  int compute = told("FAKE_CC", 90);
  *value = attribute == 75   ? compute / 10
           : attribute == 76 ? compute % 10
                             : attribute == 33 || attribute == 102;
  return attribute == 75 ? told("FAKE_ATTRIBUTE", 0) : 0;
}

EXPORT int cuDeviceGetUuid(unsigned char *uuid, int device) {
  for (int index = 0; index < 16; index++) uuid[index] = (unsigned char)(0x10 + index + device);
  return 0;
}

EXPORT int cuDeviceGetName(char *name, int size, int device) {
  (void)device;
  snprintf(name, (size_t)size, "Invented H100 (simulated)");
  return 0;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  *bytes = (size_t)81079 << 20;
  return 0;
}

EXPORT int cuDeviceGetPCIBusId(char *id, int size, int device) {
  (void)device;
  snprintf(id, (size_t)size, "0000:01:00.0");
  return 0;
}

#ifndef WITHOUT_CONTEXT
EXPORT int cuCtxCreate_v3(void **context, void *parameters, int count, unsigned flags, int device) {
  (void)parameters, (void)count, (void)flags, (void)device;
  static int object;
  *context = &object;
  return told("FAKE_CONTEXT", 0);
}
#endif

EXPORT int cuCtxDestroy(void *context) {
  (void)context;
  return 0;
}

EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total) {
  *total = (size_t)81079 << 20;
  *available = (size_t)80567 << 20;
  return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  (void)device;
  static int object;
  *context = &object;
  return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return 0;
}

EXPORT int cuCtxSetCurrent(void *context) {
  (void)context;
  return 0;
}

EXPORT int cuGetErrorString(int error, const char **string) {
  *string = error == 100 ? "no CUDA-capable device is detected" : "unknown error";
  return 0;
}

EXPORT int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int option) {
  (void)properties, (void)option;
  *granularity = 2 << 20;
  return 0;
}

#define REFUSED(name)                                                                                        \
  EXPORT int name(void);                                                                                     \
  int name(void) {                                                                                           \
    return 801;                                                                                              \
  }
REFUSED(cuMemAddressFree)
REFUSED(cuMemAddressReserve)
REFUSED(cuMemCreate)
REFUSED(cuMemMap)
REFUSED(cuMemRelease)
REFUSED(cuMemSetAccess)
REFUSED(cuMemUnmap)

EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) {
  static const char *const suffixes[] = {"_v2", ""};
  void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  (void)version, (void)flags;
  *function = NULL;
  for (int index = 0; index < 2 && *function == NULL && self != NULL; index++) {
    char symbol[128];
    snprintf(symbol, sizeof symbol, "%s%s", name, suffixes[index]);
    *function = dlsym(self, symbol);
  }
  if (found != NULL) *found = *function == NULL ? 1 : 0;
  return 0;
}
