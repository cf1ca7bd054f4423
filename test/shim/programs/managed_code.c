/* Managed variables of modules and libraries: the code that owns them, and when their memory is freed. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { MANAGED = 83, TABLE = 9000 };

static const char text[] = ".version 6.0\n.target sm_60\n.address_size 64\n"
                           ".global .texref picture;\n"
                           ".visible .global .attribute(.managed) .align 4 .u32 shared_word = 5;\n"
                           ".visible .global .attribute(.managed) .align 1 .b8 shared_table[9000];\n"
                           ".visible .global .align 4 .u32 plain_word = 6;\n"
                           ".visible .entry go() { .reg .b32 %v;\n"
                           "ld.global.u32 %v, [shared_word]; add.u32 %v, %v, 10;\n"
                           "st.global.u32 [shared_word], %v; ret; }\n";

static bool possible(void) {
  int value = -1;
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &value, MANAGED, 0));
  return value != 0;
}

static void *load_library(void) {
  void *library = NULL;
  MUST(CALL(cuLibraryLoadData, (void **, const void *, void *, void *, unsigned, void *, void *, unsigned),
            &library, text, NULL, NULL, 0, NULL, NULL, 0));
  return library;
}

static int unload(void *library) {
  return CALL(cuLibraryUnload, (void *), library);
}

static void *module_of(void *library) {
  void *module = NULL;
  MUST(CALL(cuLibraryGetModule, (void **, void *), &module, library));
  return module;
}

static devptr variable(void *module, const char *name) {
  devptr at = 0;
  OK(CALL(cuModuleGetGlobal_v2, (devptr *, size_t *, void *, const char *), &at, NULL, module, name));
  return at;
}

static int managed_of(devptr *at, void *library) {
  return CALL(cuLibraryGetManaged, (devptr *, size_t *, void *, const char *), at, NULL, library,
              "shared_word");
}

static int set_context(void *context) {
  return CALL(cuCtxSetCurrent, (void *), context);
}

static void *primary_context(void) {
  void *context = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  return context;
}

static bool active(void) {
  unsigned flags = 0;
  int value = -1;
  MUST(CALL(cuDevicePrimaryCtxGetState, (int, unsigned *, int *), 0, &flags, &value));
  return value != 0;
}

static int release(void) {
  return CALL(cuDevicePrimaryCtxRelease_v2, (int), 0);
}

/* True if the program still has memory at this address. */
static bool mapped(devptr at) {
  unsigned char resident;
  uintptr_t page = (uintptr_t)at / (uintptr_t)sysconf(_SC_PAGESIZE) * (uintptr_t)sysconf(_SC_PAGESIZE);
  return mincore((void *)page, 1, &resident) == 0 || errno != ENOMEM;
}

static int pointer_context(devptr at) {
  void *context = NULL;
  return CALL(cuPointerGetAttribute, (void *, int, devptr), &context, 1, at);
}

/* A module of a library has the library's variables. */
static void library_module(void) {
  if (!possible()) return;
  for (int module_first = 0; module_first < 2; module_first++) {
    void *library = load_library();
    devptr by_library = 0, by_module = 0;
    if (module_first == 0) OK(managed_of(&by_library, library));
    by_module = variable(module_of(library), "shared_word");
    if (module_first == 1) OK(managed_of(&by_library, library));
    TRUE(by_library != 0 && by_library == by_module);
    devptr plain = variable(module_of(library), "plain_word");
    IS(5, *(volatile unsigned *)(uintptr_t)by_module);
    OK(unload(library));
    TRUE(!mapped(by_module));
    IS(INVALID_VALUE, pointer_context(by_module));
    IS(INVALID_VALUE, pointer_context(plain));
  }
}

static void go(void *module, void *stream) {
  void *function = NULL;
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "go"));
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

/* A kernel by the variable's name, copies and fills by its address, and the program change it in turn. */
static void in_turn(void) {
  if (!possible()) return;
  void *library = load_library(), *module = module_of(library), *stream = NULL, *other = NULL;
  devptr at = variable(module, "shared_word"), table = variable(module, "shared_table");
  volatile unsigned *word = (volatile unsigned *)(uintptr_t)at;
  unsigned char *bytes = (unsigned char *)(uintptr_t)table, back[TABLE];
  OK(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  OK(CALL(cuStreamCreate, (void **, unsigned), &other, 1));
  IS(5, *word);
  for (unsigned i = 0; i < TABLE; i++) IS(0, bytes[i]);
  *word = 7;
  go(module, stream);
  OK(CALL(cuStreamSynchronize, (void *), stream));
  IS(17, *word);
  go(module, stream);
  go(module, stream);
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(37, *word);
  check_pattern(bytes, TABLE, 3);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), back, table, TABLE));
  IS(0, memcmp(back, bytes, TABLE));
  OK(CALL(cuMemsetD8Async, (devptr, unsigned char, size_t, void *), table + 100, 9, 8000, other));
  OK(CALL(cuStreamSynchronize, (void *), other));
  memset(back + 100, 9, 8000);
  IS(0, memcmp(back, bytes, TABLE));
  *word = 1;
  bytes[TABLE - 1] = 77;
  go(module, NULL);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), back, table, TABLE));
  IS(77, back[TABLE - 1]);
  IS(11, *word);
  OK(unload(library));
  TRUE(!mapped(at) && !mapped(table));
}

