/*
 * Makes the first calls of a session, in a process that is confined like a worker: initializes the driver,
 * makes a context, allocates, launches. A system call that the filter denies fails as in a worker, and is
 * reported by name.
 */
#include "host/backend/cuda/self_check.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "host/backend/cuda/device_files.h"
#include "host/backend/cuda/driver.h"
#include "host/backend/cuda/filter.h"
#include "host/backend/cuda/lent.h"
#include "host/backend/cuda/nvml.h"
#include "host/backend/cuda/preflight.h"
#include "host/session/confine.h"
#include "wire/clock.h"

#define LIMIT_MS 120000 /* a first start may build the driver's caches */
#define CALLS 1024
#define EXPECTED 42u

static const char kernel[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                             ".visible .entry check(.param .u64 to)\n{\n"
                             "  .reg .b64 %rd<3>; .reg .b32 %r<2>;\n"
                             "  ld.param.u64 %rd1, [to]; cvta.to.global.u64 %rd2, %rd1;\n"
                             "  mov.u32 %r1, 42; st.global.u32 [%rd2], %r1; ret;\n}\n";

/* Shared with the confined process. */
struct findings {
  uint32_t denied[CALLS]; /* how often each system call was denied, by its number */
  char step[64];
  int result;
  char why[512];
  bool done;
  /* Of the second process, which needs a context beside that of the first. */
  bool has_context, has_second;
  int second;
};

static struct findings *findings;

/* Handles a denied call: it was not made, and it returns the error that a worker's filter returns. */
static void on_denied(int number, siginfo_t *info, void *context) {
  (void)number;
  if (info->si_syscall >= 0 && info->si_syscall < CALLS) findings->denied[info->si_syscall]++;
#if defined(__x86_64__)
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
#elif defined(__aarch64__)
  ((ucontext_t *)context)->uc_mcontext.regs[0] = (unsigned long long)-EPERM;
#else
  (void)context;
  _exit(1);
#endif
}

static bool step(const char *name, int result) {
  snprintf(findings->step, sizeof findings->step, "%s", name);
  findings->result = result;
  if (result == 0) printf("%s: good\n", name);
  fflush(stdout);
  return result == 0;
}

/* A driver that is this project's own library cannot do all of it. */
static bool step_or_none(const char *name, int result) {
  if (result != CUDA_ERROR_NOT_SUPPORTED) return step(name, result);
  printf("%s: this driver does not offer it\n", name);
  return true;
}

static void pause_for(const bool *flag) {
  for (int64_t deadline = vgpu_now_ms() + LIMIT_MS / 2;
       !__atomic_load_n(flag, __ATOMIC_ACQUIRE) && vgpu_left_ms(deadline) != 0;)
    poll(NULL, 0, 5);
}

/* Bytes in use on the first device, by all processes; 0: NVML does not report them. */
static uint64_t used_memory(const struct vgpu_options *options, const struct vgpu_inventory *inventory) {
  struct vgpu_usage_reply usage = {0};
  vgpu_cuda_nvml_usage(options->nvml_library, &inventory->devices[0], &usage);
  return usage.used;
}

static bool make_context(const struct vgpu_driver_api *api, const struct vgpu_options *options,
                         const struct vgpu_inventory *inventory, struct vgpu_context **context) {
  int64_t begun = vgpu_now_ms();
  if (!step("cuInit", api->cuInit(0))) return false;
  printf("  it took %lld ms\n", (long long)(vgpu_now_ms() - begun));
  uint64_t before = used_memory(options, inventory);
  if (!step("a context", VGPU_DRIVER(api, cuCtxCreate_v2, context, 0, 0))) return false;
  uint64_t after = used_memory(options, inventory);
  if (after > before)
    printf("  it takes %llu MiB of device memory\n", (unsigned long long)(after - before) >> 20);
  __atomic_store_n(&findings->has_context, true, __ATOMIC_RELEASE);
  pause_for(&findings->has_second);
  bool answered = __atomic_load_n(&findings->has_second, __ATOMIC_ACQUIRE);
  return step("a context of a second process at the same time",
              answered ? findings->second : CUDA_ERROR_NOT_READY);
}

static void try_second(const char *library) {
  struct vgpu_driver_api api;
  struct vgpu_context *context = NULL;
  char error[400];
  pause_for(&findings->has_context);
  findings->second =
      vgpu_driver_load(library, &api, error, sizeof error) ? api.cuInit(0) : CUDA_ERROR_NO_DEVICE;
  if (findings->second == 0) findings->second = VGPU_DRIVER(&api, cuCtxCreate_v2, &context, 0, 0);
  __atomic_store_n(&findings->has_second, true, __ATOMIC_RELEASE);
}

static void try_driver(const struct vgpu_options *options, const struct vgpu_inventory *inventory) {
  const char *library = options->cuda_library;
  struct vgpu_driver_api api;
  struct vgpu_context *context = NULL;
  void *module = NULL, *function = NULL;
  uint64_t memory = 0;
  uint32_t word = 0;
  void *parameters[] = {&memory};
  if (!vgpu_driver_load(library, &api, findings->why, sizeof findings->why)) {
    step("loading the driver", 100);
    return;
  }
  if (!make_context(&api, options, inventory, &context)) return;
  if (!step("an allocation", VGPU_DRIVER(&api, cuMemAlloc_v2, &memory, 2u << 20))) return;
  printf("  it is at 0x%llx\n", (unsigned long long)memory);
  if (!step("compiling a kernel", VGPU_DRIVER(&api, cuModuleLoadDataEx, &module, kernel, 0, NULL, NULL)))
    return;
  if (!step("finding it", VGPU_DRIVER(&api, cuModuleGetFunction, &function, module, "check"))) return;
  int launched = VGPU_DRIVER(&api, cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
  if (launched == 0) launched = VGPU_DRIVER(&api, cuCtxSynchronize, );
  if (!step("a launch", launched)) return;
  if (!step("a copy", VGPU_DRIVER(&api, cuMemcpyDtoH_v2, &word, memory, sizeof word))) return;
  if (word != EXPECTED) {
    snprintf(findings->why, sizeof findings->why, "the kernel wrote %u instead of %u", word, EXPECTED);
    return;
  }
  if (!step("registering shared memory", vgpu_cuda_preflight_register(&api)) ||
      !step("a captured graph", vgpu_cuda_preflight_capture(&api)) ||
      !step_or_none("gates of 16 streams beside cuMemFree", vgpu_cuda_preflight_gates(&api, context)))
    return;
  findings->done = true;
}

_Noreturn static void be_confined(const struct vgpu_options *options, const struct vgpu_inventory *inventory,
                                  const struct vgpu_filter_program *program, bool second) {
  struct sigaction action = {.sa_sigaction = on_denied, .sa_flags = SA_SIGINFO | SA_NODEFER};
  vgpu_cuda_keep_addresses(); /* as a worker does, so that the driver's addresses are those of a worker's */
  if (!vgpu_cuda_limit_files(inventory, NULL) || !vgpu_confine(program, true, NULL)) {
    snprintf(findings->why, sizeof findings->why, "a process cannot be confined: %s", strerror(errno));
    _exit(1);
  }
  sigaction(SIGSYS, &action, NULL);
  if (second) {
    try_second(options->cuda_library);
    pause();
  }
  try_driver(options, inventory);
  fflush(stdout);
  _exit(0);
}

static bool await(pid_t child, int *status) {
  int64_t deadline = vgpu_now_ms() + LIMIT_MS;
  while (waitpid(child, status, WNOHANG) == 0) {
    if (vgpu_left_ms(deadline) == 0) {
      kill(child, SIGKILL);
      waitpid(child, status, 0);
      return false;
    }
    poll(NULL, 0, 5);
  }
  return true;
}

static void tell_denied(void) {
  for (int32_t number = 0; number < CALLS; number++) {
    if (findings->denied[number] == 0) continue;
    char *name = vgpu_confine_name(number);
    printf("denied: %s, %u time%s\n", name == NULL ? "?" : name, findings->denied[number],
           findings->denied[number] == 1 ? "" : "s");
    free(name);
  }
}

/* Lists the files that a driver of this machine would open, and that this user cannot. */
static void tell_devices(void) {
  static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"};
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
    if (access(nodes[i], R_OK | W_OK) != 0) printf("%s: %s\n", nodes[i], strerror(errno));
  }
}

int vgpu_cuda_self_check(const struct vgpu_options *options, const struct vgpu_inventory *inventory) {
  static struct vgpu_filter_program program;
  char error[256];
  findings = mmap(NULL, sizeof *findings, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (findings == MAP_FAILED) return 1;
  if (!options->no_seccomp &&
      !vgpu_confine_prepare(vgpu_cuda_filter_that_tells, &program, error, sizeof error)) {
    fprintf(stderr, "vgpu-hostd: %s\n", error);
    return 1;
  }
  fflush(stdout);
  vgpu_cuda_preflight_machine(options, inventory);
  fflush(stdout);
  const struct vgpu_filter_program *used = options->no_seccomp ? NULL : &program;
  pid_t child = fork();
  if (child == 0) be_confined(options, inventory, used, false);
  pid_t second = fork();
  if (second == 0) be_confined(options, inventory, used, true);
  int status = 0;
  bool ended = child > 0 && await(child, &status);
  if (second > 0) {
    kill(second, SIGKILL);
    waitpid(second, NULL, 0);
  }
  tell_denied();
  if (findings->done) {
    printf("a worker can use this driver\n");
    return 0;
  }
  tell_devices();
  if (!ended) {
    printf("after \"%s\" the driver was silent for %d s\n", findings->step, LIMIT_MS / 1000);
  } else if (WIFSIGNALED(status)) {
    printf("after \"%s\" the driver ended the process with signal %d\n", findings->step, WTERMSIG(status));
  } else if (findings->why[0] != '\0') {
    printf("%s\n", findings->why);
  } else {
    printf("%s failed with CUresult %d in a confined process; outside of one the driver initializes%s\n",
           findings->step, findings->result,
           findings->result == CUDA_ERROR_DEVICE_UNAVAILABLE
               ? "; the GPU is in a compute mode for one process: nvidia-smi -c DEFAULT"
               : "");
  }
  return 1;
}
