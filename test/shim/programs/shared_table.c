/*
 * The table that the daemon shares with its workers, used as they use it; no daemon runs. `shared_table
 * WHAT`:
 *
 * - comeback: a guest that computed for ten minutes comes back while another computes without a pause; prints
 * the turns of 2 ms that it waits, at most 1000
 * - idle: a guest computes with the processors that another one does not want, for ten minutes; then there is
 * one processor for both; prints the turns that it waits, at most 1000
 * - dead: a worker ends with its turn; prints whether another one has it then
 * - kept: no thread ever gives a turn back; prints how long a thread waits for one, in ms
 * - first: a peer that has used less comes while another one has the only processor; prints whether it has a
 * turn at once, whether the other's turn and its own should end early, and whether a third peer gets a turn,
 * too
 * - shares: peers of 25 and 75 percent, and one with a weight, compute without a pause; prints the turns that
 * each had of 1000, and those of the first two without the third
 * - evicted: a peer with a session, and then more peers than the table has places; prints 1 if the peer has
 * its place and no other peer has it, and what a new peer in a used place has used beside the least of others
 * - scribbled: a worker that was taken over wrote nonsense; prints the sessions that are listed
 * - liar: a worker that was taken over always computes and waits, and has used nothing, as it says; prints
 * how long another peer waited for 20 turns, in ms
 * - share: the same; prints how many of 20 turns the other peer had at once, each after it computed for its
 * part of the time
 * - writes: a worker writes another one's seat, and what the daemon says; prints 1 for each that is a fault
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/daemon/sessions.h"
#include "host/policy/peers.h"
#include "wire/clock.h"

#define TURN_NS 2000000u

static const uint64_t totals[1] = {1ull << 30};

static struct vgpu_turns of(struct vgpu_accounts *accounts, uint32_t slot) {
  return (struct vgpu_turns){.accounts = accounts, .slot = slot};
}

/* A session of a peer of its own. */
static void begin(struct vgpu_accounts *accounts, uint32_t slot, uint32_t weight, uint32_t percent) {
  vgpu_accounts_begin(accounts, slot, &(struct vgpu_account_owner){.pid = 1});
  vgpu_share_begin(accounts, slot, slot, weight, percent);
}

static int turns_until(const struct vgpu_turns *one, const struct vgpu_turns *other) {
  int turns = 0;
  for (; turns < 1000; turns++) {
    vgpu_share_leave(other, TURN_NS);
    if (vgpu_share_try(one)) break;
    vgpu_share_enter(other);
  }
  return turns;
}

static int comeback(struct vgpu_accounts *accounts) {
  const struct vgpu_turns one = of(accounts, 0), other = of(accounts, 1);
  accounts->share.turns = 1;
  begin(accounts, 0, VGPU_WEIGHT_USUAL, 0);
  begin(accounts, 1, VGPU_WEIGHT_USUAL, 0);
  vgpu_share_enter(&one);
  vgpu_share_leave(&one, 600000000000ull);
  vgpu_share_enter(&other);
  /* As if the second guest had another thread, so that it is never idle. */
  accounts->slots[1].seats[0].waiting = 1;
  printf("%d\n", turns_until(&one, &other));
  return 0;
}

static int idle(struct vgpu_accounts *accounts) {
  const struct vgpu_turns one = of(accounts, 0), other = of(accounts, 1);
  accounts->share.turns = 2;
  begin(accounts, 0, VGPU_WEIGHT_USUAL, 0);
  begin(accounts, 1, VGPU_WEIGHT_USUAL, 0);
  vgpu_share_enter(&other); /* the other guest always has one processor */
  for (int i = 0; i < 600; i++) {
    vgpu_share_leave(&other, TURN_NS);
    vgpu_share_enter(&other);
    vgpu_share_enter(&one);
    vgpu_share_leave(&one, 1000000000ull);
  }
  accounts->share.turns = 1;
  accounts->slots[1].seats[0].waiting = 1;
  printf("%d\n", turns_until(&one, &other));
  return 0;
}

