#include "host/backend/software/ptx/compile/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/compile/emit.h"
#include "host/backend/software/ptx/compile/llvm.h"
#include "host/backend/software/ptx/compile/object.h"

#define SECONDS_OF_A_FUNCTION 16 /* of processor time; then LLVM is ended */

/* The name that LLVM has for the processors of the tables in alu_best.c. */
static const char *cpu_of(void) {
#if defined(__x86_64__) && !defined(VGPU_ONE_ALU)
  const struct ptx_alu *best = ptx_alu_best();
  if (best == &ptx_alu_v4) return "x86-64-v4";
  if (best == &ptx_alu_v3) return "x86-64-v3";
#endif
  return NULL;
}

const char *ptx_compiler_possible(uint32_t *llvm) {
  char path[PTX_LLVM_PATH];
  *llvm = 0;
  if (cpu_of() == NULL) return "this processor is not supported";
  *llvm = ptx_llvm_version(path, sizeof path);
  return *llvm == 0 ? "no LLVM 15 to 19 or 21 to 23 is installed (on Debian: apt install libllvm19)" : NULL;
}

/* ---- the process that compiles -------------------------------------------- */

static void compile(struct ptx_llvm *llvm, struct ptx_compiler_box *box, unsigned char *code) {
  uint64_t length = box->length;
  char why[sizeof box->why] = "";
  size_t size = 0, more = 0, entry = 0, from = (box->code + 63) / 64 * 64;
  unsigned char *object = NULL;
  if (length > sizeof box->text) snprintf(why, sizeof why, "the text is too long");
  else object = ptx_llvm_compile(llvm, box->text, length, box->quick, &size, why, sizeof why);
  if (object != NULL && ptx_object_place(object, size, PTX_REGION_SYMBOL, code + from,
                                         from > PTX_COMPILER_CODE ? 0 : PTX_COMPILER_CODE - from, &more,
                                         &entry, why, sizeof why))
    box->code = from + more;
  if (object == NULL && why[0] == '\0') snprintf(why, sizeof why, "no code");
  box->entry = from + entry;
  memcpy(box->why, why, sizeof why);
}

static uint64_t processor_time(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) != 0) return 0;
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/*
 * LLVM runs in a process for each function: it can end, or be ended, and the next function is compiled all
 * the same; its memory is free afterwards. Returns the nanoseconds that it has used.
 */
static uint64_t compile_apart(struct ptx_llvm *llvm, struct ptx_compiler_box *box, unsigned char *code,
                              ptx_confine *confine) {
  snprintf(box->why, sizeof box->why, "LLVM failed, or took more than %d s or too much memory",
           SECONDS_OF_A_FUNCTION);
  pid_t child = fork();
  if (child == 0) {
    const struct itimerval limit = {.it_value = {.tv_sec = SECONDS_OF_A_FUNCTION}};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || setitimer(ITIMER_PROF, &limit, NULL) != 0) _exit(1);
    if (confine != NULL && !confine(PTX_CONFINE_FUNCTION)) _exit(1);
    compile(llvm, box, code);
    _exit(0);
  }
  struct rusage usage;
  if (child < 0 || wait4(child, NULL, 0, &usage) != child) return 0;
  return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
         (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
}

static _Noreturn void serve(int socket, struct ptx_compiler_box *box, unsigned char *code,
                            ptx_confine *confine) {
  struct ptx_llvm *llvm = NULL;
  uint64_t before = 0;
  char byte, why[256];
  while (read(socket, &byte, 1) == 1) {
    /* LLVM takes 60 MiB and a tenth of a second: it is loaded when a function is hot, before its text is
     * read. */
    if (llvm == NULL) {
      char path[PTX_LLVM_PATH];
      llvm = ptx_llvm_version(path, sizeof path) == 0 ? NULL : ptx_llvm_open(path, cpu_of(), why, sizeof why);
      if (llvm == NULL || (confine != NULL && !confine(PTX_CONFINE_COMPILER))) _exit(1);
    }
    const uint64_t used = compile_apart(llvm, box, code, confine), now = processor_time();
    box->used = used + (now - before);
    before = now;
    if (write(socket, &byte, 1) != 1) break;
  }
  _exit(0);
}

/* ---- the session's process ------------------------------------------------ */

static int memory_of(size_t size) {
  int memory = memfd_create("vgpu-compiled", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory >= 0 && ftruncate(memory, (off_t)size) == 0 &&
      fcntl(memory, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) == 0)
    return memory;
  if (memory >= 0) close(memory);
  return -1;
}

