/* A replacement for each library's cuGetProcAddress, by which the runtime finds the whole driver. */
#include <string.h>

#include "trace/trace.h"

#define PLACES 4

typedef int first_version(const char *symbol, void **function, int version, uint64_t flags);
typedef int second_version(const char *symbol, void **function, int version, uint64_t flags, int *status);

static void *first_real[PLACES], *second_real[PLACES];

static void tell(const void *real, const char *symbol, int version, uint64_t flags, int result,
                 void *const *function, const int *status) {
  struct vgpu_trace_line line;
  vgpu_trace_begin(&line, "cuGetProcAddress");
  vgpu_trace_holder(&line, "of", real);
  vgpu_trace_text(&line, "symbol", symbol);
  vgpu_trace_number(&line, "version", version);
  vgpu_trace_number(&line, "flags", (int64_t)flags);
  vgpu_trace_number(&line, "result", result);
  if (status != NULL) vgpu_trace_number(&line, "status", *status);
  vgpu_trace_holder(&line, "library", result == 0 && function != NULL ? *function : NULL);
  vgpu_trace_end(&line);
}

/* The runtime asks for cuGetProcAddress itself, and uses the result for further lookups. */
static void wrap_found(const char *symbol, int version, void **function) {
  if (symbol == NULL || function == NULL || strcmp(symbol, "cuGetProcAddress") != 0) return;
  *function = vgpu_trace_wrap(version >= 12000 ? "cuGetProcAddress_v2" : symbol, *function);
}

static int ask_first(int place, const char *symbol, void **function, int version, uint64_t flags) {
  first_version *real = (first_version *)__atomic_load_n(&first_real[place], __ATOMIC_ACQUIRE);
  int result = real(symbol, function, version, flags);
  tell((void *)real, symbol, version, flags, result, function, NULL);
  if (result == 0) wrap_found(symbol, version, function);
  return result;
}

static int ask_second(int place, const char *symbol, void **function, int version, uint64_t flags,
                      int *status) {
  second_version *real = (second_version *)__atomic_load_n(&second_real[place], __ATOMIC_ACQUIRE);
  int result = real(symbol, function, version, flags, status);
  tell((void *)real, symbol, version, flags, result, function, status);
  if (result == 0) wrap_found(symbol, version, function);
  return result;
}

#define PLACE(n)                                                                                             \
  static int first_##n(const char *symbol, void **function, int version, uint64_t flags) {                   \
    return ask_first(n, symbol, function, version, flags);                                                   \
  }                                                                                                          \
  static int second_##n(const char *symbol, void **function, int version, uint64_t flags, int *status) {     \
    return ask_second(n, symbol, function, version, flags, status);                                          \
  }
PLACE(0)
PLACE(1)
PLACE(2)
PLACE(3)

static first_version *const first[PLACES] = {first_0, first_1, first_2, first_3};
static second_version *const second[PLACES] = {second_0, second_1, second_2, second_3};

/*
 * Returns the place of a real function, which gets a free place if it has none. PLACES: all places are used.
 */
static int place_of(void **places, void *real) {
  for (int i = 0; i < PLACES; i++) {
    void *expected = NULL;
    if (__atomic_compare_exchange_n(&places[i], &expected, real, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
        expected == real) {
      return i;
    }
  }
  return PLACES;
}

void *vgpu_trace_wrap(const char *symbol, void *real) {
  if (real == NULL) return NULL;
  if (strcmp(symbol, "cuGetProcAddress_v2") == 0) {
    int place = place_of(second_real, real);
    return place < PLACES ? (void *)second[place] : real;
  }
  if (strcmp(symbol, "cuGetProcAddress") == 0) {
    int place = place_of(first_real, real);
    return place < PLACES ? (void *)first[place] : real;
  }
  return real;
}
