#include "host/session/share.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "wire/clock.h"

/* The time that a peer which was idle may use before it waits for the others: a few turns. */
#define CREDIT_NS 8000000ull
/* The most that a peer can be behind: two turns of a peer of weight 1. */
#define DEBT_NS 400000000ull
/* So much less a peer must have used to go first. */
#define LEAD_NS 1000000ull
/* A thread that is not called checks by itself, because the worker that should have called may be dead. */
#define LOOK_NS 10000000l
#define LONGEST_MS 5000

void vgpu_share_make(struct vgpu_share *share, uint32_t processors) {
  share->processors = processors == 0 ? 1 : processors;
}

void vgpu_share_begin(struct vgpu_share *share, uint32_t seat, uint32_t peer, uint32_t weight) {
  struct vgpu_seat *place = &share->seats[seat];
  *place = (struct vgpu_seat){.peer = peer % VGPU_SHARE_PEERS_MAX, .weight = weight == 0 ? 1 : weight};
}

void vgpu_share_new_peer(struct vgpu_share *share, uint32_t peer) {
  const uint64_t now = __atomic_load_n(&share->clock, __ATOMIC_RELAXED);
  __atomic_store_n(&share->peer_used[peer % VGPU_SHARE_PEERS_MAX], now, __ATOMIC_RELAXED);
}

