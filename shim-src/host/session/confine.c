#include "host/session/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
#define SANITIZED 0
#endif

#define CALL(name) SCMP_SYS(name)
#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1 /* si_code; the C library leaves it to the kernel's headers */
#endif
#define SIGNAL_OF_CANCEL 32 /* the C library's own two, which pthread_create sets up */
#define SIGNAL_OF_SETXID 33

/* Made in the daemon before the first fork; each worker adds what is its own and loads its copy. */
static scmp_filter_ctx prepared;

/*
 * What a worker of the software device was seen to need (strace, all of test/shim), and what the C library
 * does by itself when memory or threads run short. Everything else ends the worker: it has no honest reason
 * to ask, so somebody else asks, and an error would only tell that one to try the next.
 */
static const int allowed[] = {
    /* frames, the log, the launch log */
    CALL(read), CALL(write), CALL(readv), CALL(writev), CALL(recvfrom), CALL(recvmsg), CALL(sendto),
    CALL(sendmsg), CALL(poll), CALL(ppoll), CALL(close), CALL(shutdown), CALL(lseek), CALL(fstat),
    /* memory, of the device too */
    CALL(brk), CALL(munmap), CALL(mremap), CALL(madvise), CALL(memfd_create), CALL(ftruncate),
    CALL(fallocate), CALL(msync), CALL(mincore),
    /* threads, time, chance */
    CALL(futex), CALL(set_robust_list), CALL(rseq), CALL(set_tid_address), CALL(sched_yield),
    CALL(sched_getaffinity), CALL(getcpu), CALL(clock_gettime), CALL(clock_getres), CALL(gettimeofday),
    CALL(clock_nanosleep), CALL(nanosleep), CALL(restart_syscall), CALL(getrandom), CALL(eventfd2),
    /* itself */
    CALL(getpid), CALL(gettid), CALL(getuid), CALL(geteuid), CALL(rt_sigprocmask), CALL(rt_sigreturn),
    CALL(exit), CALL(exit_group), CALL(membarrier)};

/* The C library asks by itself and does without: for the number of processors, for overcommit, for a locale.
 */
static const int refused[] = {CALL(open),  CALL(openat),    CALL(access),   CALL(faccessat),
                              CALL(stat),  CALL(readlink),  CALL(uname),    CALL(sysinfo),
                              CALL(ioctl), CALL(getrlimit), CALL(prlimit64)};

/*
 * With the host's own driver behind: nobody here has seen what it needs, so only what no driver of a GPU has
 * any business with, and as an error, for it may try and do without.
 */
static const int never[] = {
    CALL(execve), CALL(execveat), CALL(ptrace), CALL(process_vm_readv), CALL(process_vm_writev), CALL(kcmp),
    CALL(pidfd_getfd), CALL(init_module), CALL(finit_module), CALL(delete_module), CALL(kexec_load),
    CALL(kexec_file_load), CALL(reboot), CALL(mount), CALL(umount2), CALL(pivot_root), CALL(chroot),
    CALL(move_mount), CALL(open_tree), CALL(fsopen), CALL(fsmount), CALL(fsconfig), CALL(fspick),
    CALL(mount_setattr), CALL(swapon), CALL(swapoff), CALL(setns), CALL(unshare), CALL(bpf),
    CALL(perf_event_open), CALL(userfaultfd), CALL(add_key), CALL(request_key), CALL(keyctl),
    CALL(open_by_handle_at), CALL(acct), CALL(quotactl), CALL(syslog), CALL(settimeofday),
    CALL(clock_settime), CALL(clock_adjtime), CALL(adjtimex), CALL(sethostname), CALL(setdomainname),
    CALL(personality), CALL(fanotify_init), CALL(io_uring_setup), CALL(io_uring_enter),
    CALL(io_uring_register), CALL(iopl), CALL(ioperm), CALL(modify_ldt), CALL(lookup_dcookie), CALL(vhangup),
    CALL(nfsservctl),
    /*
     * Not listen: NVIDIA's libcuda listens on the abstract socket @cuda-uvmfd-... when
     * it initializes, and fails if it may not (snapd's rules, Venus' notes). Nobody is
     * ever accepted there.
     */
    CALL(accept), CALL(accept4)};

/* libseccomp's own macros leave a field out, which clang complains about. */
#define EQUAL(n, value) ((struct scmp_arg_cmp){.arg = (n), .op = SCMP_CMP_EQ, .datum_a = (value)})
#define MASKED(n, mask, value)                                                                               \
  ((struct scmp_arg_cmp){.arg = (n), .op = SCMP_CMP_MASKED_EQ, .datum_a = (mask), .datum_b = (value)})

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A call that is not of this machine's kind is none to speak of. */
static int add(scmp_filter_ctx filter, uint32_t action, const int *calls, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (calls[i] < 0) continue;
    int result = seccomp_rule_add(filter, action, calls[i], 0);
    if (result != 0 && result != -EEXIST) return result;
  }
  return 0;
}

