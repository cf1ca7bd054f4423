/*
 * A stand-in for NVIDIA's libnvidia-ml.so.1, for the calls of a host that uses a stand-in for the driver. It
 * has GPUs at the PCI buses 1, 2, ..., whose files are /dev/nvidia0, /dev/nvidia1, ... If STAND_IN_MIG has
 * two UUIDs with a comma between, it has one GPU that is divided into instances with these UUIDs, in its
 * first and third place. Persistence mode is on if
 * STAND_IN_PERSISTENCE is set, and STAND_IN_VERSION is the driver's version. The calling process and process
 * 1 use the GPU. The calling one uses the number of bytes in the file STAND_IN_BYTES, plus the bytes of its
 * pools in the stand-in driver. With STAND_IN_ASKED each question for processes is a line on stderr.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7

struct device {
  unsigned minor;
  int instance; /* -1: a whole GPU */
};
static struct device gpus[8], instances[2] = {{.instance = 0}, {.instance = 1}};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device);
EXPORT int nvmlDeviceGetMinorNumber(void *device, unsigned *minor);
EXPORT int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length);
EXPORT int nvmlDeviceGetPersistenceMode(void *device, int *mode);
EXPORT int nvmlDeviceGetPersistenceMode(void *device, int *mode) {
  (void)device;
  *mode = getenv("STAND_IN_PERSISTENCE") != NULL;
  return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending);
EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count);
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part);

int nvmlInit_v2(void) {
  for (unsigned i = 0; i < 8; i++) gpus[i] = (struct device){.minor = i, .instance = -1};
  return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
  const char *given = getenv("STAND_IN_VERSION");
  snprintf(version, length, "%s", given == NULL ? "999.1" : given);
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = getenv("STAND_IN_MIG") == NULL ? 2 : 1;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = &gpus[index];
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
  unsigned domain, bus;
  if (sscanf(id, "%x:%x:", &domain, &bus) != 2 || bus < 1 || bus > 8) return NOT_FOUND;
  *device = &gpus[bus - 1];
  return 0;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
  *minor = ((struct device *)device)->minor;
  return 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
  int instance = ((struct device *)device)->instance;
  const char *list = getenv("STAND_IN_MIG");
  if (instance < 0 || list == NULL) snprintf(uuid, length, "GPU-00000000-0000-0000-0000-000000000000");
  else snprintf(uuid, length, "MIG-%.36s", list + 37 * instance);
  return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
  (void)device;
  *current = *pending = getenv("STAND_IN_MIG") != NULL;
  return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
  (void)device;
  *count = 7;
  return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part) {
  (void)device;
  if (index != 0 && index != 2) return NOT_FOUND;
  *part = &instances[index / 2];
  return 0;
}

EXPORT int nvmlDeviceGetSerial(void *device, char *serial, unsigned length);
int nvmlDeviceGetSerial(void *device, char *serial, unsigned length) {
  (void)device;
  snprintf(serial, length, "1651424048039");
  return 0;
}

/* Bytes of pools in the stand-in driver, if this process has opened it. */
static unsigned long long pool_bytes(void) {
  void *driver = dlopen("libstand-in.so", RTLD_NOW | RTLD_NOLOAD);
  void *bytes = driver == NULL ? NULL : dlsym(driver, "stand_in_pool_bytes");
  return bytes == NULL ? 0 : ((uint64_t(*)(void))(uintptr_t)bytes)();
}

struct process {
  unsigned pid;
  unsigned long long bytes;
  unsigned instances[2];
};

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
  const char *path = getenv("STAND_IN_BYTES");
  if (getenv("STAND_IN_ASKED") != NULL) fprintf(stderr, "stand-in: asked for processes\n");
  FILE *file = path == NULL ? NULL : fopen(path, "r");
  unsigned long long bytes = 0;
  (void)device;
  if (file == NULL) return NOT_FOUND;
  if (fscanf(file, "%llu", &bytes) != 1) bytes = ~0ull;
  fclose(file);
  if (bytes != ~0ull) bytes += pool_bytes();
  if (*count < 2) return INSUFFICIENT_SIZE;
  *count = 2;
  processes[0] = (struct process){.pid = 1, .bytes = 1ull << 40};
  processes[1] = (struct process){.pid = (unsigned)getpid(), .bytes = bytes};
  return 0;
}

struct sample {
  unsigned pid;
  unsigned long long time;
  unsigned of[4];
};

EXPORT int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count,
                                           unsigned long long since);
int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count,
                                    unsigned long long since) {
  const unsigned room = *count;
  (void)device;
  *count = 2;
  if (samples == NULL || room < 2) return INSUFFICIENT_SIZE;
  samples[0] = (struct sample){.pid = 1, .time = since + 1, .of = {90, 50, 0, 0}};
  samples[1] = (struct sample){.pid = (unsigned)getpid(), .time = since + 1, .of = {10, 5, 0, 0}};
  return 0;
}
