#include "host/backend/software/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/session/confine.h"
#include "host/session/filter.h"

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

#define COMPILER_MEMORY (768ull << 20) /* bytes of its own; 60 MiB are LLVM's variables */
#define COMPILER_NICE 5

#define CALL(name) VGPU_CALL(name)
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define SIGNAL_OF_CANCEL 32 /* two signals of the C library, which pthread_create sets up */
#define SIGNAL_OF_SETXID 33

/*
 * The system calls that a worker makes, as strace showed with all of test/shim, and those of the C library
 * when memory or threads run short. Any other call ends the worker: an attacker makes it, and must not try
 * the next one.
 */
static const int allowed[] = {
    /* frames, the log, the launch log */
    CALL(read), CALL(write), CALL(readv), CALL(writev), CALL(recvfrom), CALL(recvmsg), CALL(sendto),
    CALL(sendmsg), CALL(poll), CALL(ppoll), CALL(close), CALL(shutdown), CALL(dup3), CALL(lseek), CALL(fstat),
    /* memory, also of the device */
    CALL(brk), CALL(munmap), CALL(madvise), CALL(memfd_create), CALL(ftruncate), CALL(fallocate), CALL(msync),
    CALL(mincore),
    /* threads, time, random numbers */
    CALL(futex), CALL(set_robust_list), CALL(rseq), CALL(set_tid_address), CALL(sched_yield),
    CALL(sched_getaffinity), CALL(getcpu), CALL(clock_gettime), CALL(clock_getres), CALL(gettimeofday),
    CALL(clock_nanosleep), CALL(nanosleep), CALL(restart_syscall), CALL(getrandom), CALL(eventfd2),
    /* itself */
    CALL(getpid), CALL(gettid), CALL(getuid), CALL(geteuid), CALL(rt_sigprocmask), CALL(rt_sigreturn),
    CALL(exit), CALL(exit_group), CALL(membarrier)};

/* Calls of the C library that may fail: for the number of processors, overcommit, a locale. */
static const int refused[] = {CALL(open),     CALL(openat), CALL(access),  CALL(faccessat), CALL(stat),
                              CALL(readlink), CALL(uname),  CALL(sysinfo), CALL(getrlimit), CALL(prlimit64)};

/* libseccomp's macros leave a field out, and clang warns about that. */
#define EQUAL(n, value) ((struct scmp_arg_cmp){.arg = (n), .op = SCMP_CMP_EQ, .datum_a = (value)})
#define OTHER(n, value) ((struct scmp_arg_cmp){.arg = (n), .op = SCMP_CMP_NE, .datum_a = (value)})
#define MASKED(n, mask, value)                                                                               \
  ((struct scmp_arg_cmp){.arg = (n), .op = SCMP_CMP_MASKED_EQ, .datum_a = (mask), .datum_b = (value)})

/* Adds the calls that are harmless only with some arguments. */
static int add_conditional(scmp_filter_ctx filter) {
  const uint32_t allow = SCMP_ACT_ALLOW;
  static const int duties[] = {F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_ADD_SEALS, F_GET_SEALS,
                               /* locks on ranges of a VM's memory */
                               F_OFD_GETLK, F_OFD_SETLK};
  static const int signals[] = {SIGNAL_OF_CANCEL, SIGNAL_OF_SETXID, SIGABRT};
  int result = 0;
  /* Bytes in a socket that the guest has not read. */
  result |= seccomp_rule_add(filter, allow, CALL(ioctl), 1, EQUAL(1, SIOCOUTQ));
  result |= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), CALL(ioctl), 1, OTHER(1, SIOCOUTQ));
  /* No code may be mapped after the daemon has started. */
  result |= seccomp_rule_add(filter, allow, CALL(mmap), 1, MASKED(2, PROT_EXEC, 0));
  result |= seccomp_rule_add(filter, allow, CALL(mprotect), 1, MASKED(2, PROT_EXEC, 0));
  /* Threads, not processes. A filter cannot read clone3's flags; without clone3 the C library uses clone. */
  result |= seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), CALL(clone3), 0);
  result |= seccomp_rule_add(filter, allow, CALL(clone), 1,
                             MASKED(0, CLONE_THREAD | CLONE_VM, CLONE_THREAD | CLONE_VM));
  /* fstat of some C libraries. A path, which the filter cannot read, reveals only whether a file exists. */
  static const struct {
    int call;
    unsigned int flags; /* number of the argument that has the flags */
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
  /* abort() needs this, by which the worker ends itself. */
  result |= seccomp_rule_add(filter, allow, CALL(tgkill), 1, EQUAL(0, VGPU_FILTER_SELF));
  /* A growing mapping of a shared file would reach other sessions' memory. The C library copies instead. */
  result |= seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOMEM), CALL(mremap), 0);
  /* From Linux 5.17 on, the C library may name its memory arenas. */
  result |= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EINVAL), CALL(prctl), 1, EQUAL(0, 0x53564d41));
  return result;
}