/* By a descriptor that cannot write, so that the mapping never can. */
static const unsigned char *map_code(int memory) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
  int readable = open(path, O_RDONLY | O_CLOEXEC);
  if (readable < 0) return NULL;
  void *code = mmap(NULL, PTX_COMPILER_CODE, PROT_READ | PROT_EXEC, MAP_SHARED, readable, 0);
  close(readable);
  return code == MAP_FAILED ? NULL : code;
}

static bool begin(struct ptx_compiler *compiler, int code, int sockets[2], ptx_confine *confine) {
  compiler->box =
      mmap(NULL, sizeof *compiler->box, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (compiler->box == MAP_FAILED) return false;
  compiler->code = map_code(code);
  if (compiler->code == NULL) return false;
  pid_t parent = getpid(), child = fork();
  if (child < 0) return false;
  if (child > 0) return true;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  prctl(PR_SET_NAME, "vgpu-compiler");
  signal(SIGPROF, SIG_DFL);
  munmap((void *)(uintptr_t)compiler->code, PTX_COMPILER_CODE);
  void *writable = mmap(NULL, PTX_COMPILER_CODE, PROT_READ | PROT_WRITE, MAP_SHARED, code, 0);
  /* The guest's connection and all the rest are the session's. */
  if (writable == MAP_FAILED || dup2(sockets[1], 0) != 0 || syscall(SYS_close_range, 1, ~0u, 0) != 0)
    _exit(1);
  serve(0, compiler->box, writable, confine);
}

struct ptx_compiler *ptx_compiler_start(enum ptx_compile mode, ptx_confine *confine) {
  uint32_t version;
  if (mode == PTX_COMPILE_NEVER || ptx_compiler_possible(&version) != NULL) return NULL;
  struct ptx_compiler *compiler = calloc(1, sizeof *compiler);
  int sockets[2];
  if (compiler == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    free(compiler);
    return NULL;
  }
  compiler->mode = mode;
  compiler->socket = sockets[0];
  pthread_mutex_init(&compiler->lock, NULL);
  int code = memory_of(PTX_COMPILER_CODE);
  bool begun = code >= 0 && begin(compiler, code, sockets, confine);
  if (code >= 0) close(code);
  close(sockets[1]);
  if (begun) return compiler;
  close(sockets[0]);
  free(compiler);
  return NULL;
}

bool ptx_compiler_ask(struct ptx_compiler *compiler, size_t length, bool quick) {
  compiler->box->quick = quick;
  compiler->box->length = length;
  char byte = 0;
  if (compiler->socket >= 0 && send(compiler->socket, &byte, 1, MSG_NOSIGNAL) == 1) return true;
  if (compiler->socket >= 0) close(compiler->socket);
  compiler->socket = -1;
  return false;
}

/* Charges an answer; the process that compiles cannot charge more than its limit and the time to load LLVM.
 */
static void charge(struct ptx_compiler *compiler, uint64_t used) {
  const uint64_t most = (SECONDS_OF_A_FUNCTION + 1) * 1000000000ull;
  __atomic_fetch_add(&compiler->used, used < most ? used : most, __ATOMIC_RELAXED);
}

uint64_t ptx_compiler_used(struct ptx_compiler *compiler) {
  return compiler == NULL ? 0 : __atomic_exchange_n(&compiler->used, 0, __ATOMIC_RELAXED);
}

enum ptx_answer ptx_compiler_answer(struct ptx_compiler *compiler, int milliseconds, ptx_region_code **code) {
  struct pollfd wait = {.fd = compiler->socket, .events = POLLIN};
  char byte;
  if (compiler->socket < 0) return PTX_ANSWER_REFUSED;
  int ready = poll(&wait, 1, milliseconds);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return PTX_ANSWER_NONE;
  if (recv(compiler->socket, &byte, 1, MSG_DONTWAIT) != 1) {
    snprintf(compiler->why, sizeof compiler->why, "the compiler has ended");
    charge(compiler, UINT64_MAX); /* as if its last function had taken the limit */
    close(compiler->socket);
    compiler->socket = -1;
    return PTX_ANSWER_REFUSED;
  }
  charge(compiler, compiler->box->used);
  uint64_t entry = compiler->box->entry;
  if (compiler->box->why[0] != '\0' || entry >= PTX_COMPILER_CODE) {
    memcpy(compiler->why, compiler->box->why, sizeof compiler->why);
    compiler->why[sizeof compiler->why - 1] = '\0';
    return PTX_ANSWER_REFUSED;
  }
  const unsigned char *at = compiler->code + entry;
  memcpy(code, &at, sizeof at); /* a function's address, as POSIX has it */
  return PTX_ANSWER_CODE;
}

const char *ptx_compiler_count(struct ptx_compiler *compiler, struct ptx_compiler_counts *counts) {
  pthread_mutex_lock(&compiler->lock);
  *counts = compiler->counts;
  pthread_mutex_unlock(&compiler->lock);
  return compiler->why;
}
