#include "probe/report.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum {
  TRIP_BYTES = 1024 * 1024,
  ATTRIBUTE_COMPUTE_MAJOR = 75,
  ATTRIBUTE_COMPUTE_MINOR = 76,
};

/* The driver API as far as it is asked here. CUcontext is a pointer, CUdeviceptr 64 bits. */
struct driver {
  int (*init)(unsigned flags);
  int (*version)(int *version);
  int (*count)(int *count);
  int (*device)(int *device, int ordinal);
  int (*name)(char *name, int size, int device);
  int (*total)(size_t *bytes, int device);
  int (*attribute)(int *value, int attribute, int device);
  int (*uuid)(unsigned char uuid[16], int device);
  int (*pci)(char *id, int size, int device);
  int (*retain)(void **context, int device);
  int (*release)(int device);
  int (*current)(void *context);
  int (*allocate)(uint64_t *address, size_t bytes);
  int (*give_back)(uint64_t address);
  int (*to_device)(uint64_t to, const void *from, size_t bytes);
  int (*within)(uint64_t to, uint64_t from, size_t bytes);
  int (*from_device)(void *to, uint64_t from, size_t bytes);
  int (*error_name)(int code, const char **name);
};

static void begin(struct vgpu_probe_report *report, const char *step) {
  snprintf(report->step, sizeof report->step, "%s", step);
}

__attribute__((format(printf, 2, 3))) static bool fail(struct vgpu_probe_report *report, const char *format,
                                                       ...) {
  va_list arguments;

  va_start(arguments, format);
  vsnprintf(report->message, sizeof report->message, format, arguments);
  va_end(arguments);
  report->failed = true;
  return false;
}

/* True if the call succeeded; else the failure is in the report. */
static bool good(struct vgpu_probe_report *report, const struct driver *driver, int code) {
  const char *name = NULL;

  if (code == 0) return true;
  if (driver->error_name && driver->error_name(code, &name) == 0 && name)
    snprintf(report->name, sizeof report->name, "%s", name);
  report->coded = true;
  report->code = code;
  return fail(report, "%s failed with %d (%s)", report->step, code, *report->name ? report->name : "?");
}

/* The newer name first: the real driver keeps the older one for old programs. */
static bool find(struct vgpu_probe_report *report, void *library, void *function, const char *newer,
                 const char *older) {
  void *symbol = newer ? dlsym(library, newer) : NULL;

  if (!symbol && older) symbol = dlsym(library, older);
  memcpy(function, &symbol, sizeof symbol);
  return symbol || fail(report, "%s has no %s", report->library, older ? older : newer);
}

