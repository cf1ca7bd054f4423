#include "host/backend/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool vgpu_driver_load(const char *library, struct vgpu_driver_api *api, char *error, size_t error_size) {
  memset(api, 0, sizeof *api);
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    const char *words = dlerror();
    snprintf(error, error_size, "%s", words == NULL ? library : words);
    return false;
  }
  /* The exact symbol fixes the signature. cuGetProcAddress would choose one by a version. */
#define X(symbol)                                                                                            \
  {                                                                                                          \
    void *found = dlsym(handle, #symbol);                                                                    \
    memcpy(&api->symbol, &found, sizeof found);                                                              \
  }
#include "host/backend/cuda/entry_points.h"
#undef X
  if (api->cuInit == NULL || api->cuDeviceGetCount == NULL || api->cuDriverGetVersion == NULL) {
    snprintf(error, error_size, "%s is not a CUDA driver: it lacks cuInit", library);
    dlclose(handle);
    return false;
  }
  return true;
}
