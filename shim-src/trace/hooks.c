/* dlvsym finds the real dlsym, under its version since glibc 2.34 or the one before. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "trace/trace.h"

#if defined(__x86_64__)
#define OLD_VERSION "GLIBC_2.2.5"
#else
#define OLD_VERSION "GLIBC_2.17"
#endif

typedef void *dlsym_function(void *handle, const char *symbol);

static void *next_of(const char *symbol) {
  void *found = dlvsym(RTLD_NEXT, symbol, "GLIBC_2.34");
  return found != NULL ? found : dlvsym(RTLD_NEXT, symbol, OLD_VERSION);
}

/* Threads that do this at once find the same function. */
static void *real_of(void **kept, const char *symbol) {
  void *real = __atomic_load_n(kept, __ATOMIC_ACQUIRE);
  if (real == NULL) {
    real = next_of(symbol);
    __atomic_store_n(kept, real, __ATOMIC_RELEASE);
  }
  return real;
}

static const char *object_of(void *handle) {
  struct link_map *object = NULL;
  if (handle == RTLD_DEFAULT) return "default";
  if (handle == RTLD_NEXT) return "next";
  if (dlinfo(handle, RTLD_DI_LINKMAP, &object) != 0 || object == NULL) return NULL;
  return object->l_name[0] == '\0' ? "program" : object->l_name;
}

struct vgpu_trace_way vgpu_trace_dlsym(void *handle, const char *symbol, const void *caller) {
  static void *kept;
  dlsym_function *real = (dlsym_function *)real_of(&kept, "dlsym");
  struct vgpu_trace_way way = {.next = (void *)real};
  if (real == NULL || symbol == NULL || vgpu_trace_output() < 0 || !vgpu_trace_is_ours(symbol)) return way;
  vgpu_trace_scan(false);
  /* The result of RTLD_NEXT depends on the caller's address, so the jump makes the call. */
  void *found = handle == RTLD_NEXT ? NULL : real(handle, symbol);
  struct vgpu_trace_line line;
  vgpu_trace_begin(&line, "dlsym");
  vgpu_trace_holder(&line, "caller", caller);
  vgpu_trace_text(&line, "of", object_of(handle));
  vgpu_trace_text(&line, "symbol", symbol);
  vgpu_trace_holder(&line, "library", found);
  vgpu_trace_end(&line);
  void *given = vgpu_trace_wrap(symbol, found);
  if (given != found) way.answer = given;
  return way;
}

void *vgpu_trace_dlopen(const char *file, int flags, const void *caller) {
  static void *kept;
  void *real = real_of(&kept, "dlopen");
  if (vgpu_trace_output() < 0) return real;
  vgpu_trace_scan(false);
  struct vgpu_trace_line line;
  vgpu_trace_begin(&line, "dlopen");
  vgpu_trace_holder(&line, "caller", caller);
  vgpu_trace_text(&line, "file", file == NULL ? "program" : file);
  vgpu_trace_number(&line, "flags", flags);
  vgpu_trace_text(&line, "deepbind", (flags & RTLD_DEEPBIND) != 0 ? "yes" : "no");
  vgpu_trace_end(&line);
  return real;
}

/* Traces the bindings that were made while the program ran. trace.h explains why there is no constructor. */
__attribute__((destructor)) static void at_exit(void) {
  if (vgpu_trace_output() >= 0) vgpu_trace_scan(true);
}
