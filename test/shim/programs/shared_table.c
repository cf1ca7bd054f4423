/*
 * The table that the daemon shares with its workers, used as they use it; no daemon runs. `shared_table
 * WHAT`:
 *
 * - comeback: a guest that computed for ten minutes comes back while another computes without a pause; prints
 * the turns of 2 ms that it waits, at most 1000
 * - stopped: a thread waits for a turn while a stopped worker holds the lock; prints how many still wait once
 * it has gone on without one
 * - idle: a guest computes with the processors that another one does not want, for ten minutes; then there is
 * one processor for both; prints the turns that it waits, at most 1000
 * - dead: a worker ends while it holds the lock of the turns; prints how long the next one waits, in ms
 * - kept: no thread ever gives a turn back; prints how long a thread waits for one, in ms
 * - first: a peer that has used less comes while another one has the only processor; prints whether it has a
 * turn at once, whether the other's turn and its own should end early, and whether a third peer gets a turn,
 * too
 * - evicted: a peer with a session, and then more peers than the table has places; prints 1 if the peer has
 * its place and no other peer has it, and what a new peer in a used place has used
 * - scribbled: a worker that was taken over wrote nonsense; prints the sessions that are listed
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "host/daemon/sessions.h"
#include "host/policy/peers.h"
#include "wire/clock.h"

#define TURN_NS 2000000u

static const uint64_t totals[1] = {1ull << 30};

static int comeback(struct vgpu_share *share) {
  vgpu_share_make(share, 1);
  vgpu_share_begin(share, 0, 0, VGPU_WEIGHT_USUAL);
  vgpu_share_begin(share, 1, 1, VGPU_WEIGHT_USUAL);
  vgpu_share_enter(share, 0);
  vgpu_share_leave(share, 0, 600000000000ull);
  vgpu_share_enter(share, 1);
  /* As if the second guest had another thread, so that it is never idle. */
  share->seats[1].waiting = share->waiting = 1;
  int turns = 0;
  for (; turns < 1000; turns++) {
    vgpu_share_leave(share, 1, TURN_NS);
    if (vgpu_share_try(share, 0)) break;
    vgpu_share_enter(share, 1);
  }
  printf("%d\n", turns);
  return 0;
}

static int idle(struct vgpu_share *share) {
  vgpu_share_make(share, 2);
  vgpu_share_begin(share, 0, 0, VGPU_WEIGHT_USUAL);
  vgpu_share_begin(share, 1, 1, VGPU_WEIGHT_USUAL);
  vgpu_share_enter(share, 1); /* the other guest always has one processor */
  for (int i = 0; i < 600; i++) {
    vgpu_share_leave(share, 1, TURN_NS);
    vgpu_share_enter(share, 1);
    vgpu_share_enter(share, 0);
    vgpu_share_leave(share, 0, 1000000000ull);
  }
  share->processors = 1;
  share->seats[1].waiting = share->waiting = 1;
  int turns = 0;
  for (; turns < 1000; turns++) {
    vgpu_share_leave(share, 1, TURN_NS);
    if (vgpu_share_try(share, 0)) break;
    vgpu_share_enter(share, 1);
  }
  printf("%d\n", turns);
  return 0;
}

static int dead(struct vgpu_accounts *accounts) {
  vgpu_accounts_begin(accounts, 0, &(struct vgpu_account_owner){.pid = 1});
  vgpu_accounts_begin(accounts, 1, &(struct vgpu_account_owner){.pid = 1});
  vgpu_share_make(&accounts->commons.share, 1);
  if (!vgpu_shared_lock_take(&accounts->commons.share.lock, 0)) return 1;
  vgpu_accounts_end(accounts, 0);
  int64_t before = vgpu_now_ms();
  bool taken = vgpu_accounts_take(accounts, 1, 0, 4096, 0);
  bool turn = vgpu_share_try(&accounts->commons.share, 1);
  printf("%lld %d\n", (long long)(vgpu_now_ms() - before), taken && turn);
  return 0;
}

static int kept(struct vgpu_share *share) {
  vgpu_share_make(share, 1);
  vgpu_share_begin(share, 0, 0, VGPU_WEIGHT_USUAL);
  vgpu_share_begin(share, 1, 1, VGPU_WEIGHT_USUAL);
  vgpu_share_enter(share, 1);
  int64_t before = vgpu_now_ms();
  vgpu_share_enter(share, 0);
  printf("%lld\n", (long long)(vgpu_now_ms() - before));
  return 0;
}

static void *wait_for_turn(void *share) {
  vgpu_share_enter(share, 0);
  return NULL;
}

