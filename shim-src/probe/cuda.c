#include "probe/driver.h"

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

void vgpu_probe_begin(struct vgpu_probe_report *report, const char *step) {
  snprintf(report->step, sizeof report->step, "%s", step);
}

bool vgpu_probe_fail(struct vgpu_probe_report *report, enum vgpu_probe_failure kind, const char *format,
                     ...) {
  va_list arguments;

  va_start(arguments, format);
  vsnprintf(report->message, sizeof report->message, format, arguments);
  va_end(arguments);
  report->kind = kind;
  report->failed = true;
  return false;
}

bool vgpu_probe_good(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver, int code) {
  const char *name = NULL;

  if (code == 0) return true;
  if (driver->error_name && driver->error_name(code, &name) == 0 && name)
    snprintf(report->name, sizeof report->name, "%s", name);
  report->coded = true;
  report->code = code;
  return vgpu_probe_fail(report, VGPU_PROBE_FAILURE_CALL, "%s failed with %d (%s)", report->step, code,
                         *report->name ? report->name : "?");
}

bool vgpu_probe_find(struct vgpu_probe_report *report, void *library, void *function, const char *newer,
                     const char *older) {
  void *symbol = newer ? dlsym(library, newer) : NULL;

  if (!symbol && older) symbol = dlsym(library, older);
  memcpy(function, &symbol, sizeof symbol);
  return symbol || vgpu_probe_fail(report, VGPU_PROBE_FAILURE_SYMBOL, "%s has no %s", report->library,
                                   older ? older : newer);
}

