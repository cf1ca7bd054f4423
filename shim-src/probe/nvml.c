#include "probe/report.h"

#include <dlfcn.h>
#include <string.h>

static void *find(struct vgpu_probe_report *report, void *library, const char *name) {
  void *symbol = dlsym(library, name);

  if (!symbol) snprintf(report->nvml_error, sizeof report->nvml_error, "the library has no %s", name);
  return symbol;
}

static bool good(struct vgpu_probe_report *report, const char *(*text)(int), const char *call, int code) {
  if (code == 0) return true;
  const char *why = text ? text(code) : NULL;
  snprintf(report->nvml_error, sizeof report->nvml_error, "%s failed with %d (%s)", call, code,
           why ? why : "?");
  return false;
}

static void *open_library(const char *beside) {
  char path[4096];
  const char *slash = beside ? strrchr(beside, '/') : NULL;

  if (slash) {
    int length = snprintf(path, sizeof path, "%.*s/libnvidia-ml.so.1", (int)(slash - beside), beside);
    void *library = length > 0 && (size_t)length < sizeof path ? dlopen(path, RTLD_NOW) : NULL;
    if (library) return library;
  }
  return dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
}

void vgpu_probe_nvml(struct vgpu_probe_report *report, const char *library) {
  int (*init)(void), (*shutdown)(void), (*driver)(char *, unsigned);
  const char *(*text)(int);

  snprintf(report->nvml_error, sizeof report->nvml_error, "did not answer");
  void *handle = open_library(library);
  if (!handle) {
    const char *why = dlerror();
    snprintf(report->nvml_error, sizeof report->nvml_error, "%s", why ? why : "cannot be opened");
    return;
  }
  void *symbols[] = {find(report, handle, "nvmlInit_v2"), find(report, handle, "nvmlShutdown"),
                     find(report, handle, "nvmlSystemGetDriverVersion"), dlsym(handle, "nvmlErrorString")};
  if (symbols[0] && symbols[1] && symbols[2]) {
    memcpy(&init, &symbols[0], sizeof init);
    memcpy(&shutdown, &symbols[1], sizeof shutdown);
    memcpy(&driver, &symbols[2], sizeof driver);
    memcpy(&text, &symbols[3], sizeof text);
    if (good(report, text, "nvmlInit_v2", init())) {
      report->nvml_ok = good(report, text, "nvmlSystemGetDriverVersion",
                             driver(report->nvml_driver, (unsigned)sizeof report->nvml_driver));
      shutdown();
    }
  }
  if (report->nvml_ok) report->nvml_error[0] = '\0';
}
