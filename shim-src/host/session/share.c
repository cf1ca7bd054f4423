#include "host/session/share.h"

#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host/session/accounts.h"
#include "wire/clock.h"

/* The time by which a peer that was idle may be ahead: a few turns. */
#define CREDIT_NS 8000000
/* The most by which a peer can be behind when it begins again: two turns of a peer of weight 1. */
#define DEBT_NS 400000000
/* A peer goes first if it has used less by this. */
#define LEAD_NS 1000000
/* A waiting thread checks on its own as well: a wake-up between its check and its sleep is lost. */
#define LOOK_NS 10000000u
#define LONGEST_NS 5000000000u
/* A turn on a GPU that lasts for more turns than this no longer blocks others. */
#define STALE_TURNS 5
/* A session keeps its turn while it is idle for less than this part of a turn: some compute in rounds. */
#define IDLE_PART 8
/* Effective weights are fixed-point numbers with this unit. */
#define SCALE 256u

/* Protects this worker's seats from its own threads, and `late`. */
static pthread_mutex_t own_seats = PTHREAD_MUTEX_INITIALIZER;

/* For each device: true if the last turn was taken because it was due, not because it was free. */
static bool late[VGPU_DEVICES_MAX];

static struct vgpu_seat *seat_of(const struct vgpu_turns *turns) {
  return &turns->accounts->slots[turns->slot].seats[turns->device];
}

static uint64_t load(const uint64_t *value) {
  return __atomic_load_n(value, __ATOMIC_RELAXED);
}

/* Difference of two counters that may overflow. */
static int64_t more(uint64_t one, uint64_t other) {
  return (int64_t)(one - other);
}

struct active {
  uint32_t slot, peer, holding, waiting;
  uint64_t own;
};

/* A snapshot of all seats of a device, by peer. */
struct view {
  const struct vgpu_share *share;
  uint32_t running, waiting, count;
  struct active array[VGPU_SEATS_MAX]; /* seats that compute or wait */
  uint64_t used[VGPU_SHARE_PEERS_MAX]; /* valid for peers with `known` */
  bool known[VGPU_SHARE_PEERS_MAX];
};

/*
 * True if a turn on a GPU no longer blocks others: it lasts too long, or its session has been idle for a
 * while.
 */
static bool is_over(const struct vgpu_share *share, const struct vgpu_seat *seat) {
  const uint64_t now = vgpu_now_ns(), idle = load(&seat->idle);
  const int64_t turn = share->turn_ns, passed = more(now, load(&seat->taken));
  /* `began` may be later than `now`, but not by an hour. */
  return passed > STALE_TURNS * turn || passed < -turn || (idle != 0 && more(now, idle) > turn / IDLE_PART);
}

static void look(const struct vgpu_turns *turns, struct view *view) {
  const struct vgpu_accounts *accounts = turns->accounts;
  const uint32_t slots = vgpu_accounts_slots(accounts);
  view->share = &accounts->share;
  view->running = view->waiting = view->count = 0;
  memset(view->known, 0, sizeof view->known);
  for (uint32_t i = 0; i < slots; i++) {
    const struct vgpu_seat *seat = &accounts->slots[i].seats[turns->device];
    const uint32_t peer = view->share->owners[i].peer;
    if (!view->known[peer]) view->used[peer] = load(&view->share->base[turns->device][peer]);
    view->known[peer] = true;
    view->used[peer] += load(&seat->used);
    uint32_t holding = __atomic_load_n(&seat->holding, __ATOMIC_SEQ_CST);
    const uint32_t waiting = __atomic_load_n(&seat->waiting, __ATOMIC_SEQ_CST);
    if (holding > 0 && view->share->exclusive && is_over(view->share, seat)) holding = 0;
    if (holding == 0 && waiting == 0) continue;
    if (holding > view->share->turns) holding = view->share->turns;
    view->array[view->count++] = (struct active){
        .slot = i, .peer = peer, .holding = holding, .waiting = waiting, .own = load(&seat->own)};
    view->running += holding;
    view->waiting += waiting > 0;
  }
}

static uint32_t peer_of(const struct vgpu_turns *turns) {
  return turns->accounts->share.owners[turns->slot].peer;
}

