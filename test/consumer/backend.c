/* libggml-cuda.so of the stand-in. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"

/* Bound when the library is loaded, like the real one's eleven. */
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuGetErrorString(int error, const char **string);
int cuMemAddressFree(unsigned long long pointer, size_t size);
int cuMemAddressReserve(unsigned long long *pointer, size_t size, size_t alignment, unsigned long long hint,
                        unsigned long long flags);
int cuMemCreate(unsigned long long *handle, size_t size, const void *properties, unsigned long long flags);
int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int option);
int cuMemMap(unsigned long long pointer, size_t size, size_t offset, unsigned long long handle,
             unsigned long long flags);
int cuMemRelease(unsigned long long handle);
int cuMemSetAccess(unsigned long long pointer, size_t size, const void *descriptor, size_t count);
int cuMemUnmap(unsigned long long pointer, size_t size);

/* Referring to all of them makes the loader look for all of them, as it does for the real library.
 */
__attribute__((visibility("default"))) const void *const standin_backend_bound[] = {
    (const void *)cuMemAddressFree, (const void *)cuMemAddressReserve, (const void *)cuMemCreate,
    (const void *)cuMemMap,         (const void *)cuMemRelease,        (const void *)cuMemSetAccess,
    (const void *)cuMemUnmap,
};

/* struct CUmemAllocationProp of cuda.h, as much as granularity needs */
struct allocation {
  int type, handle_types;
  struct {
    int type, id;
  } location;
  void *win32;
  unsigned char flags[8];
};

struct runtime {
  int (*get_proc)(const char *, void **, int, uint64_t, int *);
  int (*init)(unsigned);
  int (*driver_version)(int *);
  int (*count)(int *);
  int (*name)(char *, int, int);
  int (*uuid)(unsigned char *, int);
  int (*total)(size_t *, int);
  int (*retain)(void **, int);
  int (*release)(int);
  int (*set_current)(void *);
  int (*memory)(size_t *, size_t *);
};

static const char *error_text(int error) {
  const char *string = NULL;
  if (cuGetErrorString(error, &string) != 0 || string == NULL) return "unknown error";
  return string;
}

/* The runtime this backend would carry: cuda_v13 wants a driver of 13.0 or newer, cuda_v12 of 12.0.
 */
static int runtime_version(void) {
  Dl_info self;
  if (dladdr((const void *)runtime_version, &self) == 0 || self.dli_fname == NULL) return 12000;
  return strstr(self.dli_fname, "cuda_v13") != NULL ? 13000 : 12000;
}

/* As the CUDA runtime starts: one dlsym, then everything by name and version. 0, or a CUDA error.
 */
static int open_runtime(struct runtime *runtime) {
  const struct {
    const char *name;
    int version;
    void **target;
  } wanted[] = {
      {"cuInit", 2000, (void **)&runtime->init},
      {"cuDriverGetVersion", 2020, (void **)&runtime->driver_version},
      {"cuDeviceGetCount", 2000, (void **)&runtime->count},
      {"cuDeviceGetName", 2000, (void **)&runtime->name},
      {"cuDeviceGetUuid", 11040, (void **)&runtime->uuid},
      {"cuDeviceTotalMem", 3020, (void **)&runtime->total},
      {"cuDevicePrimaryCtxRetain", 7000, (void **)&runtime->retain},
      {"cuDevicePrimaryCtxRelease", 11000, (void **)&runtime->release},
      {"cuCtxSetCurrent", 4000, (void **)&runtime->set_current},
      {"cuMemGetInfo", 3020, (void **)&runtime->memory},
  };
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return 999;
  *(void **)&runtime->get_proc = dlsym(library, "cuGetProcAddress_v2");
  if (runtime->get_proc == NULL) return 500;
  for (size_t index = 0; index < sizeof wanted / sizeof *wanted; index++) {
    int found = -1;
    int result =
        runtime->get_proc(wanted[index].name, wanted[index].target, wanted[index].version, 0, &found);
    if (result != 0) return result;
    if (*wanted[index].target == NULL) return 500;
  }
  return runtime->init(0);
}

static int number(int attribute, int device) {
  int value = 0;
  return cuDeviceGetAttribute(&value, attribute, device) == 0 ? value : 0;
}

static bool read_device(const struct runtime *runtime, int index, bool deep, struct device *device) {
  int handle = 0;
  unsigned char uuid[16] = {0};
  void *context = NULL;
  size_t total = 0, available = 0, granularity = 0;
  *device = (struct device){.index = index};
  if (cuDeviceGet(&handle, index) != 0) return false;
  if (runtime->name(device->name, sizeof device->name, handle) != 0) return false;
  device->major = number(75, handle);
  device->minor = number(76, handle);
  device->integrated = number(18, handle) == 1;
  text(device->pci, sizeof device->pci, "%04x:%02x:%02x.0", (unsigned)number(50, handle),
       (unsigned)number(33, handle), (unsigned)number(34, handle));
  runtime->uuid(uuid, handle);
  text(device->uuid, sizeof device->uuid,
       "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", uuid[0], uuid[1], uuid[2],
       uuid[3], uuid[4], uuid[5], uuid[6], uuid[7], uuid[8], uuid[9], uuid[10], uuid[11], uuid[12], uuid[13],
       uuid[14], uuid[15]);
  runtime->driver_version(&device->driver);
  if (runtime->total(&total, handle) != 0) return false;
  device->total = device->available = total;
  if (runtime->retain(&context, handle) != 0) return false;
  bool usable = runtime->set_current(context) == 0 && runtime->memory(&available, &total) == 0;
  if (usable) {
    device->total = total;
    device->available = available;
  }
  if (usable && deep && number(102, handle) != 0) { /* virtual memory management */
    struct allocation properties = {.type = 1, .location = {.type = 1, .id = handle}};
    usable = cuMemGetAllocationGranularity(&granularity, &properties, 1) == 0 && granularity != 0;
  }
  return usable; /* the primary context stays, as ggml's does */
}

__attribute__((visibility("default"))) int standin_backend_hold(size_t bytes) {
  struct runtime runtime = {.init = NULL};
  int (*allocate)(unsigned long long *, size_t) = NULL;
  unsigned long long address = 0;
  int found = -1, result = open_runtime(&runtime);
  if (result == 0) result = runtime.get_proc("cuMemAlloc", (void **)&allocate, 3020, 0, &found);
  return result != 0 ? result : allocate == NULL ? 500 : allocate(&address, bytes);
}

__attribute__((visibility("default"))) int standin_backend_devices(struct device *devices, int most,
                                                                   bool deep, char *why, size_t size) {
  struct runtime runtime = {.init = NULL};
  int count = 0, usable = 0, version = 0, result = open_runtime(&runtime);
  text(why, size, "%s", "");
  if (result == 0) result = runtime.driver_version(&version);
  if (result == 0 && version < runtime_version()) {
    text(why, size, "CUDA driver version is insufficient for CUDA runtime version");
    return 0;
  }
  if (result == 0) result = runtime.count(&count);
  if (result == 0 && count == 0) result = 100;
  if (result != 0) {
    text(why, size, "%s", error_text(result));
    return 0;
  }
  for (int index = 0; index < count && usable < most; index++) {
    if (read_device(&runtime, index, deep, &devices[usable])) usable++;
  }
  return usable;
}
