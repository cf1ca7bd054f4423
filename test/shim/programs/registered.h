/* For programs that test registered memory: the calls, a kernel, and copies that always work. */
#ifndef VGPU_TEST_REGISTERED_H
#define VGPU_TEST_REGISTERED_H

#include <sys/mman.h>

#include "check.h"

enum {
  PORTABLE = 1,
  DEVICEMAP = 2,
  READ_ONLY = 8,
  CAN_MAP = 19,
  ALREADY_REGISTERED = 712,
  NOT_REGISTERED = 713,
  PAGE = 4096
};

/* Adds to each of 64 numbers. */
static const char registered_text[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry add(.param .u64 at, .param .u32 what) { .reg .b64 %p, %o; .reg .b32 %i, %v, %w;\n"
    "ld.param.u64 %p, [at]; ld.param.u32 %w, [what]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4;\n"
    "add.u64 %p, %p, %o; ld.u32 %v, [%p]; add.u32 %v, %v, %w; st.u32 [%p], %v; ret; }\n";

static inline void add(devptr at, unsigned what) {
  static void *function;
  void *module = NULL, *parameters[] = {&at, &what};
  if (function == NULL) {
    MUST(CALL(cuModuleLoadData, (void **, const void *), &module, registered_text));
    MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "add"));
  }
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function, 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static inline int attach(void *memory, size_t bytes, unsigned flags) {
  return CALL(cuMemHostRegister_v2, (void *, size_t, unsigned), memory, bytes, flags);
}

static inline int detach(void *memory) {
  return CALL(cuMemHostUnregister, (void *), memory);
}

static inline int device_pointer(devptr *at, void *memory) {
  return CALL(cuMemHostGetDevicePointer_v2, (devptr *, void *, unsigned), at, memory, 0);
}

/* True on this machine, with rings, and outside the memory that a VM shares with its host. */
static inline bool can(void) {
  int value = 0;
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &value, CAN_MAP, 0));
  return value != 0 && getenv("VGPU_VM_MEMORY") == NULL;
}

static inline void *pages(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(3);
  return memory;
}

/* Copies from registered memory work, whatever else is refused. */
static inline void copies(unsigned char *memory, size_t bytes) {
  devptr device = check_alloc(bytes);
  unsigned char first = memory[0], last = memory[bytes - 1];
  OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device, memory, bytes));
  memory[0]++;
  memory[bytes - 1]++;
  OK(CALL(cuMemcpyDtoHAsync_v2, (void *, devptr, size_t, void *), memory, device, bytes, NULL));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(first, memory[0]);
  IS(last, memory[bytes - 1]);
  OK(CALL(cuMemFree_v2, (devptr), device));
}

static inline void refused_as(unsigned char *memory, size_t bytes, unsigned flags) {
  devptr at = 0;
  MUST(attach(memory, bytes, flags));
  IS(NOT_SUPPORTED, device_pointer(&at, memory));
  if (!check_failures) copies(memory, bytes);
  OK(detach(memory));
}

static inline void refused(unsigned char *memory, size_t bytes) {
  refused_as(memory, bytes, DEVICEMAP);
}

#endif
