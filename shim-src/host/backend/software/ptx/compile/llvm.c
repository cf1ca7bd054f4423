#include "host/backend/software/ptx/compile/llvm.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The types of LLVM's C API: https://llvm.org/doxygen/group__LLVMC.html. Debian's headers belong to one
 * version; these functions are the same from 15 on.
 */
typedef struct LLVMOpaqueContext *LLVMContextRef;
typedef struct LLVMOpaqueModule *LLVMModuleRef;
typedef struct LLVMOpaqueMemoryBuffer *LLVMMemoryBufferRef;
typedef struct LLVMTarget *LLVMTargetRef;
typedef struct LLVMOpaqueTargetMachine *LLVMTargetMachineRef;
typedef struct LLVMOpaqueTargetData *LLVMTargetDataRef;
typedef struct LLVMOpaquePassBuilderOptions *LLVMPassBuilderOptionsRef;
typedef struct LLVMOpaqueError *LLVMErrorRef;
typedef struct LLVMOpaqueDiagnosticInfo *LLVMDiagnosticInfoRef;
typedef void (*LLVMDiagnosticHandler)(LLVMDiagnosticInfoRef, void *);
typedef int LLVMBool;
enum {
  LLVMCodeGenLevelLess = 1,
  LLVMRelocPIC = 2,
  LLVMCodeModelSmall = 3,
  LLVMObjectFile = 1,
  LLVMDSWarning = 1
};

#define FUNCTIONS(X)                                                                                         \
  X(void, LLVMInitializeX86TargetInfo, (void))                                                               \
  X(void, LLVMInitializeX86Target, (void))                                                                   \
  X(void, LLVMInitializeX86TargetMC, (void))                                                                 \
  X(void, LLVMInitializeX86AsmPrinter, (void))                                                               \
  X(void, LLVMContextSetDiagnosticHandler, (LLVMContextRef, LLVMDiagnosticHandler, void *))                  \
  X(char *, LLVMGetDiagInfoDescription, (LLVMDiagnosticInfoRef))                                             \
  X(int, LLVMGetDiagInfoSeverity, (LLVMDiagnosticInfoRef))                                                   \
  X(void, LLVMDisposeMessage, (char *))                                                                      \
  X(LLVMBool, LLVMGetTargetFromTriple, (const char *, LLVMTargetRef *, char **))                             \
  X(LLVMTargetMachineRef, LLVMCreateTargetMachine,                                                           \
    (LLVMTargetRef, const char *, const char *, const char *, int, int, int))                                \
  X(LLVMTargetDataRef, LLVMCreateTargetDataLayout, (LLVMTargetMachineRef))                                   \
  X(void, LLVMSetModuleDataLayout, (LLVMModuleRef, LLVMTargetDataRef))                                       \
  X(void, LLVMSetTarget, (LLVMModuleRef, const char *))                                                      \
  X(void, LLVMParseCommandLineOptions, (int, const char *const *, const char *))                             \
  X(LLVMContextRef, LLVMContextCreate, (void))                                                               \
  X(void, LLVMContextDispose, (LLVMContextRef))                                                              \
  X(LLVMMemoryBufferRef, LLVMCreateMemoryBufferWithMemoryRangeCopy, (const char *, size_t, const char *))    \
  X(LLVMBool, LLVMParseIRInContext, (LLVMContextRef, LLVMMemoryBufferRef, LLVMModuleRef *, char **))         \
  X(void, LLVMDisposeModule, (LLVMModuleRef))                                                                \
  X(LLVMPassBuilderOptionsRef, LLVMCreatePassBuilderOptions, (void))                                         \
  X(void, LLVMDisposePassBuilderOptions, (LLVMPassBuilderOptionsRef))                                        \
  X(LLVMErrorRef, LLVMRunPasses,                                                                             \
    (LLVMModuleRef, const char *, LLVMTargetMachineRef, LLVMPassBuilderOptionsRef))                          \
  X(char *, LLVMGetErrorMessage, (LLVMErrorRef))                                                             \
  X(void, LLVMDisposeErrorMessage, (char *))                                                                 \
  X(LLVMBool, LLVMTargetMachineEmitToMemoryBuffer,                                                           \
    (LLVMTargetMachineRef, LLVMModuleRef, int, char **, LLVMMemoryBufferRef *))                              \
  X(const char *, LLVMGetBufferStart, (LLVMMemoryBufferRef))                                                 \
  X(size_t, LLVMGetBufferSize, (LLVMMemoryBufferRef))                                                        \
  X(void, LLVMDisposeMemoryBuffer, (LLVMMemoryBufferRef))

