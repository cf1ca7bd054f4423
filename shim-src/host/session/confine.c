#include "host/session/confine.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1 /* si_code; the C library leaves it to the kernel's headers */
#endif

/* Where on_denied() writes the number of the call. */
static int32_t *told;

/* The kernel has not made the call. Ends the process: its code may have been led astray. */
static void on_denied(int number, siginfo_t *info, void *context) {
  (void)context;
  /* Only signals from the kernel count, not those from a process. */
  if (told != NULL && info->si_code == SYS_SECCOMP)
    __atomic_store_n(told, info->si_syscall, __ATOMIC_RELAXED);
  raise(number); /* SA_RESETHAND: this has the default action */
  _exit(128 + number);
}

void vgpu_confine_bounds(void) {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++) {
    prctl(PR_CAPBSET_DROP, capability);
  }
}

/* Drops all capabilities permanently. Dropping one that the process lacks fails, which is harmless. */
static void drop_capabilities(void) {
  vgpu_confine_bounds();
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
  syscall(SYS_capset, &header, none);
}

/* Loads the filter, with this process's id in the rules that name the process. */
static bool load(const struct vgpu_filter_program *program) {
  static struct sock_filter mine[VGPU_FILTER_MOST];
  memcpy(mine, program->instructions, program->count * sizeof *mine);
  for (uint32_t i = 0; i < program->count; i++) {
    if (mine[i].code == (BPF_JMP | BPF_JEQ | BPF_K) && mine[i].k == VGPU_FILTER_SELF)
      mine[i].k = (uint32_t)getpid();
  }
  struct sock_fprog loaded = {.len = (unsigned short)program->count, .filter = mine};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &loaded) == 0;
}

bool vgpu_confine(const struct vgpu_filter_program *program, bool reads_itself, int32_t *denied) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  /* A core file would contain the guest's data. */
  setrlimit(RLIMIT_CORE, &(struct rlimit){0});
  /* The driver checks the modes of its device files, no capabilities. */
  drop_capabilities();
  if (!reads_itself) prctl(PR_SET_DUMPABLE, 0); /* only root may debug it */
  if (program == NULL) return true;
  told = denied;
  struct sigaction action = {.sa_sigaction = on_denied, .sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER};
  if (sigaction(SIGSYS, &action, NULL) != 0) return false;
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGSYS);
  sigprocmask(SIG_UNBLOCK, &mask, NULL);
  return load(program);
}

static bool make_program(void *(*make_filter)(void), struct vgpu_filter_program *program) {
  scmp_filter_ctx filter = make_filter();
  int memory = filter == NULL ? -1 : memfd_create("vgpu-filter", MFD_CLOEXEC);
  bool made = memory >= 0 && seccomp_export_bpf(filter, memory) == 0;
  ssize_t size = made ? pread(memory, program->instructions, sizeof program->instructions, 0) : 0;
  made = made && size > 0 && lseek(memory, 0, SEEK_END) == size;
  program->count = (uint32_t)((size_t)size / sizeof *program->instructions);
  if (memory >= 0) close(memory);
  if (filter != NULL) seccomp_release(filter);
  return made;
}

bool vgpu_confine_prepare(void *(*make_filter)(void), struct vgpu_filter_program *program, char *error,
                          uint64_t error_size) {
  if (!make_program(make_filter, program)) {
    snprintf(error, error_size, "the filter of system calls cannot be made");
    return false;
  }
  /* Tries the filter in a child, so that the daemon fails at its start instead of each session. */
  pid_t child = fork();
  if (child == 0) _exit(vgpu_confine(program, true, NULL) ? 0 : errno);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  int reason = child < 0 ? errno : WIFEXITED(status) ? WEXITSTATUS(status) : ENOSYS;
  snprintf(error, error_size,
           "workers cannot filter their system calls on this system (%s); --no-seccomp runs them without the "
           "filter",
           strerror(reason));
  return false;
}

char *vgpu_confine_name(int32_t number) {
  char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
  return name != NULL ? name : strdup("?");
}