static int add_sanitizer(scmp_filter_ctx filter) {
  static const int calls[] = {
      CALL(open),        CALL(openat),   CALL(readlink),  CALL(newfstatat), CALL(stat),  CALL(prlimit64),
      CALL(sigaltstack), CALL(ioctl),    CALL(getrlimit), CALL(prctl),      CALL(uname), CALL(rt_sigaction),
      CALL(clone),       CALL(clone3),   CALL(fcntl),     CALL(access),     CALL(statx), CALL(sysinfo),
      CALL(mmap),        CALL(mprotect), CALL(mremap),    CALL(tgkill)};
  return !SANITIZED ? 0 : vgpu_filter_add(filter, SCMP_ACT_ALLOW, calls, COUNT(calls));
}

void *vgpu_software_filter(void) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_TRAP);
  if (filter == NULL) return NULL;
  int result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
  result |= add_sanitizer(filter);
  result |= vgpu_filter_add(filter, SCMP_ACT_ALLOW, allowed, COUNT(allowed));
  result |= seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(sched_setaffinity), 1, EQUAL(0, 0));
  if (!SANITIZED) {
    result |= vgpu_filter_add(filter, SCMP_ACT_ERRNO(EACCES), refused, COUNT(refused));
    result |= add_conditional(filter);
  }
  if (result == 0) return filter;
  seccomp_release(filter);
  return NULL;
}

/*
 * A process that compiles one function can neither fork nor stop the timer that limits its processor time.
 * The filter of the compiler has checked the architecture.
 */
static bool forbid_processes_and_timers(void) {
  struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)__NR_clone, 1, 0),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)__NR_setitimer, 0, 1),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog program = {.len = COUNT(code), .filter = code};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

/*
 * The process that compiles has one descriptor, needs memory and a timer, forks a process for each function,
 * and can do nothing else. That process reads a text that is made of a guest's PTX. LLVM asks the system for
 * facts that it does not need, so other calls fail and do not end it. No new mapping can be executed.
 */
bool vgpu_software_confine_compiler(enum ptx_confined which) {
  static const int calls[] = {CALL(read),          CALL(write),          CALL(brk),          CALL(munmap),
                              CALL(madvise),       CALL(futex),          CALL(exit_group),   CALL(setitimer),
                              CALL(clock_gettime), CALL(rt_sigprocmask), CALL(rt_sigreturn), CALL(getpid),
                              CALL(gettid),        CALL(wait4)};
  if (which == PTX_CONFINE_FUNCTION) return SANITIZED || forbid_processes_and_timers();
  if (!vgpu_confine(NULL, false, NULL)) return false;
  if (SANITIZED) return true;
  const struct rlimit memory = {COMPILER_MEMORY, COMPILER_MEMORY}, none = {0};
  setpriority(PRIO_PROCESS, 0, COMPILER_NICE);
  if (setrlimit(RLIMIT_DATA, &memory) != 0 || setrlimit(RLIMIT_FSIZE, &none) != 0) return false;
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
  if (filter == NULL) return false;
  int result = vgpu_filter_add(filter, SCMP_ACT_ALLOW, calls, COUNT(calls));
  result |= seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(mmap), 1, MASKED(2, PROT_EXEC, 0));
  result |= seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(mprotect), 1, MASKED(2, PROT_EXEC, 0));
  /* fork() of the C library; see add_conditional for clone3 */
  result |= seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(clone), 1,
                             EQUAL(0, CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD));
  result |= seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(prctl), 1, EQUAL(0, PR_SET_PDEATHSIG));
  result |= seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(prctl), 1, EQUAL(0, PR_SET_SECCOMP));
  bool loaded = result == 0 && seccomp_load(filter) == 0;
  seccomp_release(filter);
  return loaded;
}
