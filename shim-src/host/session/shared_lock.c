#include "host/session/shared_lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "wire/clock.h"

#define LIMIT_MS 1000
#define SPINS 64
#define WAITED 0x80000000u

static bool exchange(struct vgpu_shared_lock *lock, uint32_t expected, uint32_t wanted) {
  return __atomic_compare_exchange_n(&lock->word, &expected, wanted, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED);
}

/* FUTEX_WAIT counts in the monotonic clock. */
static void sleep_on(const struct vgpu_shared_lock *lock, uint32_t word, int64_t left) {
  struct timespec limit = {.tv_sec = (time_t)(left / 1000), .tv_nsec = (long)(left % 1000) * 1000000};
  syscall(SYS_futex, &lock->word, FUTEX_WAIT, word, &limit, NULL, 0);
}

static void wake(const struct vgpu_shared_lock *lock, int count) {
  syscall(SYS_futex, &lock->word, FUTEX_WAKE, count, NULL, NULL, 0);
}

bool vgpu_shared_lock_take(struct vgpu_shared_lock *lock, uint32_t slot) {
  uint32_t mine = slot + 1;
  for (int i = 0; i < SPINS; i++) {
    if (exchange(lock, 0, mine)) return true;
  }
  int64_t deadline = vgpu_now_ms() + LIMIT_MS;
  for (;;) {
    uint32_t word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);
    if (word == 0) {
      /* WAITED: other threads may sleep as well. */
      if (exchange(lock, 0, mine | WAITED)) return true;
      continue;
    }
    int64_t left = deadline - vgpu_now_ms();
    if (left <= 0) return false;
    if ((word & WAITED) == 0 && !exchange(lock, word, word | WAITED)) continue;
    sleep_on(lock, word | WAITED, left);
  }
}

void vgpu_shared_lock_give(struct vgpu_shared_lock *lock) {
  uint32_t word = __atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE);
  if ((word & WAITED) != 0) wake(lock, 1);
}

bool vgpu_shared_lock_abandon(struct vgpu_shared_lock *lock, uint32_t slot) {
  uint32_t word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);
  if ((word & ~WAITED) != slot + 1) return false;
  if (!exchange(lock, word, 0) && !exchange(lock, word | WAITED, 0)) return false;
  wake(lock, INT_MAX);
  return true;
}