static bool find_all(struct vgpu_probe_report *report, void *library, struct driver *driver) {
  begin(report, "dlsym");
  void *error_name = dlsym(library, "cuGetErrorName"); /* may be missing: it is only for the message */
  memcpy(&driver->error_name, &error_name, sizeof error_name);
  return find(report, library, &driver->init, NULL, "cuInit") &&
         find(report, library, &driver->version, NULL, "cuDriverGetVersion") &&
         find(report, library, &driver->count, NULL, "cuDeviceGetCount") &&
         find(report, library, &driver->device, NULL, "cuDeviceGet") &&
         find(report, library, &driver->name, NULL, "cuDeviceGetName") &&
         find(report, library, &driver->total, "cuDeviceTotalMem_v2", "cuDeviceTotalMem") &&
         find(report, library, &driver->attribute, NULL, "cuDeviceGetAttribute") &&
         find(report, library, &driver->uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid") &&
         find(report, library, &driver->pci, NULL, "cuDeviceGetPCIBusId") &&
         find(report, library, &driver->retain, NULL, "cuDevicePrimaryCtxRetain") &&
         find(report, library, &driver->release, "cuDevicePrimaryCtxRelease_v2",
              "cuDevicePrimaryCtxRelease") &&
         find(report, library, &driver->current, NULL, "cuCtxSetCurrent") &&
         find(report, library, &driver->allocate, "cuMemAlloc_v2", NULL) &&
         find(report, library, &driver->give_back, "cuMemFree_v2", NULL) &&
         find(report, library, &driver->to_device, "cuMemcpyHtoD_v2", NULL) &&
         find(report, library, &driver->within, "cuMemcpyDtoD_v2", NULL) &&
         find(report, library, &driver->from_device, "cuMemcpyDtoH_v2", NULL);
}

static bool read_device(struct vgpu_probe_report *report, const struct driver *driver, int ordinal) {
  struct vgpu_probe_device found = {0};
  unsigned char uuid[16];
  size_t memory = 0;
  int device = 0;

  begin(report, "cuDeviceGet");
  if (!good(report, driver, driver->device(&device, ordinal))) return false;
  begin(report, "cuDeviceGetName");
  if (!good(report, driver, driver->name(found.name, (int)sizeof found.name - 1, device))) return false;
  begin(report, "cuDeviceTotalMem");
  if (!good(report, driver, driver->total(&memory, device))) return false;
  found.memory = memory;
  begin(report, "cuDeviceGetAttribute");
  if (!good(report, driver, driver->attribute(&found.compute_major, ATTRIBUTE_COMPUTE_MAJOR, device)) ||
      !good(report, driver, driver->attribute(&found.compute_minor, ATTRIBUTE_COMPUTE_MINOR, device)))
    return false;
  begin(report, "cuDeviceGetUuid");
  if (!good(report, driver, driver->uuid(uuid, device))) return false;
  char *at = found.uuid + snprintf(found.uuid, sizeof found.uuid, "GPU-");
  for (int i = 0; i < 16; i++)
    at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
  begin(report, "cuDeviceGetPCIBusId");
  if (!good(report, driver, driver->pci(found.pci, (int)sizeof found.pci, device))) return false;
  report->devices[report->device_count++] = found;
  return true;
}

static uint64_t now(void) {
  struct timespec time;

  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* Random bytes to the device, across it, and back: a device that only says "success" fails here. */
static bool round_trip(struct vgpu_probe_report *report, const struct driver *driver, unsigned char *sent,
                       unsigned char *got) {
  uint64_t first = 0, second = 0;

  for (size_t filled = 0; filled < TRIP_BYTES;) {
    ssize_t more = getrandom(sent + filled, TRIP_BYTES - filled, 0);
    if (more < 0 && errno != EINTR) return fail(report, "no random bytes: %s", strerror(errno));
    filled += more > 0 ? (size_t)more : 0;
  }
  for (size_t i = 0; i < TRIP_BYTES; i++) got[i] = (unsigned char)~sent[i];

  begin(report, "cuMemAlloc");
  if (!good(report, driver, driver->allocate(&first, TRIP_BYTES))) return false;
  bool right = good(report, driver, driver->allocate(&second, TRIP_BYTES));
  uint64_t start = now();
  if (right) {
    begin(report, "cuMemcpyHtoD");
    right = good(report, driver, driver->to_device(first, sent, TRIP_BYTES));
  }
  if (right) {
    begin(report, "cuMemcpyDtoD");
    right = good(report, driver, driver->within(second, first, TRIP_BYTES));
  }
  if (right) {
    begin(report, "cuMemcpyDtoH");
    right = good(report, driver, driver->from_device(got, second, TRIP_BYTES));
  }
  if (right) {
    report->trip_microseconds = now() - start;
    report->trip_bytes = TRIP_BYTES;
    report->trip_ok = memcmp(sent, got, TRIP_BYTES) == 0;
    report->trip_done = true;
    begin(report, "compare");
    right = report->trip_ok || fail(report, "the bytes that came back from the device are not "
                                            "those that were sent");
  }
  if (right) begin(report, "cuMemFree");
  if (second) {
    int code = driver->give_back(second);
    right = right && good(report, driver, code);
  }
  int code = driver->give_back(first);
  return right && good(report, driver, code);
}

static void try_memory(struct vgpu_probe_report *report, const struct driver *driver) {
  unsigned char *sent = malloc(TRIP_BYTES), *got = malloc(TRIP_BYTES);
  void *context = NULL;
  int device = 0;

  if (!sent || !got) {
    fail(report, "out of memory");
  } else {
    begin(report, "cuDevicePrimaryCtxRetain");
    if (good(report, driver, driver->device(&device, 0)) &&
        good(report, driver, driver->retain(&context, device))) {
      begin(report, "cuCtxSetCurrent");
      if (good(report, driver, driver->current(context)) && round_trip(report, driver, sent, got))
        begin(report, "cuDevicePrimaryCtxRelease");
      int code = driver->release(device);
      if (!report->failed) good(report, driver, code);
    }
  }
  free(sent);
  free(got);
}

void vgpu_probe_cuda(struct vgpu_probe_report *report, const char *library) {
  struct driver driver = {0};
  struct link_map *map = NULL;
  int count = 0;

  begin(report, "dlopen");
  void *handle = dlopen(library ? library : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *why = dlerror();
    fail(report, "%s", why ? why : "libcuda.so.1 cannot be opened");
    return;
  }
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && !realpath(map->l_name, report->library))
    snprintf(report->library, sizeof report->library, "%s", map->l_name);

  if (!find_all(report, handle, &driver)) return;
  begin(report, "cuInit");
  if (!good(report, &driver, driver.init(0))) return;
  begin(report, "cuDriverGetVersion");
  if (!good(report, &driver, driver.version(&report->driver))) return;
  begin(report, "cuDeviceGetCount");
  if (!good(report, &driver, driver.count(&count))) return;
  if (count < 1) {
    fail(report, "the driver works and has no device");
    return;
  }
  for (int i = 0; i < count && i < VGPU_PROBE_DEVICES; i++) {
    if (!read_device(report, &driver, i)) return;
  }
  try_memory(report, &driver);
  /* Left open: unloading a driver is one more thing that can go wrong, and the process ends. */
}
