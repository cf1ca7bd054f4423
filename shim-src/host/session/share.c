#include "host/session/share.h"

#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host/session/accounts.h"
#include "wire/clock.h"

/* The time that a peer which was idle may use before it waits for the others: a few turns. */
#define CREDIT_NS 8000000
/* The most that a peer can be behind when it begins again: two turns of a peer of weight 1. */
#define DEBT_NS 400000000
/* So much less a peer must have used to go first. */
#define LEAD_NS 1000000
/* A thread that is not called checks by itself: a call between its look and its sleep is lost. */
#define LOOK_NS 10000000u
#define LONGEST_NS 5000000000u
/* Effective weights are multiplied by this. */
#define SCALE 256u

/* Guards the seats of this worker among its own threads. */
static pthread_mutex_t own_seats = PTHREAD_MUTEX_INITIALIZER;

static struct vgpu_seat *seat_of(const struct vgpu_turns *turns) {
  return &turns->accounts->slots[turns->slot].seats[turns->device];
}

static uint64_t load(const uint64_t *value) {
  return __atomic_load_n(value, __ATOMIC_RELAXED);
}

/* `used` only grows, and may overflow. */
static int64_t more(uint64_t one, uint64_t other) {
  return (int64_t)(one - other);
}

struct active {
  uint32_t slot, peer, holding, waiting;
  uint64_t own;
};

/* All seats of a device as they are at one moment, by peer. */
struct view {
  const struct vgpu_share *share;
  uint32_t running, waiting, count;
  struct active array[VGPU_SEATS_MAX]; /* seats that compute or wait */
  uint64_t used[VGPU_SHARE_PEERS_MAX]; /* of peers with `known` */
  bool known[VGPU_SHARE_PEERS_MAX];
};

static void look(const struct vgpu_turns *turns, struct view *view) {
  const struct vgpu_accounts *accounts = turns->accounts;
  const uint32_t slots = vgpu_accounts_slots(accounts);
  view->share = &accounts->share;
  view->running = view->waiting = view->count = 0;
  memset(view->known, 0, sizeof view->known);
  for (uint32_t i = 0; i < slots; i++) {
    const struct vgpu_seat *seat = &accounts->slots[i].seats[turns->device];
    const uint32_t peer = view->share->places[i].peer;
    if (!view->known[peer]) view->used[peer] = load(&view->share->base[turns->device][peer]);
    view->known[peer] = true;
    view->used[peer] += load(&seat->used);
    uint32_t holding = __atomic_load_n(&seat->holding, __ATOMIC_SEQ_CST);
    const uint32_t waiting = __atomic_load_n(&seat->waiting, __ATOMIC_SEQ_CST);
    if (holding == 0 && waiting == 0) continue;
    if (holding > view->share->turns) holding = view->share->turns;
    view->array[view->count++] = (struct active){
        .slot = i, .peer = peer, .holding = holding, .waiting = waiting, .own = load(&seat->own)};
    view->running += holding;
    view->waiting += waiting > 0;
  }
}

static uint32_t peer_of(const struct vgpu_turns *turns) {
  return turns->accounts->share.places[turns->slot].peer;
}

/* The first seat with waiting threads whose turn it is: of one peer, or of all (UINT32_MAX). NULL: none. */
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
 * The weights of the peers that compute or want to, SCALE times. A peer with `percent` has that part of the
 * device; the others share the rest, at least a hundredth, by weight.
 */
struct weights {
  uint64_t own, all;
};

static struct weights weigh(const struct view *view, uint32_t slot) {
  bool seen[VGPU_SHARE_PEERS_MAX] = {false};
  uint64_t percents = 0, others = 0;
  const struct vgpu_place_of_seat *places = view->share->places, *mine = &places[slot];
  for (uint32_t i = 0; i <= view->count; i++) {
    const struct vgpu_place_of_seat *place = i == view->count ? mine : &places[view->array[i].slot];
    if (seen[place->peer]) continue;
    seen[place->peer] = true;
    percents += place->percent;
    if (place->percent == 0) others += place->weight;
  }
  const uint64_t rest = percents < 100 ? 100 - percents : 1;
  struct weights weights = {.all = SCALE * (others == 0 ? percents : others * (percents + rest) / rest)};
  weights.own = mine->percent == 0
                    ? SCALE * mine->weight
                    : SCALE * mine->percent * (others == 0 ? 1 : others) / (others == 0 ? 1 : rest);
  if (weights.own == 0) weights.own = 1;
  return weights;
}

/* Twice the time in which each peer that is active should have had a turn. */
static uint64_t period(const struct view *view, const struct weights *weights) {
  const uint64_t time = 2ull * view->share->turn_ns * weights->all / (weights->own * view->share->turns);
  return time < LONGEST_NS ? time : LONGEST_NS;
}

/* Moves a count to at most `credit` below the other one, and at most DEBT_NS above. Returns the difference.
 */
static uint64_t bring_near(uint64_t used, uint64_t other) {
  const int64_t ahead = more(used, other);
  if (ahead < -CREDIT_NS) return (uint64_t)(-CREDIT_NS - ahead);
  return ahead > DEBT_NS ? (uint64_t)(DEBT_NS - ahead) : 0;
}

/* The least that other active seats have used: of the seat's own peer, and of other peers. */
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