/* References of a library's module end with the library. */
static void references(void) {
  void *library = load_library(), *picture = NULL;
  OK(CALL(cuModuleGetTexRef, (void **, void *, const char *), &picture, module_of(library), "picture"));
  OK(CALL(cuTexRefSetFilterMode, (void *, int), picture, 1));
  OK(unload(library));
  IS(INVALID_HANDLE, CALL(cuTexRefSetFilterMode, (void *, int), picture, 0));
}

/* A module that is queried in another context than its own, or in none. */
static void other_context(void) {
  if (!possible()) return;
  void *own = primary_context(), *other = NULL, *module = NULL;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  OK(set_context(NULL));
  devptr at = variable(module, "shared_word");
  TRUE(at != 0);
  OK(set_context(own));
  OK(CALL(cuModuleUnload, (void *), module));
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &other, 0, 0));
  at = variable(module, "shared_word");
  OK(CALL(cuCtxDestroy_v2, (void *), other));
  OK(set_context(own));
  TRUE(mapped(at));
  IS(5, *(volatile unsigned *)(uintptr_t)at);
  OK(CALL(cuModuleUnload, (void *), module));
  TRUE(!mapped(at));
}

/*
 * A context's end frees the managed variables of its modules. Those of a library stay for its next context.
 */
static void context_ends(void) {
  if (!possible()) return;
  void *library = load_library(), *module = NULL, *context = NULL;
  devptr at = 0, kept = 0, again = 0;
  for (int i = 0; i < 3; i++) {
    MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
    MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
    at = variable(module, "shared_word");
    TRUE(at != 0);
    OK(managed_of(&kept, library));
    TRUE(again == 0 || kept == again);
    again = kept;
    TRUE(kept != at);
    IS(5, *(volatile unsigned *)(uintptr_t)kept);
    OK(CALL(cuCtxDestroy_v2, (void *), context));
    TRUE(!mapped(at));
    IS(INVALID_VALUE, pointer_context(at));
    TRUE(mapped(kept));
  }
  OK(unload(library));
  TRUE(!mapped(kept));
  /* the same of the primary context */
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  at = variable(module, "shared_word");
  OK(CALL(cuDevicePrimaryCtxReset_v2, (int), 0));
  TRUE(!mapped(at));
}

/*
 * Queries a library without a context. The primary context does not become active. When it does later, it
 * sees the values that were written before.
 */
static void without_context(void) {
  if (!possible()) return;
  void *library = load_library(), *context = NULL;
  devptr at = 0, again = 0;
  OK(set_context(NULL));
  OK(release());
  TRUE(!active());
  OK(managed_of(&at, library));
  for (int i = 0; i < 3; i++) OK(managed_of(&again, library));
  TRUE(at != 0 && at == again);
  TRUE(!active());
  IS(INVALID_CONTEXT, release());
  volatile unsigned *word = (volatile unsigned *)(uintptr_t)at;
  IS(5, *word);
  *word = 7;
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  TRUE(active());
  OK(set_context(context));
  go(module_of(library), NULL);
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(17, *word);
  OK(set_context(NULL));
  OK(release());
  TRUE(!active());
  TRUE(mapped(at));
  OK(managed_of(&again, library));
  TRUE(!active());
  OK(unload(library));
  TRUE(!mapped(at));
  /* Two libraries: one is unloaded before the context is active, then one while it is active. */
  for (int retained = 0; retained < 2; retained++) {
    void *other = load_library();
    library = load_library();
    OK(managed_of(&at, library));
    OK(managed_of(&again, other));
    if (retained) MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
    OK(unload(other));
    IS(retained, active());
    IS(5, *(volatile unsigned *)(uintptr_t)at);
    OK(CALL(cuDevicePrimaryCtxReset_v2, (int), 0));
    TRUE(!active());
    OK(managed_of(&again, library));
    IS(5, *(volatile unsigned *)(uintptr_t)again);
    OK(unload(library));
    TRUE(!active());
    IS(retained ? 0 : INVALID_CONTEXT, release());
  }
}

/* The driver chooses the address, and the library cannot map the memory of a VM there. */
static void refused_in_vm(void) {
  if (getenv("VGPU_VM_MEMORY") == NULL) return;
  void *library = load_library(), *module = module_of(library);
  devptr at = 0;
  IS(NOT_SUPPORTED, CALL(cuModuleGetGlobal_v2, (devptr *, size_t *, void *, const char *), &at, NULL, module,
                         "shared_word"));
  IS(NOT_SUPPORTED, managed_of(&at, library));
  TRUE(variable(module, "plain_word") != 0);
  OK(unload(library));
}

static const struct check_case cases[] = {
    {"library_module", library_module}, {"in_turn", in_turn},           {"references", references},
    {"other_context", other_context},   {"context_ends", context_ends}, {"without_context", without_context},
    {"refused_in_vm", refused_in_vm}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