void vgpu_share_end(struct vgpu_share *share, uint32_t seat) {
  vgpu_shared_lock_abandon(&share->lock, seat);
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
static bool lock(struct vgpu_share *share, uint32_t seat) {
  if (!vgpu_shared_lock_take(&share->lock, seat)) return false;
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

/* Returns the seat with waiting threads whose turn it is; NULL: no thread waits. */
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

static void bring_near(uint64_t *used, uint64_t now) {
  if (now > CREDIT_NS && *used < now - CREDIT_NS) *used = now - CREDIT_NS;
  else if (*used > now && *used - now > DEBT_NS) *used = now + DEBT_NS;
}

/* The least that active seats have used: of the seat's own peer, and of the other peers. UINT64_MAX: none. */
struct least {
  uint64_t seat;
  uint64_t peer;
  bool peer_active; /* by another seat */
};

static struct least least_but(struct vgpu_share *share, const struct vgpu_seat *seat) {
  struct least least = {.seat = UINT64_MAX, .peer = UINT64_MAX};
  for (uint32_t i = 0; i < VGPU_SEATS_MAX && share->running + share->waiting > 0; i++) {
    const struct vgpu_seat *other = &share->seats[i];
    if (other == seat || (other->holding == 0 && other->waiting == 0)) continue;
    if (peer_of(other) == peer_of(seat)) {
      least.peer_active = true;
      if (other->used < least.seat) least.seat = other->used;
    } else if (share->peer_used[peer_of(other)] < least.peer) {
      least.peer = share->peer_used[peer_of(other)];
    }
  }
  return least;
}

/* A seat that was idle begins near those that compute, and its peer, if all its seats were, at the clock. */
static void join(struct vgpu_share *share, struct vgpu_seat *seat) {
  if (seat->holding > 0 || seat->waiting > 0) return;
  struct least least = least_but(share, seat);
  if (!least.peer_active) bring_near(&share->peer_used[peer_of(seat)], share->clock);
  if (least.seat != UINT64_MAX) bring_near(&seat->used, least.seat);
}

static void take_turn(struct vgpu_share *share, struct vgpu_seat *seat) {
  seat->holding++;
  share->running++;
  uint64_t used = share->peer_used[peer_of(seat)];
  if (used > share->clock) share->clock = used;
}

/* Called after a turn for which no other thread waited: the processor would have been idle. */
static void forgive(struct vgpu_share *share, struct vgpu_seat *seat) {
  struct least least = least_but(share, seat);
  uint64_t *used = &share->peer_used[peer_of(seat)];
  if (least.peer == UINT64_MAX) share->clock = *used > share->clock ? *used : share->clock;
  else if (*used > least.peer) *used = least.peer;
  if (seat->used > least.seat) seat->used = least.seat;
}

/*
 * True if a peer that has no turn has used so much less than each peer that has one that it goes first at
 * once: fair schedulers of kernels do the same when a thread wakes up. The processors have a turn too many
 * then, and one of those that have used more ends its turn early (vgpu_share_crowded).
 */
static bool goes_first(const struct vgpu_share *share, const struct vgpu_seat *seat) {
  const uint64_t used = share->peer_used[peer_of(seat)];
  if (share->running >= 2 * share->processors) return false;
  for (uint32_t i = 0; i < VGPU_SEATS_MAX; i++) {
    const struct vgpu_seat *other = &share->seats[i];
    if (other->holding == 0) continue;
    if (peer_of(other) == peer_of(seat) || share->peer_used[peer_of(other)] < used + LEAD_NS) return false;
  }
  return true;
}

bool vgpu_share_crowded(const struct vgpu_share *share, uint32_t number) {
  if (__atomic_load_n(&share->running, __ATOMIC_RELAXED) <= share->processors) return false;
  const uint32_t peer = peer_of(&share->seats[number]);
  const uint64_t used = __atomic_load_n(&share->peer_used[peer], __ATOMIC_RELAXED);
  return used + LEAD_NS > __atomic_load_n(&share->clock, __ATOMIC_RELAXED);
}

static bool may(struct vgpu_share *share, const struct vgpu_seat *seat) {
  if (share->running >= share->processors) return goes_first(share, seat);
  const struct vgpu_seat *next = next_seat(share);
  return next == NULL || next == seat || before(share, seat, next);
}

bool vgpu_share_try(struct vgpu_share *share, uint32_t number) {
  struct vgpu_seat *seat = &share->seats[number];
  if (!lock(share, number)) return true;
  join(share, seat);
  bool taken = may(share, seat);
  if (taken) take_turn(share, seat);
  vgpu_shared_lock_give(&share->lock);
  return taken;
}

void vgpu_share_enter(struct vgpu_share *share, uint32_t number) {
  struct vgpu_seat *seat = &share->seats[number];
  if (!lock(share, number)) return;
  join(share, seat);
  bool waits = false;
  int64_t deadline = vgpu_now_ms() + LONGEST_MS;
  while (!may(share, seat)) {
    if (!waits) {
      __atomic_add_fetch(&seat->waiting, 1, __ATOMIC_RELAXED);
      share->waiting++;
      waits = true;
    }
    uint32_t call = __atomic_load_n(&seat->call, __ATOMIC_ACQUIRE);
    vgpu_shared_lock_give(&share->lock);
    struct timespec limit = {.tv_nsec = LOOK_NS};
    syscall(SYS_futex, &seat->call, FUTEX_WAIT, call, &limit, NULL, 0);
    if (vgpu_left_ms(deadline) > 0 && lock(share, number)) continue;
    /* The thread continues without a turn, and must not count as waiting any more. */
    __atomic_sub_fetch(&seat->waiting, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&share->stale, 1, __ATOMIC_RELEASE);
    return;
  }
  if (waits && seat->waiting > 0) {
    __atomic_sub_fetch(&seat->waiting, 1, __ATOMIC_RELAXED);
    share->waiting--;
  }
  take_turn(share, seat);
  struct vgpu_seat *next = share->running < share->processors ? next_seat(share) : NULL;
  if (next != NULL) call(next);
  vgpu_shared_lock_give(&share->lock);
}

void vgpu_share_leave(struct vgpu_share *share, uint32_t number, uint64_t used) {
  struct vgpu_seat *seat = &share->seats[number];
  if (!lock(share, number)) return;
  if (seat->holding > 0) {
    seat->holding--;
    share->running--;
  }
  seat->used += used;
  share->peer_used[peer_of(seat)] += used * VGPU_WEIGHT_USUAL / (seat->weight == 0 ? 1 : seat->weight);
  if (share->waiting == 0) forgive(share, seat);
  struct vgpu_seat *next = share->running < share->processors ? next_seat(share) : NULL;
  if (next != NULL) call(next);
  vgpu_shared_lock_give(&share->lock);
}
