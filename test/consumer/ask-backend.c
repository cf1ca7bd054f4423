/* Loading libggml-cuda.so and asking it, as the children of designs 2 and 3 do. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"

int ask_backend(const char *file, struct device *devices, int most, bool print) {
  char why[256];
  bool deep = strcmp(setting("STANDIN_DEEPBIND"), "1") == 0;
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | (deep ? RTLD_DEEPBIND : 0));
  if (library == NULL) {
    if (print) fprintf(stderr, "load_backend: failed to load %s: %s\n", file, dlerror());
    return -1;
  }
  backend_devices_fn *ask = (backend_devices_fn *)dlsym(library, BACKEND_DEVICES);
  if (ask == NULL) {
    if (print) fprintf(stderr, "load_backend: failed to find ggml_backend_init in %s\n", file);
    return -1;
  }
  int count = ask(devices, most, strcmp(setting("GGML_CUDA_INIT"), "1") == 0, why, sizeof why);
  if (print && *why != '\0') fprintf(stderr, "ggml_cuda_init: failed to initialize CUDA: %s\n", why);
  if (print && count > 0) {
    unsigned long long total = 0;
    for (int index = 0; index < count; index++) total += devices[index].total >> 20;
    fprintf(stderr, "ggml_cuda_init: found %d CUDA devices (Total VRAM: %llu MiB):\n", count, total);
    for (int index = 0; index < count; index++) {
      fprintf(stderr, "  Device %d: %s, compute capability %d.%d, VMM: no, VRAM: %llu MiB\n", index,
              devices[index].name, devices[index].major, devices[index].minor,
              (unsigned long long)devices[index].total >> 20);
    }
  }
  if (print) fprintf(stderr, "load_backend: loaded CUDA backend from %s\n", file);
  return count;
}

void hold_memory(const char *file, size_t bytes) {
  void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
  backend_hold_fn *hold = library == NULL ? NULL : (backend_hold_fn *)dlsym(library, BACKEND_HOLD);
  int result = hold == NULL ? 999 : hold(bytes);
  if (result == 0) return;
  fprintf(
      stderr,
      "ggml_backend_cuda_buffer_type_alloc_buffer: allocating %.2f MiB on device 0: cudaMalloc failed: %s\n",
      (double)bytes / (1 << 20), result == 2 ? "out of memory" : "unknown error");
}