static bool find_all(struct vgpu_probe_report *report, void *library, struct vgpu_probe_driver *driver) {
  vgpu_probe_begin(report, "dlsym");
  void *error_name = dlsym(library, "cuGetErrorName"); /* may be missing: needed only for the message */
  memcpy(&driver->error_name, &error_name, sizeof error_name);
  void *table = dlsym(library, "cuGetExportTable"); /* may be missing: only our own library needs it */
  memcpy(&driver->table, &table, sizeof table);
  return vgpu_probe_find(report, library, &driver->init, NULL, "cuInit") &&
         vgpu_probe_find(report, library, &driver->version, NULL, "cuDriverGetVersion") &&
         vgpu_probe_find(report, library, &driver->count, NULL, "cuDeviceGetCount") &&
         vgpu_probe_find(report, library, &driver->device, NULL, "cuDeviceGet") &&
         vgpu_probe_find(report, library, &driver->name, NULL, "cuDeviceGetName") &&
         vgpu_probe_find(report, library, &driver->total, "cuDeviceTotalMem_v2", "cuDeviceTotalMem") &&
         vgpu_probe_find(report, library, &driver->attribute, NULL, "cuDeviceGetAttribute") &&
         vgpu_probe_find(report, library, &driver->uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid") &&
         vgpu_probe_find(report, library, &driver->pci, NULL, "cuDeviceGetPCIBusId") &&
         vgpu_probe_find(report, library, &driver->retain, NULL, "cuDevicePrimaryCtxRetain") &&
         vgpu_probe_find(report, library, &driver->release, "cuDevicePrimaryCtxRelease_v2",
                         "cuDevicePrimaryCtxRelease") &&
         vgpu_probe_find(report, library, &driver->current, NULL, "cuCtxSetCurrent") &&
         vgpu_probe_find(report, library, &driver->allocate, "cuMemAlloc_v2", NULL) &&
         vgpu_probe_find(report, library, &driver->give_back, "cuMemFree_v2", NULL) &&
         vgpu_probe_find(report, library, &driver->to_device, "cuMemcpyHtoD_v2", NULL) &&
         vgpu_probe_find(report, library, &driver->within, "cuMemcpyDtoD_v2", NULL) &&
         vgpu_probe_find(report, library, &driver->from_device, "cuMemcpyDtoH_v2", NULL);
}

static bool read_device(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver,
                        int ordinal) {
  struct vgpu_probe_device found = {0};
  unsigned char uuid[16];
  size_t memory = 0;
  int device = 0;

  vgpu_probe_begin(report, "cuDeviceGet");
  if (!vgpu_probe_good(report, driver, driver->device(&device, ordinal))) return false;
  vgpu_probe_begin(report, "cuDeviceGetName");
  if (!vgpu_probe_good(report, driver, driver->name(found.name, (int)sizeof found.name - 1, device)))
    return false;
  vgpu_probe_begin(report, "cuDeviceTotalMem");
  if (!vgpu_probe_good(report, driver, driver->total(&memory, device))) return false;
  found.memory = memory;
  vgpu_probe_begin(report, "cuDeviceGetAttribute");
  if (!vgpu_probe_good(report, driver,
                       driver->attribute(&found.compute_major, ATTRIBUTE_COMPUTE_MAJOR, device)) ||
      !vgpu_probe_good(report, driver,
                       driver->attribute(&found.compute_minor, ATTRIBUTE_COMPUTE_MINOR, device)))
    return false;
  vgpu_probe_begin(report, "cuDeviceGetUuid");
  if (!vgpu_probe_good(report, driver, driver->uuid(uuid, device))) return false;
  char *at = found.uuid + snprintf(found.uuid, sizeof found.uuid, "GPU-");
  for (int i = 0; i < 16; i++)
    at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
  vgpu_probe_begin(report, "cuDeviceGetPCIBusId");
  if (!vgpu_probe_good(report, driver, driver->pci(found.pci, (int)sizeof found.pci, device))) return false;
  report->devices[report->device_count++] = found;
  return true;
}

uint64_t vgpu_probe_now(void) {
  struct timespec time;

  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

bool vgpu_probe_random(struct vgpu_probe_report *report, void *to, size_t bytes) {
  for (size_t filled = 0; filled < bytes;) {
    ssize_t more = getrandom((char *)to + filled, bytes - filled, 0);
    if (more < 0 && errno != EINTR)
      return vgpu_probe_fail(report, VGPU_PROBE_FAILURE_OTHER, "no random bytes: %s", strerror(errno));
    filled += more > 0 ? (size_t)more : 0;
  }
  return true;
}

/* Copies random bytes to the device, across it, and back. A device that only reports success fails here. */
static bool round_trip(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver,
                       unsigned char *sent, unsigned char *got) {
  uint64_t first = 0, second = 0;

  if (!vgpu_probe_random(report, sent, TRIP_BYTES)) return false;
  for (size_t i = 0; i < TRIP_BYTES; i++) got[i] = (unsigned char)~sent[i];

  vgpu_probe_begin(report, "cuMemAlloc");
  if (!vgpu_probe_good(report, driver, driver->allocate(&first, TRIP_BYTES))) return false;
  bool right = vgpu_probe_good(report, driver, driver->allocate(&second, TRIP_BYTES));
  uint64_t start = vgpu_probe_now();
  if (right) {
    vgpu_probe_begin(report, "cuMemcpyHtoD");
    right = vgpu_probe_good(report, driver, driver->to_device(first, sent, TRIP_BYTES));
  }
  if (right) {
    vgpu_probe_begin(report, "cuMemcpyDtoD");
    right = vgpu_probe_good(report, driver, driver->within(second, first, TRIP_BYTES));
  }
  if (right) {
    vgpu_probe_begin(report, "cuMemcpyDtoH");
    right = vgpu_probe_good(report, driver, driver->from_device(got, second, TRIP_BYTES));
  }
  if (right) {
    report->trip_microseconds = vgpu_probe_now() - start;
    report->trip_bytes = TRIP_BYTES;
    report->trip_ok = memcmp(sent, got, TRIP_BYTES) == 0;
    report->trip_done = true;
    vgpu_probe_begin(report, "compare");
    right = report->trip_ok || vgpu_probe_fail(report, VGPU_PROBE_FAILURE_MEMORY, "%s",
                                               vgpu_probe_failure_text(VGPU_PROBE_FAILURE_MEMORY));
  }
  if (right) vgpu_probe_begin(report, "cuMemFree");
  if (second) {
    int code = driver->give_back(second);
    right = right && vgpu_probe_good(report, driver, code);
  }
  int code = driver->give_back(first);
  return right && vgpu_probe_good(report, driver, code);
}

static void try_device(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver,
                       bool compute) {
  unsigned char *sent = malloc(TRIP_BYTES), *got = malloc(TRIP_BYTES);
  void *context = NULL;
  int device = 0;

  if (!sent || !got) {
    vgpu_probe_fail(report, VGPU_PROBE_FAILURE_OTHER, "out of memory");
  } else {
    vgpu_probe_begin(report, "cuDevicePrimaryCtxRetain");
    if (vgpu_probe_good(report, driver, driver->device(&device, 0)) &&
        vgpu_probe_good(report, driver, driver->retain(&context, device))) {
      vgpu_probe_begin(report, "cuCtxSetCurrent");
      if (vgpu_probe_good(report, driver, driver->current(context)) &&
          round_trip(report, driver, sent, got) && compute)
        vgpu_probe_compute(report, driver);
      if (!report->failed) vgpu_probe_begin(report, "cuDevicePrimaryCtxRelease");
      int code = driver->release(device);
      if (!report->failed) vgpu_probe_good(report, driver, code);
    }
  }
  free(sent);
  free(got);
}

/* Our libcuda says why there is no host. Others refuse the table, or return one of another size. */
static void ask_about_host(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver) {
  static const unsigned char id[16] = VGPU_TRANSPORT_TABLE;
  const void *table = NULL;
  struct {
    uintptr_t size;
    vgpu_transport_tell *tell;
  } slots;

  if (!driver->table || driver->table(&table, id) != 0 || !table) return;
  memcpy(&slots.size, table, sizeof slots.size);
  if (slots.size != sizeof slots) return;
  memcpy(&slots, table, sizeof slots);
  struct vgpu_transport_word word = {0};
  if (slots.tell(&word, sizeof word) == 0) report->host = word;
}

static void ask_driver(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver,
                       bool compute) {
  int count = 0;

  vgpu_probe_begin(report, "cuInit");
  int code = driver->init(0);
  ask_about_host(report, driver); /* asked here already, because the next step may hang */
  if (!vgpu_probe_good(report, driver, code)) return;
  vgpu_probe_begin(report, "cuDriverGetVersion");
  if (!vgpu_probe_good(report, driver, driver->version(&report->driver))) return;
  vgpu_probe_begin(report, "cuDeviceGetCount");
  if (!vgpu_probe_good(report, driver, driver->count(&count))) return;
  if (count < 1) {
    vgpu_probe_fail(report, VGPU_PROBE_FAILURE_NO_DEVICE, "%s",
                    vgpu_probe_failure_text(VGPU_PROBE_FAILURE_NO_DEVICE));
    return;
  }
  for (int i = 0; i < count && i < VGPU_PROBE_DEVICES; i++) {
    if (!read_device(report, driver, i)) return;
  }
  try_device(report, driver, compute);
}

void vgpu_probe_cuda(struct vgpu_probe_report *report, const char *library, bool compute) {
  struct vgpu_probe_driver driver = {0};
  struct link_map *map = NULL;

  vgpu_probe_begin(report, "dlopen");
  void *handle = dlopen(library ? library : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *why = dlerror();
    vgpu_probe_fail(report, VGPU_PROBE_FAILURE_LIBRARY, "%s", why ? why : "libcuda.so.1 cannot be opened");
    return;
  }
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && !realpath(map->l_name, report->library))
    snprintf(report->library, sizeof report->library, "%s", map->l_name);

  driver.library = handle;
  if (!find_all(report, handle, &driver)) return;
  ask_driver(report, &driver, compute);
  if (report->failed) ask_about_host(report, &driver); /* the host may have been lost meanwhile */
  /* Not closed: unloading a driver could fail, and the process ends. */
}
