#include "host/session/share.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What a peer that was idle may use before it waits for those that were not: a few turns. */
#define CREDIT_NS 8000000ull
/*
 * What a peer that comes back can be behind for: long use while nobody else computed must not keep it out for
 * as long. Two turns of a peer of weight 1.
 */
#define DEBT_NS 400000000ull
/* A thread that nobody calls looks by itself: who should have called may be dead. */
#define LOOK_NS 10000000l

void vgpu_share_make(struct vgpu_share *share, uint32_t processors) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&share->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  share->processors = processors == 0 ? 1 : processors;
}

void vgpu_share_begin(struct vgpu_share *share, uint32_t seat, uint32_t peer, uint32_t weight) {
  struct vgpu_seat *place = &share->seats[seat];
  *place = (struct vgpu_seat){.peer = peer % VGPU_SHARE_PEERS_MAX, .weight = weight == 0 ? 1 : weight};
}

void vgpu_share_end(struct vgpu_share *share, uint32_t seat) {
  __atomic_store_n(&share->seats[seat].holding, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&share->seats[seat].waiting, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&share->stale, 1, __ATOMIC_RELEASE);
}

static void count_again(struct vgpu_share *share) {
  share->running = share->waiting = 0;
  for (uint32_t i = 0; i < VGPU_SEATS_MAX; i++) {
    share->running += share->seats[i].holding;
    share->waiting += share->seats[i].waiting;
  }
}

/* A worker that was stopped while it held the lock must not stop the others: they go on without turns. */
static bool lock(struct vgpu_share *share) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  int result = pthread_mutex_timedlock(&share->lock, &until);
  if (result == EOWNERDEAD) {
    pthread_mutex_consistent(&share->lock);
    share->stale = 1;
    result = 0;
  }
  if (result != 0) return false;
  if (__atomic_exchange_n(&share->stale, 0, __ATOMIC_ACQ_REL) != 0) count_again(share);
  return true;
}

/* A worker that was taken over can write any number there. */
static uint32_t peer_of(const struct vgpu_seat *seat) {
  return seat->peer % VGPU_SHARE_PEERS_MAX;
}

static bool before(const struct vgpu_share *share, const struct vgpu_seat *one,
                   const struct vgpu_seat *other) {
  uint64_t peer = share->peer_used[peer_of(one)], other_peer = share->peer_used[peer_of(other)];
  if (peer != other_peer) return peer < other_peer;
  return one->used < other->used;
}

/* The seat with waiting threads whose turn it is; NULL: nobody waits. */
static struct vgpu_seat *next_seat(struct vgpu_share *share) {
  struct vgpu_seat *next = NULL;
  if (share->waiting == 0) return NULL;
  for (uint32_t i = 0; i < VGPU_SEATS_MAX; i++) {
    struct vgpu_seat *seat = &share->seats[i];
    if (seat->waiting > 0 && (next == NULL || before(share, seat, next))) next = seat;
  }
  return next;
}

static void call(struct vgpu_seat *seat) {
  __atomic_add_fetch(&seat->call, 1, __ATOMIC_RELEASE);
  syscall(SYS_futex, &seat->call, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Who begins to compute has saved up little, and owes little, whatever it did before. */
static void bring_near(uint64_t *used, uint64_t least) {
  if (least == UINT64_MAX) return; /* nobody else computes */
  if (least > CREDIT_NS && *used < least - CREDIT_NS) *used = least - CREDIT_NS;
  else if (*used > least && *used - least > DEBT_NS) *used = least + DEBT_NS;
}

/* A seat that was idle begins near those that compute, and so does its peer if all its seats were. */
static void join(struct vgpu_share *share, struct vgpu_seat *seat) {
  if (seat->holding > 0 || seat->waiting > 0) return;
  uint64_t least_peer = UINT64_MAX, least = UINT64_MAX;
  bool peer_active = false;
  for (uint32_t i = 0; i < VGPU_SEATS_MAX && share->running + share->waiting > 0; i++) {
    const struct vgpu_seat *other = &share->seats[i];
    if (other->holding == 0 && other->waiting == 0) continue;
    uint64_t peer_used = share->peer_used[peer_of(other)];
    if (peer_of(other) == peer_of(seat)) {
      peer_active = true;
      if (other->used < least) least = other->used;
    }
    if (peer_used < least_peer) least_peer = peer_used;
  }
  if (!peer_active) bring_near(&share->peer_used[peer_of(seat)], least_peer);
  bring_near(&seat->used, least);
}

static bool may(struct vgpu_share *share, const struct vgpu_seat *seat) {
  if (share->running >= share->processors) return false;
  const struct vgpu_seat *next = next_seat(share);
  return next == NULL || next == seat || before(share, seat, next);
}

bool vgpu_share_try(struct vgpu_share *share, uint32_t number) {
  struct vgpu_seat *seat = &share->seats[number];
  if (!lock(share)) return true;
  join(share, seat);
  bool taken = may(share, seat);
  if (taken) {
    seat->holding++;
    share->running++;
  }
  pthread_mutex_unlock(&share->lock);
  return taken;
}

void vgpu_share_enter(struct vgpu_share *share, uint32_t number) {
  struct vgpu_seat *seat = &share->seats[number];
  if (!lock(share)) return;
  join(share, seat);
  bool waits = false;
  while (!may(share, seat)) {
    if (!waits) {
      __atomic_add_fetch(&seat->waiting, 1, __ATOMIC_RELAXED);
      share->waiting++;
      waits = true;
    }
    uint32_t call = __atomic_load_n(&seat->call, __ATOMIC_ACQUIRE);
    pthread_mutex_unlock(&share->lock);
    struct timespec limit = {.tv_nsec = LOOK_NS};
    syscall(SYS_futex, &seat->call, FUTEX_WAIT, call, &limit, NULL, 0);
    if (lock(share)) continue;
    /* It goes on without a turn, and nobody may go on waiting for it. */
    __atomic_sub_fetch(&seat->waiting, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&share->stale, 1, __ATOMIC_RELEASE);
    return;
  }
  if (waits && seat->waiting > 0) {
    __atomic_sub_fetch(&seat->waiting, 1, __ATOMIC_RELAXED);
    share->waiting--;
  }
  seat->holding++;
  share->running++;
  struct vgpu_seat *next = share->running < share->processors ? next_seat(share) : NULL;
  if (next != NULL) call(next);
  pthread_mutex_unlock(&share->lock);
}

void vgpu_share_leave(struct vgpu_share *share, uint32_t number, uint64_t used) {
  struct vgpu_seat *seat = &share->seats[number];
  if (!lock(share)) return;
  if (seat->holding > 0) {
    seat->holding--;
    share->running--;
  }
  seat->used += used;
  share->peer_used[peer_of(seat)] += used * VGPU_WEIGHT_USUAL / (seat->weight == 0 ? 1 : seat->weight);
  struct vgpu_seat *next = next_seat(share);
  if (next != NULL) call(next);
  pthread_mutex_unlock(&share->lock);
}