static int stopped(struct vgpu_share *share) {
  vgpu_share_make(share, 1);
  vgpu_share_begin(share, 0, 0, VGPU_WEIGHT_USUAL);
  vgpu_share_begin(share, 1, 1, VGPU_WEIGHT_USUAL);
  vgpu_share_enter(share, 1);
  pthread_t waiter;
  if (pthread_create(&waiter, NULL, wait_for_turn, share) != 0) return 1;
  const struct timespec nap = {.tv_nsec = 1000000};
  for (;;) {
    if (!vgpu_shared_lock_take(&share->lock, 2)) return 1;
    if (share->waiting == 1) break;
    vgpu_shared_lock_give(&share->lock);
    nanosleep(&nap, NULL);
  }
  pthread_join(waiter, NULL); /* it gives up waiting for the lock, which this thread holds */
  vgpu_shared_lock_give(&share->lock);
  vgpu_share_leave(share, 1, TURN_NS);
  printf("%u %u\n", share->seats[0].waiting, share->waiting);
  return 0;
}

static int scribbled(struct vgpu_accounts *accounts) {
  static struct vgpu_sessions sessions = {.limit = 1};
  static struct vgpu_session_facts facts[VGPU_SESSIONS_MAX];
  sessions.entries[0] = (struct vgpu_session_entry){.pid = 1, .session = 1};
  memset(&accounts->slots[0], 0xff, sizeof accounts->slots[0]);
  memset(accounts->commons.share.seats, 0xff, sizeof accounts->commons.share.seats);
  accounts->commons.share.seats[1] = (struct vgpu_seat){.peer = UINT32_MAX};
  accounts->commons.share.lock.word = 12345;
  (void)vgpu_accounts_take(accounts, 1, 0, 1, 1);
  vgpu_shared_lock_abandon(&accounts->commons.share.lock, 12344);
  vgpu_accounts_begin(accounts, 1, &(struct vgpu_account_owner){.pid = 1});
  (void)vgpu_accounts_used(accounts, 0);
  (void)vgpu_accounts_room(accounts, 1, 0, 0);
  (void)vgpu_accounts_take(accounts, 1, 0, 1, 1);
  (void)vgpu_share_try(&accounts->commons.share, 1);
  vgpu_share_leave(&accounts->commons.share, 1, TURN_NS);
  printf("%u\n", vgpu_sessions_list(&sessions, accounts, NULL, facts));
  vgpu_accounts_begin(accounts, 0, &(struct vgpu_account_owner){.pid = 1});
  const struct vgpu_account *next = &accounts->slots[0];
  return next->calls == 0 && next->kernels_refused == 0 && next->refused_kernel[0] == '\0' &&
                 next->memory_refused.count == 0
             ? 0
             : 1;
}

static int first(struct vgpu_share *share) {
  vgpu_share_make(share, 1);
  for (uint32_t i = 0; i < 3; i++) vgpu_share_begin(share, i, i, VGPU_WEIGHT_USUAL);
  share->peer_used[0] = share->clock = 50000000;
  vgpu_share_enter(share, 0);
  bool less = vgpu_share_try(share, 1);
  bool ends = vgpu_share_crowded(share, 0), own = vgpu_share_crowded(share, 1);
  printf("%d %d %d %d\n", less, ends, own, vgpu_share_try(share, 2));
  return 0;
}

static int evicted(struct vgpu_share *share) {
  static struct vgpu_peers peers;
  struct vgpu_peer one = {.kind = 1, .id = 1}, other = {.kind = 1};
  struct vgpu_peer_record *kept = vgpu_peers_find(&peers, &one);
  kept->sessions = 1;
  bool alone = true;
  for (uint32_t i = 0; i < 4 * VGPU_PEERS_MAX; i++) {
    other.id = 100 + i;
    alone = alone && vgpu_peers_find(&peers, &other) != kept;
  }
  alone = alone && vgpu_peers_find(&peers, &one) == kept;
  share->peer_used[7] = 5000;
  share->clock = 70;
  vgpu_share_new_peer(share, 7);
  printf("%d %llu\n", alone, (unsigned long long)share->peer_used[7]);
  return 0;
}

int main(int count, char **words) {
  struct vgpu_accounts *accounts = vgpu_accounts_make(totals, 1, NULL, NULL);
  if (count != 2 || accounts == NULL) return 1;
  if (strcmp(words[1], "comeback") == 0) return comeback(&accounts->commons.share);
  if (strcmp(words[1], "idle") == 0) return idle(&accounts->commons.share);
  if (strcmp(words[1], "dead") == 0) return dead(accounts);
  if (strcmp(words[1], "kept") == 0) return kept(&accounts->commons.share);
  if (strcmp(words[1], "stopped") == 0) return stopped(&accounts->commons.share);
  if (strcmp(words[1], "first") == 0) return first(&accounts->commons.share);
  if (strcmp(words[1], "evicted") == 0) return evicted(&accounts->commons.share);
  return strcmp(words[1], "scribbled") == 0 ? scribbled(accounts) : 1;
}
