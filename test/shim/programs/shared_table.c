/*
 * The table that the daemon shares with its workers, used as they use it; no daemon runs.
 *
 *   shared_table comeback   a guest that computed for ten minutes comes back while another computes without a
 *                           pause: prints the turns of 2 ms that it waits, at most 1000
 *   shared_table stopped    a thread waits for a turn while a stopped worker holds the lock: prints how many
 *                           still wait once it has gone on without one
 *   shared_table scribbled  a worker that was taken over wrote nonsense: prints the sessions that are listed
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "host/daemon/sessions.h"

#define TURN_NS 2000000u

static const uint64_t totals[1] = {1ull << 30};

static int comeback(struct vgpu_share *share) {
  vgpu_share_make(share, 1);
  vgpu_share_begin(share, 0, 0, VGPU_WEIGHT_USUAL);
  vgpu_share_begin(share, 1, 1, VGPU_WEIGHT_USUAL);
  vgpu_share_enter(share, 0);
  vgpu_share_leave(share, 0, 600000000000ull);
  vgpu_share_enter(share, 1);
  /* Another thread of the second guest, so that it is never idle. */
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
    pthread_mutex_lock(&share->lock);
    if (share->waiting == 1) break;
    pthread_mutex_unlock(&share->lock);
    nanosleep(&nap, NULL);
  }
  pthread_join(waiter, NULL); /* it gives up on the lock, which this thread has */
  pthread_mutex_unlock(&share->lock);
  vgpu_share_leave(share, 1, TURN_NS);
  printf("%u %u\n", share->seats[0].waiting, share->waiting);
  return 0;
}

static int scribbled(struct vgpu_accounts *accounts) {
  static struct vgpu_sessions sessions = {.limit = 1};
  static struct vgpu_session_facts facts[VGPU_SESSIONS_MAX];
  sessions.entries[0] = (struct vgpu_session_entry){.pid = 1, .session = 1};
  memset(&accounts->slots[0], 0xff, sizeof accounts->slots[0]);
  memset(accounts->share.seats, 0xff, sizeof accounts->share.seats);
  accounts->share.seats[1] = (struct vgpu_seat){.peer = UINT32_MAX};
  accounts->slots_begun = accounts->device_count = UINT32_MAX;
  (void)vgpu_accounts_used(accounts, 0);
  (void)vgpu_accounts_room(accounts, 1, 0, 0);
  (void)vgpu_accounts_take(accounts, 1, 0, 1, 1);
  (void)vgpu_share_try(&accounts->share, 1);
  vgpu_share_leave(&accounts->share, 1, TURN_NS);
  printf("%u\n", vgpu_sessions_list(&sessions, accounts, NULL, facts));
  return 0;
}

int main(int count, char **words) {
  struct vgpu_accounts *accounts = vgpu_accounts_make(totals, 1);
  if (count != 2 || accounts == NULL) return 1;
  if (strcmp(words[1], "comeback") == 0) return comeback(&accounts->share);
  if (strcmp(words[1], "stopped") == 0) return stopped(&accounts->share);
  return strcmp(words[1], "scribbled") == 0 ? scribbled(accounts) : 1;
}
