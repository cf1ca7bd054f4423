#include "host/session/confine.h"

#include <errno.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1 /* si_code; the C library leaves it to the kernel's headers */
#endif

/* Made in the daemon before the first fork; each worker adds what is its own and loads its copy. */
static scmp_filter_ctx prepared;

/* Where the worker leaves the number of the call that ends it. */
static int32_t *told;

/* The call has not been made. Whoever got this far with other plans than ours ends here all the same. */
static void on_denied(int number, siginfo_t *info, void *context) {
  (void)context;
  /* Not one that somebody sent. */
  if (told != NULL && info->si_code == SYS_SECCOMP)
    __atomic_store_n(told, info->si_syscall, __ATOMIC_RELAXED);
  raise(number); /* nobody handles it any more: SA_RESETHAND */
  _exit(128 + number);
}

/* All of them, and none to be had again. What this process never had cannot be dropped, and need not. */
static void drop_capabilities(void) {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++) {
    prctl(PR_CAPBSET_DROP, capability);
  }
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
  syscall(SYS_capset, &header, none);
}

bool vgpu_confine(bool filter, bool reads_itself, int32_t *denied) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  /* What a guest had in its memory is in that of its worker: not for a file. */
  setrlimit(RLIMIT_CORE, &(struct rlimit){0});
  /* The driver's devices are files with modes: none of the driver's own calls needs a capability. */
  drop_capabilities();
  if (!reads_itself) prctl(PR_SET_DUMPABLE, 0); /* nobody's debugger but root's */
  if (!filter) return true;
  told = denied;
  struct sigaction action = {.sa_sigaction = on_denied, .sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER};
  if (sigaction(SIGSYS, &action, NULL) != 0) return false;
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGSYS);
  sigprocmask(SIG_UNBLOCK, &mask, NULL);
  int result = 0;
  /*
   * To end itself, as abort() does, and to signal nobody else. Where all is allowed but what is denied, the
   * rule is none.
   */
  const struct scmp_arg_cmp itself = {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = (scmp_datum_t)getpid()};
  result = seccomp_rule_add(prepared, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, itself);
  if (result == -EACCES) result = 0; /* the filter allows it anyway */
  if (result == 0) result = seccomp_load(prepared);
  if (result != 0) errno = -result;
  return result == 0;
}

bool vgpu_confine_prepare(void *(*make_filter)(void), char *error, uint64_t error_size) {
  prepared = make_filter();
  if (prepared == NULL) {
    snprintf(error, error_size, "the filter of system calls cannot be made");
    return false;
  }
  /* Tried once, so that the daemon fails to start rather than every session. */
  pid_t child = fork();
  if (child == 0) _exit(vgpu_confine(true, true, NULL) ? 0 : errno);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  int reason = child < 0 ? errno : WIFEXITED(status) ? WEXITSTATUS(status) : ENOSYS;
  snprintf(error, error_size,
           "this system lets no worker filter its system calls (%s); --no-seccomp does without",
           strerror(reason));
  return false;
}

char *vgpu_confine_name(int32_t number) {
  char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
  return name != NULL ? name : strdup("?");
}