/* The first waiting seat whose turn it is: of one peer, or of all (UINT32_MAX). NULL: none. */
static const struct active *next_of(const struct view *view, uint32_t peer) {
  const struct active *next = NULL;
  for (uint32_t i = 0; i < view->count; i++) {
    const struct active *seat = &view->array[i];
    if (seat->waiting == 0 || (peer != UINT32_MAX && seat->peer != peer)) continue;
    const int64_t ahead = next == NULL ? -1 : more(view->used[seat->peer], view->used[next->peer]);
    if (ahead < 0 || (ahead == 0 && more(seat->own, next->own) < 0)) next = seat;
  }
  return next;
}

static void call(const struct vgpu_turns *turns, const struct active *seat) {
  const uint32_t *word = &turns->accounts->slots[seat->slot].seats[turns->device].call;
  syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void call_next(const struct vgpu_turns *turns, const struct view *view) {
  const struct active *next = view->running < view->share->turns ? next_of(view, UINT32_MAX) : NULL;
  if (next != NULL) call(turns, next);
}

/*
 * Effective weights of the peers that compute or want to. A peer with `percent` gets that part of the device;
 * the others share the rest, at least a hundredth, by weight.
 */
struct weights {
  uint64_t own, all;
  uint64_t least; /* the least weight of another peer; UINT64_MAX: there is none */
};

static uint64_t weight_of(const struct vgpu_seat_owner *owner, uint64_t others, uint64_t rest) {
  uint64_t weight = SCALE * owner->weight;
  if (owner->percent > 0)
    weight = SCALE * owner->percent * (others == 0 ? 1 : others) / (others == 0 ? 1 : rest);
  return weight == 0 ? 1 : weight;
}

static struct weights weigh(const struct view *view, uint32_t slot) {
  bool seen[VGPU_SHARE_PEERS_MAX] = {false};
  uint64_t percents = 0, others = 0;
  uint32_t peers[VGPU_SEATS_MAX + 1], count = 0; /* a slot of each peer */
  const struct vgpu_seat_owner *owners = view->share->owners;
  for (uint32_t i = 0; i <= view->count; i++) {
    const uint32_t one = i == 0 ? slot : view->array[i - 1].slot;
    if (seen[owners[one].peer]) continue;
    seen[owners[one].peer] = true;
    peers[count++] = one;
    percents += owners[one].percent;
    if (owners[one].percent == 0) others += owners[one].weight;
  }
  const uint64_t rest = percents < 100 ? 100 - percents : 1;
  struct weights weights = {.own = weight_of(&owners[slot], others, rest), .all = 0, .least = UINT64_MAX};
  weights.all = weights.own;
  for (uint32_t i = 1; i < count; i++) {
    const uint64_t weight = weight_of(&owners[peers[i]], others, rest);
    weights.all += weight;
    if (weight < weights.least) weights.least = weight;
  }
  return weights;
}

/*
 * How long a peer waits before its turn is due: twice the time in which each active peer should have a turn.
 * After a late turn, once that time: seats that lied may lie again, and the peer still gets its share.
 */
static uint64_t period(const struct view *view, const struct weights *weights, uint32_t device) {
  const uint64_t times = late[device] ? 1 : 2;
  const uint64_t time = times * view->share->turn_ns * weights->all / (weights->own * view->share->turns);
  return time < LONGEST_NS ? time : LONGEST_NS;
}

/* Limits a counter to at most `credit` below the other one and at most DEBT_NS above. */
static uint64_t bring_near(uint64_t used, uint64_t other, int64_t credit) {
  const int64_t ahead = more(used, other);
  if (ahead < -credit) return (uint64_t)(-credit - ahead);
  return ahead > DEBT_NS ? (uint64_t)(DEBT_NS - ahead) : 0;
}

/* The least time that other active seats have used: of the same peer, and of other peers. */
struct least {
  bool own_active, peer_active;
  uint64_t own, peer;
};

static struct least least_of(const struct view *view, const struct vgpu_turns *turns) {
  struct least least = {.own_active = false};
  for (uint32_t i = 0; i < view->count; i++) {
    const struct active *other = &view->array[i];
    if (other->slot == turns->slot) continue;
    if (other->peer == peer_of(turns)) {
      if (!least.own_active || more(other->own, least.own) < 0) least.own = other->own;
      least.own_active = true;
    } else {
      const uint64_t used = view->used[other->peer];
      if (!least.peer_active || more(used, least.peer) < 0) least.peer = used;
      least.peer_active = true;
    }
  }
  return least;
}

static void add(struct vgpu_seat *seat, uint64_t used, uint64_t own) {
  __atomic_store_n(&seat->used, seat->used + used, __ATOMIC_RELAXED);
  __atomic_store_n(&seat->own, seat->own + own, __ATOMIC_RELAXED);
}

/* Two turns of the peer with the greatest weight, so that others get some turns between. */
static int64_t credit_of(const struct view *view, const struct vgpu_turns *turns) {
  const uint64_t least = weigh(view, turns->slot).least;
  const uint64_t two = 2ull * view->share->turn_ns * VGPU_WEIGHT_USUAL * SCALE / least;
  return two > CREDIT_NS ? (int64_t)two : CREDIT_NS;
}

/* Lets a seat that was idle begin near the active ones, and likewise its peer if all its seats were idle. */
static void join(const struct vgpu_turns *turns, struct vgpu_seat *seat, struct view *view) {
  look(turns, view);
  if (seat->holding > 0 || seat->waiting > 0) return;
  const struct least least = least_of(view, turns);
  uint64_t *used = &view->used[peer_of(turns)], moved = 0;
  if (!least.own_active && least.peer_active) moved = bring_near(*used, least.peer, credit_of(view, turns));
  *used += moved;
  add(seat, moved, least.own_active ? bring_near(seat->own, least.own, CREDIT_NS) : 0);
}

/*
 * True if a peer without a turn has used so much less than each peer with one that it goes first at once, as
 * fair schedulers of kernels do when a thread wakes up. There is one turn too many then, so a peer that has
 * used more ends its turn early (vgpu_share_crowded).
 */
static bool goes_first(const struct view *view, uint32_t peer) {
  if (view->share->exclusive || view->running >= 2 * view->share->turns) return false;
  for (uint32_t i = 0; i < view->count; i++) {
    const struct active *other = &view->array[i];
    if (other->holding == 0) continue;
    if (other->peer == peer || more(view->used[other->peer], view->used[peer]) < LEAD_NS) return false;
  }
  return true;
}

/*
 * True if the peer has fewer turns than its share and has had none for its period. No other session of the
 * peer may wait ahead of this one.
 */
static bool is_due(const struct view *view, const struct vgpu_turns *turns, const struct weights *weights,
                   uint64_t since) {
  const uint32_t peer = peer_of(turns), slots = vgpu_accounts_slots(turns->accounts);
  const struct active *next = next_of(view, peer);
  if (next != NULL && next->slot != turns->slot) return false;
  uint64_t taken = late[turns->device] ? 0 : since, holding = 0;
  for (uint32_t i = 0; i < slots; i++) {
    if (view->share->owners[i].peer != peer) continue;
    const struct vgpu_seat *seat = &turns->accounts->slots[i].seats[turns->device];
    const uint64_t other = load(&seat->taken);
    if (other > taken) taken = other;
    holding += __atomic_load_n(&seat->holding, __ATOMIC_RELAXED);
  }
  const uint64_t now = vgpu_now_ns(), passed = now > taken ? now - taken : 0;
  if (holding * weights->all >= view->share->turns * weights->own) return passed > LONGEST_NS;
  return passed > period(view, weights, turns->device);
}

static bool may(const struct view *view, const struct vgpu_turns *turns) {
  if (view->running >= view->share->turns) return goes_first(view, peer_of(turns));
  const struct active *next = next_of(view, UINT32_MAX);
  if (next == NULL || next->slot == turns->slot) return true;
  const int64_t ahead = more(view->used[peer_of(turns)], view->used[next->peer]);
  return ahead < 0 || (ahead == 0 && more(seat_of(turns)->own, next->own) < 0);
}

static void take(struct vgpu_seat *seat) {
  __atomic_store_n(&seat->holding, seat->holding + 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&seat->taken, vgpu_now_ns(), __ATOMIC_RELAXED);
  __atomic_store_n(&seat->idle, 0, __ATOMIC_RELAXED);
}

bool vgpu_share_try(const struct vgpu_turns *turns) {
  struct vgpu_seat *seat = seat_of(turns);
  struct view view;
  pthread_mutex_lock(&own_seats);
  join(turns, seat, &view);
  const bool taken = may(&view, turns);
  if (taken) take(seat);
  pthread_mutex_unlock(&own_seats);
  return taken;
}

static void take_waiting(const struct vgpu_turns *turns, struct vgpu_seat *seat, struct view *view) {
  __atomic_store_n(&seat->waiting, seat->waiting - 1, __ATOMIC_SEQ_CST);
  take(seat);
  look(turns, view);
  call_next(turns, view);
}

void vgpu_share_want(const struct vgpu_turns *turns) {
  struct vgpu_seat *seat = seat_of(turns);
  pthread_mutex_lock(&own_seats);
  __atomic_store_n(&seat->waiting, seat->waiting + 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&own_seats);
}

bool vgpu_share_await(const struct vgpu_turns *turns, uint64_t since, uint64_t limit_ns) {
  struct vgpu_seat *seat = seat_of(turns);
  struct view view;
  bool slept = false;
  for (;;) {
    pthread_mutex_lock(&own_seats);
    look(turns, &view);
    const struct weights weights = weigh(&view, turns->slot);
    const bool free = may(&view, turns), taken = free || is_due(&view, turns, &weights, since);
    const uint64_t limit_of_look = period(&view, &weights, turns->device);
    if (taken) {
      late[turns->device] = !free;
      take_waiting(turns, seat, &view);
    }
    pthread_mutex_unlock(&own_seats);
    if (taken || slept) return taken;
    const uint64_t most = limit_of_look < LOOK_NS ? limit_of_look : LOOK_NS;
    const struct timespec limit = {.tv_nsec = (long)(limit_ns < most ? limit_ns : most)};
    syscall(SYS_futex, &seat->call, FUTEX_WAIT, 0, &limit, NULL, 0);
    slept = true;
  }
}

void vgpu_share_give_up(const struct vgpu_turns *turns) {
  struct vgpu_seat *seat = seat_of(turns);
  pthread_mutex_lock(&own_seats);
  __atomic_store_n(&seat->waiting, seat->waiting - 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&own_seats);
}

void vgpu_share_enter(const struct vgpu_turns *turns) {
  const uint64_t since = vgpu_now_ns();
  if (vgpu_share_try(turns)) return;
  vgpu_share_want(turns);
  while (!vgpu_share_await(turns, since, LOOK_NS)) continue;
}

/* The cheap first check of vgpu_share_crowded, which computing threads call all the time. */
static bool is_full(const struct vgpu_turns *turns) {
  const struct vgpu_accounts *accounts = turns->accounts;
  const uint32_t slots = vgpu_accounts_slots(accounts), most = accounts->share.turns;
  uint32_t running = 0;
  for (uint32_t i = 0; i < slots && running <= most; i++) {
    const uint32_t holding =
        __atomic_load_n(&accounts->slots[i].seats[turns->device].holding, __ATOMIC_RELAXED);
    running += holding < most ? holding : most;
  }
  return running > most;
}

bool vgpu_share_crowded(const struct vgpu_turns *turns) {
  struct view view;
  if (!is_full(turns)) return false;
  look(turns, &view);
  uint64_t most = view.used[peer_of(turns)];
  for (uint32_t i = 0; i < view.count; i++) {
    const struct active *other = &view.array[i];
    if (other->holding > 0 && more(view.used[other->peer], most) > 0) most = view.used[other->peer];
  }
  return more(most, view.used[peer_of(turns)]) < LEAD_NS;
}

void vgpu_share_idle(const struct vgpu_turns *turns) {
  __atomic_store_n(&seat_of(turns)->idle, vgpu_now_ns(), __ATOMIC_RELAXED);
}

void vgpu_share_busy(const struct vgpu_turns *turns) {
  __atomic_store_n(&seat_of(turns)->idle, 0, __ATOMIC_RELAXED);
}

bool vgpu_share_lost(const struct vgpu_turns *turns) {
  return is_over(&turns->accounts->share, seat_of(turns));
}

bool vgpu_share_has_others(const struct vgpu_turns *turns) {
  const struct vgpu_accounts *accounts = turns->accounts;
  const uint32_t slots = vgpu_accounts_slots(accounts);
  for (uint32_t i = 0; i < slots; i++) {
    if (__atomic_load_n(&accounts->owners[i].pid, __ATOMIC_RELAXED) != 0 &&
        accounts->share.owners[i].peer != peer_of(turns))
      return true;
  }
  return false;
}

bool vgpu_share_wanted(const struct vgpu_turns *turns) {
  struct view view;
  look(turns, &view);
  for (uint32_t i = 0; i < view.count; i++) {
    if (view.array[i].peer != peer_of(turns)) return true;
  }
  return false;
}

/* Charges a turn. If no thread waits, its cost is limited by what the others have used. */
static void charge(const struct vgpu_turns *turns, struct vgpu_seat *seat, const struct view *view,
                   uint64_t time) {
  if (view->waiting == 0 && view->count <= 1) return; /* only this seat */
  const struct weights weights = weigh(view, turns->slot);
  uint64_t used = time * VGPU_WEIGHT_USUAL * SCALE / weights.own, own = used;
  if (view->waiting == 0) {
    const struct least least = least_of(view, turns);
    const int64_t behind = least.peer_active ? more(least.peer, view->used[peer_of(turns)]) : 0,
                  own_behind = least.own_active ? more(least.own, seat->own) : 0;
    if (behind < (int64_t)used) used = (uint64_t)behind;
    if (own_behind < (int64_t)own) own = (uint64_t)own_behind;
    if (!least.peer_active) used = 0;
    if (!least.own_active) own = 0;
  }
  add(seat, used, own);
}

void vgpu_share_leave(const struct vgpu_turns *turns, uint64_t used) {
  struct vgpu_seat *seat = seat_of(turns);
  struct view view;
  pthread_mutex_lock(&own_seats);
  look(turns, &view);
  charge(turns, seat, &view, used);
  if (seat->holding > 0) __atomic_store_n(&seat->holding, seat->holding - 1, __ATOMIC_SEQ_CST);
  if (view.waiting > 0) {
    look(turns, &view);
    call_next(turns, &view);
  }
  pthread_mutex_unlock(&own_seats);
}

void vgpu_share_begin(struct vgpu_accounts *accounts, uint32_t slot, uint32_t peer, uint32_t weight,
                      uint32_t percent) {
  accounts->share.owners[slot] = (struct vgpu_seat_owner){
      .peer = peer % VGPU_SHARE_PEERS_MAX, .weight = weight == 0 ? 1 : weight, .percent = percent};
}

void vgpu_share_end(struct vgpu_accounts *accounts, uint32_t slot) {
  const uint32_t peer = accounts->share.owners[slot].peer;
  for (uint32_t device = 0; device < VGPU_DEVICES_MAX; device++) {
    uint64_t *base = &accounts->share.base[device][peer];
    __atomic_store_n(base, *base + load(&accounts->slots[slot].seats[device].used), __ATOMIC_RELAXED);
  }
  memset(accounts->slots[slot].seats, 0, sizeof accounts->slots[slot].seats);
}

void vgpu_share_new_peer(struct vgpu_accounts *accounts, uint32_t peer) {
  const uint32_t slots = vgpu_accounts_slots(accounts);
  for (uint32_t device = 0; device < VGPU_DEVICES_MAX; device++) {
    struct view view;
    bool found = false;
    uint64_t least = 0;
    look(&(struct vgpu_turns){.accounts = accounts, .device = device}, &view);
    for (uint32_t i = 0; i < slots; i++) {
      const uint32_t other = accounts->share.owners[i].peer;
      if (accounts->owners[i].pid == 0 || (found && more(view.used[other], least) >= 0)) continue;
      least = view.used[other];
      found = true;
    }
    __atomic_store_n(&accounts->share.base[device][peer % VGPU_SHARE_PEERS_MAX], least, __ATOMIC_RELAXED);
  }
}