/* Calls that are harmless with some arguments only. */
static int add_conditional(scmp_filter_ctx filter) {
  const uint32_t allow = SCMP_ACT_ALLOW;
  static const int duties[] = {F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_ADD_SEALS, F_GET_SEALS};
  static const int signals[] = {SIGNAL_OF_CANCEL, SIGNAL_OF_SETXID, SIGABRT};
  int result = 0;
  /* No code but what the daemon was started with. */
  result |= seccomp_rule_add(filter, allow, CALL(mmap), 1, MASKED(2, PROT_EXEC, 0));
  result |= seccomp_rule_add(filter, allow, CALL(mprotect), 1, MASKED(2, PROT_EXEC, 0));
  /* Threads and no processes. clone3 hides its flags in memory: without it the C library takes clone. */
  result |= seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), CALL(clone3), 0);
  result |= seccomp_rule_add(filter, allow, CALL(clone), 1,
                             MASKED(0, CLONE_THREAD | CLONE_VM, CLONE_THREAD | CLONE_VM));
  /*
   * How some C libraries make fstat: of a descriptor, with an empty path. The path itself cannot be looked at
   * from here, so these flags with another path tell of a file that it is there, and no more: it is not
   * opened.
   */
  static const struct {
    int call;
    unsigned int flags; /* which argument they are */
  } of_descriptors[] = {{CALL(newfstatat), 3}, {CALL(statx), 2}};
  for (size_t i = 0; i < COUNT(of_descriptors); i++) {
    int call = of_descriptors[i].call;
    unsigned int flags = of_descriptors[i].flags;
    if (call < 0) continue;
    result |= seccomp_rule_add(filter, allow, call, 1, MASKED(flags, AT_EMPTY_PATH, AT_EMPTY_PATH));
    result |= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), call, 1, MASKED(flags, AT_EMPTY_PATH, 0));
  }
  for (size_t i = 0; i < COUNT(duties); i++)
    result |= seccomp_rule_add(filter, allow, CALL(fcntl), 1, EQUAL(1, (scmp_datum_t)duties[i]));
  for (size_t i = 0; i < COUNT(signals); i++)
    result |= seccomp_rule_add(filter, allow, CALL(rt_sigaction), 1, EQUAL(0, (scmp_datum_t)signals[i]));
  result |= seccomp_rule_add(filter, allow, CALL(prctl), 1, EQUAL(0, PR_SET_NAME));
  /* From Linux 5.17 on the C library may name its arenas. */
  result |= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EINVAL), CALL(prctl), 1, EQUAL(0, 0x53564d41));
  return result;
}

/* A sanitizer looks at its own process to tell what it found. */
static int add_sanitizer(scmp_filter_ctx filter) {
  static const int calls[] = {CALL(open),      CALL(openat),    CALL(readlink),    CALL(newfstatat),
                              CALL(stat),      CALL(prlimit64), CALL(sigaltstack), CALL(ioctl),
                              CALL(getrlimit), CALL(prctl),     CALL(uname),       CALL(rt_sigaction),
                              CALL(clone),     CALL(clone3),    CALL(fcntl),       CALL(access),
                              CALL(statx),     CALL(sysinfo),   CALL(mmap),        CALL(mprotect)};
  return !SANITIZED ? 0 : add(filter, SCMP_ACT_ALLOW, calls, COUNT(calls));
}

static scmp_filter_ctx make_filter(enum vgpu_backend_number backend) {
  bool software = backend == VGPU_BACKEND_SOFTWARE;
  scmp_filter_ctx filter = seccomp_init(software ? SCMP_ACT_TRAP : SCMP_ACT_ALLOW);
  if (filter == NULL) return NULL;
  int result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
  if (software) {
    result |= add_sanitizer(filter);
    result |= add(filter, SCMP_ACT_ALLOW, allowed, COUNT(allowed));
    if (!SANITIZED) {
      result |= add(filter, SCMP_ACT_ERRNO(EACCES), refused, COUNT(refused));
      result |= add_conditional(filter);
    }
  } else {
    result |= add(filter, SCMP_ACT_ERRNO(EPERM), never, COUNT(never));
  }
  if (result == 0) return filter;
  seccomp_release(filter);
  return NULL;
}

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

bool vgpu_confine(enum vgpu_backend_number backend, bool filter, int32_t *denied) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  /* What a guest had in its memory is in that of its worker: not for a file. */
  setrlimit(RLIMIT_CORE, &(struct rlimit){0});
  /* The driver's devices are files with modes: none of the driver's own calls needs a capability. */
  drop_capabilities();
  if (backend == VGPU_BACKEND_SOFTWARE) prctl(PR_SET_DUMPABLE, 0); /* nobody's debugger but root's */
  if (!filter) return true;
  told = denied;
  struct sigaction action = {.sa_sigaction = on_denied, .sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER};
  if (sigaction(SIGSYS, &action, NULL) != 0) return false;
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGSYS);
  sigprocmask(SIG_UNBLOCK, &mask, NULL);
  int result = 0;
  if (backend == VGPU_BACKEND_SOFTWARE) {
    /* To end itself, as abort() does, and to signal nobody else. */
    result = seccomp_rule_add(prepared, SCMP_ACT_ALLOW, CALL(tgkill), 1, EQUAL(0, (scmp_datum_t)getpid()));
  }
  if (result == 0) result = seccomp_load(prepared);
  if (result != 0) errno = -result;
  return result == 0;
}

bool vgpu_confine_prepare(enum vgpu_backend_number backend, char *error, uint64_t error_size) {
  prepared = make_filter(backend);
  if (prepared == NULL) {
    snprintf(error, error_size, "the filter of system calls cannot be made");
    return false;
  }
  /* Tried once, so that the daemon fails to start rather than every session. */
  pid_t child = fork();
  if (child == 0) _exit(vgpu_confine(backend, true, NULL) ? 0 : errno);
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
