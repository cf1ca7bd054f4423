#include "guest/process.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * The slot is in a page that the kernel clears in a fork()ed child (MADV_WIPEONFORK): even a child of a raw
 * clone() finds it empty and unlocked (a zeroed pthread_mutex_t is unlocked in glibc and musl).
 */
static struct vgpu_process *slot;
static void *parent_state; /* copy of slot->state that survives fork, so that the child can free it */
static void (*fork_handler)(void *state);
static unsigned forks;

static struct vgpu_process *make_slot(void) {
  struct vgpu_process *made =
      mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return NULL;
  /* Kernels before 4.14 reject this; then pthread_atfork below clears the slot. */
  (void)madvise(made, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK);
  struct vgpu_process *expected = NULL;
  if (!__atomic_compare_exchange_n(&slot, &expected, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    munmap(made, (size_t)sysconf(_SC_PAGESIZE));
    return expected;
  }
  return made;
}

struct vgpu_process *vgpu_process(void) {
  struct vgpu_process *process = __atomic_load_n(&slot, __ATOMIC_ACQUIRE);
  return process != NULL ? process : make_slot();
}

struct vgpu_process *vgpu_process_made(void) {
  return __atomic_load_n(&slot, __ATOMIC_ACQUIRE);
}

static void before_fork(void) {
  struct vgpu_process *process = vgpu_process_made();
  parent_state = process == NULL ? NULL : __atomic_load_n(&process->state, __ATOMIC_ACQUIRE);
}

static void in_child(void) {
  struct vgpu_process *process = __atomic_load_n(&slot, __ATOMIC_ACQUIRE);
  void *state = parent_state;
  parent_state = NULL;
  forks++;
  if (process != NULL) {
    process->lock = process->connecting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    process->state = NULL;
    process->generation = forks;
  }
  if (state != NULL && fork_handler != NULL) fork_handler(state);
}

int vgpu_process_on_fork(void (*handler)(void *state)) {
  void (*expected)(void *) = NULL;
  if (!__atomic_compare_exchange_n(&fork_handler, &expected, handler, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    return 0; /* once for a library */
  }
  return pthread_atfork(before_fork, NULL, in_child);
}