/* A seat that was idle begins near those that are active, and its peer, if all its seats were. */
static void join(const struct vgpu_turns *turns, struct vgpu_seat *seat, struct view *view) {
  look(turns, view);
  if (seat->holding > 0 || seat->waiting > 0) return;
  const struct least least = least_of(view, turns);
  uint64_t *used = &view->used[peer_of(turns)];
  const uint64_t moved = !least.own_active && least.peer_active ? bring_near(*used, least.peer) : 0;
  *used += moved;
  add(seat, moved, least.own_active ? bring_near(seat->own, least.own) : 0);
}

/*
 * True if a peer that has no turn has used so much less than each peer that has one that it goes first at
 * once: fair schedulers of kernels do the same when a thread wakes up. There is a turn too many then, and one
 * of those that have used more ends its turn early (vgpu_share_crowded).
 */
static bool goes_first(const struct view *view, uint32_t peer) {
  if (view->running >= 2 * view->share->turns) return false;
  for (uint32_t i = 0; i < view->count; i++) {
    const struct active *other = &view->array[i];
    if (other->holding == 0) continue;
    if (other->peer == peer || more(view->used[other->peer], view->used[peer]) < LEAD_NS) return false;
  }
  return true;
}

/*
 * True if the peer has less than its part of the turns, and has had none for its period. No other session of
 * it may wait before this one.
 */
static bool is_due(const struct view *view, const struct vgpu_turns *turns, const struct weights *weights,
                   uint64_t since) {
  const uint32_t peer = peer_of(turns), slots = vgpu_accounts_slots(turns->accounts);
  const struct active *next = next_of(view, peer);
  if (next != NULL && next->slot != turns->slot) return false;
  uint64_t taken = since, holding = 0;
  for (uint32_t i = 0; i < slots; i++) {
    if (view->share->places[i].peer != peer) continue;
    const struct vgpu_seat *seat = &turns->accounts->slots[i].seats[turns->device];
    const uint64_t other = load(&seat->taken);
    if (other > taken) taken = other;
    holding += __atomic_load_n(&seat->holding, __ATOMIC_RELAXED);
  }
  const uint64_t now = vgpu_now_ns(), passed = now > taken ? now - taken : 0;
  if (holding * weights->all >= view->share->turns * weights->own) return passed > LONGEST_NS;
  return passed > period(view, weights);
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

bool vgpu_share_enter_within(const struct vgpu_turns *turns, uint64_t limit_ns) {
  struct vgpu_seat *seat = seat_of(turns);
  const uint64_t began = vgpu_now_ns();
  struct view view;
  bool waits = false, taken;
  pthread_mutex_lock(&own_seats);
  join(turns, seat, &view);
  for (;;) {
    const struct weights weights = weigh(&view, turns->slot);
    taken = may(&view, turns) || (waits && is_due(&view, turns, &weights, began));
    const uint64_t spent = waits ? vgpu_now_ns() - began : 0;
    if (taken || spent >= limit_ns) break;
    if (!waits) __atomic_store_n(&seat->waiting, seat->waiting + 1, __ATOMIC_SEQ_CST);
    waits = true;
    pthread_mutex_unlock(&own_seats);
    const uint64_t least = period(&view, &weights), left = limit_ns - spent;
    uint64_t nap = least < LOOK_NS ? least : LOOK_NS;
    if (left < nap) nap = left;
    const struct timespec limit = {.tv_nsec = (long)nap};
    syscall(SYS_futex, &seat->call, FUTEX_WAIT, 0, &limit, NULL, 0);
    pthread_mutex_lock(&own_seats);
    look(turns, &view);
  }
  if (waits) __atomic_store_n(&seat->waiting, seat->waiting - 1, __ATOMIC_SEQ_CST);
  if (taken) {
    take(seat);
    look(turns, &view);
    call_next(turns, &view);
  }
  pthread_mutex_unlock(&own_seats);
  return taken;
}

void vgpu_share_enter(const struct vgpu_turns *turns) {
  (void)vgpu_share_enter_within(turns, UINT64_MAX);
}

/* The first look of vgpu_share_crowded, which threads that compute take all the time. */
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

bool vgpu_share_wanted(const struct vgpu_turns *turns) {
  struct view view;
  look(turns, &view);
  for (uint32_t i = 0; i < view.count; i++) {
    if (view.array[i].waiting > 0 && view.array[i].peer != peer_of(turns)) return true;
  }
  return false;
}

/* What a turn is charged: while no thread waits it costs no more than the others have used. */
static void charge(const struct vgpu_turns *turns, struct vgpu_seat *seat, const struct view *view,
                   uint64_t time) {
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
  accounts->share.places[slot] = (struct vgpu_place_of_seat){
      .peer = peer % VGPU_SHARE_PEERS_MAX, .weight = weight == 0 ? 1 : weight, .percent = percent};
}

void vgpu_share_end(struct vgpu_accounts *accounts, uint32_t slot) {
  const uint32_t peer = accounts->share.places[slot].peer;
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
      const uint32_t other = accounts->share.places[i].peer;
      if (accounts->owners[i].pid == 0 || (found && more(view.used[other], least) >= 0)) continue;
      least = view.used[other];
      found = true;
    }
    __atomic_store_n(&accounts->share.base[device][peer % VGPU_SHARE_PEERS_MAX], least, __ATOMIC_RELAXED);
  }
}