struct ptx_llvm {
#define FIELD(result, name, arguments) result(*name) arguments;
  FUNCTIONS(FIELD)
  LLVMTargetMachineRef machine;
};

#define TRIPLE "x86_64-unknown-linux-gnu"
#define QUICK(combine) "always-inline,function(sroa,early-cse," combine ",simplifycfg)"
#define THOROUGH(combine)                                                                                    \
  "always-inline,function(sroa,early-cse<memssa>," combine ",simplifycfg,loop-mssa(licm),gvn,dse," combine   \
  ",simplifycfg)"
/* From 18 on, the combiner ends the process if it has more to do, unless it is asked not to look. */
#define BOTH(passes)                                                                                         \
  { passes("instcombine<no-verify-fixpoint>"), passes("instcombine") }
static const char *const passes[2][2] = {BOTH(THOROUGH), BOTH(QUICK)};

#define PLACE "/usr/lib/x86_64-linux-gnu"

uint32_t ptx_llvm_version(char *path, size_t size) {
#if defined(__x86_64__)
  /* The versions that the tests have run with, most often the first. Debian has no 20. */
  static const uint32_t versions[] = {19, 18, 17, 16, 15, 21, 22, 23};
  for (size_t i = 0; i < 2 * sizeof versions / sizeof *versions; i++) {
    /* Not in `path`: with UBSan, GCC reports that it may be NULL. */
    char library[64];
    snprintf(library, sizeof library, i % 2 == 0 ? PLACE "/libLLVM.so.%u.1" : PLACE "/libLLVM-%u.so.1",
             versions[i / 2]);
    if (access(library, R_OK) != 0) continue;
    snprintf(path, size, "%s", library);
    return versions[i / 2];
  }
#else
  (void)size;
#endif
  path[0] = '\0';
  return 0;
}

struct ptx_llvm *ptx_llvm_open(const char *library, const char *cpu, char *why, size_t why_size) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    snprintf(why, why_size, "%s", dlerror());
    return NULL;
  }
  struct ptx_llvm *llvm = calloc(1, sizeof *llvm);
  if (llvm == NULL) return NULL;
  const char *missing = NULL;
  /* POSIX has functions among objects; ISO C does not convert. */
#define LOOK_UP(result, name, arguments)                                                                     \
  {                                                                                                          \
    void *found = dlsym(handle, #name);                                                                      \
    if (found == NULL) missing = #name;                                                                      \
    memcpy(&llvm->name, &found, sizeof found);                                                               \
  }
  FUNCTIONS(LOOK_UP)
  char *message = NULL;
  LLVMTargetRef target;
  if (missing != NULL) {
    snprintf(why, why_size, "%s has no %s", library, missing);
    free(llvm);
    return NULL;
  }
  llvm->LLVMInitializeX86TargetInfo();
  llvm->LLVMInitializeX86Target();
  llvm->LLVMInitializeX86TargetMC();
  llvm->LLVMInitializeX86AsmPrinter();
  if (llvm->LLVMGetTargetFromTriple(TRIPLE, &target, &message) != 0) {
    snprintf(why, why_size, "%s", message);
    free(llvm);
    return NULL;
  }
  llvm->machine = llvm->LLVMCreateTargetMachine(target, TRIPLE, cpu, "", LLVMCodeGenLevelLess, LLVMRelocPIC,
                                                LLVMCodeModelSmall);
  if (llvm->machine != NULL) return llvm;
  snprintf(why, why_size, "no code for %s", cpu);
  free(llvm);
  return NULL;
}

