/*
 * A libnvidia-ml.so.1 with one invented device, to test the stand-in's own words.
 *   FAKE_NVML=N  nvmlInit_v2 gives N      FAKE_DRIVER=X  the driver version, 580.65.06 by default
 */
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2(void) {
  const char *error = getenv("FAKE_NVML");
  return error == NULL ? 0 : (int)strtol(error, NULL, 10);
}

EXPORT int nvmlShutdown(void) {
  return 0;
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  const char *told = getenv("FAKE_DRIVER");
  snprintf(version, size, "%s", told == NULL ? "580.65.06" : told);
  return 0;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  static int object;
  (void)uuid;
  *device = &object;
  return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
  (void)device;
  memory[0] = 85899345920;
  memory[1] = 85000000000;
  memory[2] = memory[0] - memory[1];
  return 0;
}