static int dead(struct vgpu_accounts *accounts) {
  const struct vgpu_turns one = of(accounts, 0), other = of(accounts, 1);
  accounts->share.turns = 1;
  begin(accounts, 0, VGPU_WEIGHT_USUAL, 0);
  begin(accounts, 1, VGPU_WEIGHT_USUAL, 0);
  vgpu_share_enter(&one);
  const bool before = vgpu_share_try(&other);
  vgpu_accounts_end(accounts, 0);
  printf("%d %d\n", before, vgpu_share_try(&other));
  return 0;
}

static int kept(struct vgpu_accounts *accounts) {
  const struct vgpu_turns one = of(accounts, 0), other = of(accounts, 1);
  accounts->share.turns = 1;
  begin(accounts, 0, VGPU_WEIGHT_USUAL, 0);
  begin(accounts, 1, VGPU_WEIGHT_USUAL, 0);
  vgpu_share_enter(&other);
  int64_t before = vgpu_now_ms();
  vgpu_share_enter(&one);
  printf("%lld\n", (long long)(vgpu_now_ms() - before));
  return 0;
}

/* Each of the peers always wants the only turn. */
static void compete(struct vgpu_accounts *accounts, uint32_t peers, uint32_t *had) {
  for (uint32_t i = 0; i < peers; i++) accounts->slots[i].seats[0].waiting = 1;
  for (uint32_t turn = 0; turn < 1000; turn++) {
    for (uint32_t i = 0; i < peers; i++) {
      const struct vgpu_turns turns = of(accounts, i);
      if (!vgpu_share_try(&turns)) continue;
      had[i]++;
      vgpu_share_leave(&turns, TURN_NS);
      break;
    }
  }
}

static int shares(struct vgpu_accounts *accounts) {
  uint32_t three[3] = {0}, two[2] = {0};
  accounts->share.turns = 1;
  begin(accounts, 0, VGPU_WEIGHT_USUAL, 25);
  begin(accounts, 1, VGPU_WEIGHT_USUAL, 50);
  begin(accounts, 2, 7, 0);
  compete(accounts, 3, three);
  vgpu_accounts_end(accounts, 2);
  vgpu_share_begin(accounts, 1, 1, VGPU_WEIGHT_USUAL, 75);
  compete(accounts, 2, two);
  printf("%u %u %u %u %u\n", three[0], three[1], three[2], two[0], two[1]);
  return 0;
}

static struct vgpu_turns beside_liar(struct vgpu_accounts *accounts) {
  accounts->share.turns = 2;
  begin(accounts, 0, VGPU_WEIGHT_USUAL, 0);
  begin(accounts, 1, VGPU_WEIGHT_USUAL, 0);
  accounts->slots[1].seats[0] = (struct vgpu_seat){
      .holding = 100000, .waiting = 100000, .taken = UINT64_MAX, .used = (uint64_t)(INT64_MIN / 2)};
  return of(accounts, 0);
}

/* One of two equal peers has one of the two turns all the time. */
static int share(struct vgpu_accounts *accounts) {
  const struct vgpu_turns one = beside_liar(accounts);
  int at_once = 0;
  for (int i = 0; i < 20; i++) {
    vgpu_share_want(&one);
    const uint64_t since = vgpu_now_ns();
    const bool taken = vgpu_share_await(&one, since, 1);
    at_once += taken;
    while (!taken && !vgpu_share_await(&one, since, TURN_NS)) continue;
    const uint64_t began = vgpu_now_ns();
    while (vgpu_now_ns() - began <= TURN_NS) continue;
    vgpu_share_leave(&one, TURN_NS);
  }
  printf("%d\n", at_once);
  return 0;
}

static int liar(struct vgpu_accounts *accounts) {
  const struct vgpu_turns one = beside_liar(accounts);
  const int64_t before = vgpu_now_ms();
  for (int i = 0; i < 20; i++) {
    vgpu_share_enter(&one);
    vgpu_share_leave(&one, TURN_NS);
  }
  printf("%lld\n", (long long)(vgpu_now_ms() - before));
  return 0;
}