static unsigned char *object_of(struct ptx_llvm *llvm, LLVMModuleRef module, bool quick, size_t *size,
                                char *why, size_t why_size) {
  LLVMPassBuilderOptionsRef options = llvm->LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = llvm->LLVMRunPasses(module, passes[quick][0], llvm->machine, options);
  if (error != NULL) { /* an older one, which does not know the name and has changed nothing */
    llvm->LLVMDisposeErrorMessage(llvm->LLVMGetErrorMessage(error));
    error = llvm->LLVMRunPasses(module, passes[quick][1], llvm->machine, options);
  }
  llvm->LLVMDisposePassBuilderOptions(options);
  if (error != NULL) {
    snprintf(why, why_size, "%s", llvm->LLVMGetErrorMessage(error));
    return NULL;
  }
  char *message = NULL;
  LLVMMemoryBufferRef object;
  if (llvm->LLVMTargetMachineEmitToMemoryBuffer(llvm->machine, module, LLVMObjectFile, &message, &object) !=
      0) {
    snprintf(why, why_size, "%s", message);
    return NULL;
  }
  *size = llvm->LLVMGetBufferSize(object);
  unsigned char *copy = malloc(*size + 1);
  if (copy != NULL) memcpy(copy, llvm->LLVMGetBufferStart(object), *size);
  else snprintf(why, why_size, "no memory");
  llvm->LLVMDisposeMemoryBuffer(object);
  return copy;
}

struct warning {
  struct ptx_llvm *llvm;
  char *why;
  size_t why_size;
  bool is;
};
/* The text asks for a warning if the code takes much stack ("warn-stack-size"). */
static void note(LLVMDiagnosticInfoRef information, void *data) {
  struct warning *warning = data;
  if (warning->llvm->LLVMGetDiagInfoSeverity(information) > LLVMDSWarning) return; /* a remark */
  char *text = warning->llvm->LLVMGetDiagInfoDescription(information);
  snprintf(warning->why, warning->why_size, "%s", text);
  warning->llvm->LLVMDisposeMessage(text);
  warning->is = true;
}

unsigned char *ptx_llvm_compile(struct ptx_llvm *llvm, const char *text, size_t length, bool quick,
                                size_t *size, char *why, size_t why_size) {
  static const char *const options[2] = {"vgpu-compiler", "-regalloc=basic"};
  if (quick) llvm->LLVMParseCommandLineOptions(2, options, NULL); /* for this process */
  LLVMContextRef context = llvm->LLVMContextCreate();
  struct warning warning = {.llvm = llvm, .why = why, .why_size = why_size};
  llvm->LLVMContextSetDiagnosticHandler(context, note, &warning);
  LLVMMemoryBufferRef buffer = llvm->LLVMCreateMemoryBufferWithMemoryRangeCopy(text, length, "region");
  LLVMModuleRef module;
  char *message = NULL;
  unsigned char *object = NULL;
  if (llvm->LLVMParseIRInContext(context, buffer, &module, &message) != 0) {
    snprintf(why, why_size, "%s", message == NULL ? "LLVM refuses the text" : message);
  } else {
    LLVMTargetDataRef layout = llvm->LLVMCreateTargetDataLayout(llvm->machine);
    llvm->LLVMSetModuleDataLayout(module, layout);
    llvm->LLVMSetTarget(module, TRIPLE);
    object = object_of(llvm, module, quick, size, why, why_size);
    llvm->LLVMDisposeModule(module);
  }
  llvm->LLVMContextDispose(context);
  if (object == NULL || !warning.is) return object;
  free(object);
  return NULL;
}
