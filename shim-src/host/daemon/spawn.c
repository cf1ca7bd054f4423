#include "host/daemon/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wire/shared.h"

#define ABOVE                                                                                                \
  64 /* lowest number of the daemon's own descriptors for workers, above the numbers that they get there */
#define NOT_STARTED 127

extern char **environ;

static bool write_all(int descriptor, const void *bytes, size_t size) {
  const char *at = bytes;
  while (size > 0) {
    ssize_t written = write(descriptor, at, size);
    if (written <= 0) return false;
    at += written;
    size -= (size_t)written;
  }
  return true;
}

/* Returns a descriptor of memory with these bytes; -1: errno has the reason. */
static int memory_with(const char *name, const void *bytes, size_t size) {
  int descriptor = vgpu_shared_make(name, size);
  if (descriptor >= 0 && write_all(descriptor, bytes, size)) return descriptor;
  if (descriptor >= 0) close(descriptor);
  return -1;
}

bool vgpu_spawner_give(struct vgpu_spawner *spawner, enum vgpu_worker_descriptor number, int descriptor) {
  int above = fcntl(descriptor, F_DUPFD_CLOEXEC, ABOVE);
  if (above < 0) return false;
  close(descriptor);
  spawner->descriptors[number] = above;
  return true;
}

bool vgpu_spawner_make(struct vgpu_spawner *spawner, const struct vgpu_host_setup *host, size_t bytes) {
  for (int i = 0; i < VGPU_WORKER_DESCRIPTORS; i++) spawner->descriptors[i] = -1;
  int program = open("/proc/self/exe", O_PATH | O_CLOEXEC);
  spawner->program = program < 0 ? -1 : fcntl(program, F_DUPFD_CLOEXEC, ABOVE);
  if (program >= 0) close(program);
  int setup = memory_with("vgpu-setup", host, bytes);
  sigprocmask(SIG_SETMASK, NULL, &spawner->signals);
  return spawner->program >= 0 && setup >= 0 && vgpu_spawner_give(spawner, VGPU_WORKER_HOST, setup);
}

/* The child shares the daemon's memory until exec: it must not change any. */
_Noreturn static void become_worker(const struct vgpu_spawner *spawner, const int *descriptors, int group) {
  static char *const words[] = {"vgpu-hostd", VGPU_WORKER_WORD, NULL};
  if (group >= 0 && write(group, "0", 1) != 1) _exit(NOT_STARTED);
  for (int i = 0; i < VGPU_WORKER_DESCRIPTORS; i++) {
    if (descriptors[i] >= 0 && dup2(descriptors[i], i) < 0) _exit(NOT_STARTED);
  }
  sigprocmask(SIG_SETMASK, &spawner->signals, NULL);
  syscall(SYS_execveat, spawner->program, "", words, environ, AT_EMPTY_PATH);
  _exit(NOT_STARTED);
}

pid_t vgpu_spawn(const struct vgpu_spawner *spawner, const struct vgpu_session_setup *session,
                 const struct vgpu_spawned *spawned) {
  int descriptors[VGPU_WORKER_DESCRIPTORS];
  for (int i = 0; i < VGPU_WORKER_DESCRIPTORS; i++) descriptors[i] = spawner->descriptors[i];
  int memory = memory_with("vgpu-session", session, sizeof *session);
  if (memory < 0) return -1;
  const bool vm = spawned->vm_memory->bytes > 0;
  const struct {
    enum vgpu_worker_descriptor number;
    int descriptor;
    bool needed;
  } own[] = {{VGPU_WORKER_CONNECTION, spawned->connection, true},
             {VGPU_WORKER_LOG, spawned->log, true},
             {VGPU_WORKER_SESSION, memory, true},
             {VGPU_WORKER_VM_MEMORY, vm ? spawned->vm_memory->holder : -1, vm},
             {VGPU_WORKER_VM_MEMORY_AGAIN, vm ? spawned->vm_memory->lock_probe : -1, vm},
             {VGPU_WORKER_EXCHANGE, spawned->exchange, false},
             {VGPU_WORKER_LINE, spawned->line, false},
             {VGPU_WORKER_PEER, spawned->peer, false}};
  const size_t count = sizeof own / sizeof *own;
  bool all = true;
  for (size_t i = 0; i < count; i++) {
    int *given = &descriptors[own[i].number];
    *given = own[i].descriptor < 0 ? -1 : fcntl(own[i].descriptor, F_DUPFD_CLOEXEC, ABOVE);
    all = all && (*given >= 0 || !own[i].needed);
  }
  pid_t pid = all ? vfork() : -1;
  if (pid == 0) become_worker(spawner, descriptors, spawned->group);
  int error = errno;
  close(memory);
  for (size_t i = 0; i < count; i++) {
    if (descriptors[own[i].number] >= 0) close(descriptors[own[i].number]);
  }
  errno = error;
  return pid;
}