/* The worker of slot 0 writes what it can reach; each write that is possible would be no fault. */
static int writes(int writable, int readable) {
  struct vgpu_accounts *accounts = vgpu_accounts_map(writable, readable, 0);
  if (accounts == NULL) return 1;
  accounts->slots[0].seats[0].used = 1;
  uint64_t *const others[] = {&accounts->slots[1].seats[0].used, &accounts->share.base[0][0]};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    pid_t child = fork();
    if (child == 0) {
      *(volatile uint64_t *)others[i] = 1;
      _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%d ", !WIFEXITED(status) || WEXITSTATUS(status) != 0);
  }
  puts("");
  return 0;
}

static int scribbled(struct vgpu_accounts *accounts) {
  static struct vgpu_sessions sessions = {.limit = 1};
  static struct vgpu_session_facts facts[VGPU_SESSIONS_MAX];
  sessions.entries[0] = (struct vgpu_session_entry){.pid = 1, .session = 1};
  memset(&accounts->slots[0], 0xff, sizeof accounts->slots[0]);
  (void)vgpu_accounts_take(accounts, 1, 0, 1, 1);
  vgpu_accounts_begin(accounts, 1, &(struct vgpu_account_owner){.pid = 1});
  (void)vgpu_accounts_used(accounts, 0);
  (void)vgpu_accounts_room(accounts, 1, 0, 0);
  (void)vgpu_accounts_take(accounts, 1, 0, 1, 1);
  const struct vgpu_turns turns = of(accounts, 1);
  (void)vgpu_share_try(&turns);
  (void)vgpu_share_crowded(&turns);
  vgpu_share_leave(&turns, TURN_NS);
  printf("%u\n", vgpu_sessions_list(&sessions, accounts, NULL, facts));
  vgpu_accounts_begin(accounts, 0, &(struct vgpu_account_owner){.pid = 1});
  const struct vgpu_account *next = &accounts->slots[0];
  return next->calls == 0 && next->kernels_refused == 0 && next->refused_kernel[0] == '\0' &&
                 next->memory_refused.count == 0
             ? 0
             : 1;
}

static int first(struct vgpu_accounts *accounts) {
  const struct vgpu_turns one = of(accounts, 0), other = of(accounts, 1), third = of(accounts, 2);
  accounts->share.turns = 1;
  for (uint32_t i = 0; i < 3; i++) begin(accounts, i, VGPU_WEIGHT_USUAL, 0);
  vgpu_share_enter(&one);
  accounts->slots[0].seats[0].used = 50000000;
  bool less = vgpu_share_try(&other);
  bool ends = vgpu_share_crowded(&one), own = vgpu_share_crowded(&other);
  printf("%d %d %d %d\n", less, ends, own, vgpu_share_try(&third));
  return 0;
}

static int evicted(struct vgpu_accounts *accounts) {
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
  begin(accounts, 0, VGPU_WEIGHT_USUAL, 0);
  begin(accounts, 1, VGPU_WEIGHT_USUAL, 0);
  accounts->slots[0].seats[0].used = 70;
  accounts->slots[1].seats[0].used = 80;
  accounts->share.base[0][7] = 5000;
  vgpu_share_new_peer(accounts, 7);
  printf("%d %llu\n", alone, (unsigned long long)accounts->share.base[0][7]);
  return 0;
}

int main(int count, char **words) {
  static const struct {
    const char *name;
    int (*run)(struct vgpu_accounts *accounts);
  } cases[] = {{"comeback", comeback}, {"idle", idle},     {"dead", dead},       {"kept", kept},
               {"first", first},       {"shares", shares}, {"evicted", evicted}, {"scribbled", scribbled},
               {"liar", liar},         {"share", share}};
  int writable, readable;
  struct vgpu_accounts *accounts = vgpu_accounts_make(totals, 1, &writable, &readable);
  if (count != 2 || accounts == NULL) return 1;
  if (strcmp(words[1], "writes") == 0) return writes(writable, readable);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (strcmp(words[1], cases[i].name) == 0) return cases[i].run(accounts);
  return 1;
}
