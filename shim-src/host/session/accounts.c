#include "host/session/accounts.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct vgpu_accounts *vgpu_accounts_make(const uint64_t *totals, uint32_t device_count) {
  struct vgpu_accounts *accounts =
      mmap(NULL, sizeof *accounts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (accounts == MAP_FAILED) return NULL;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&accounts->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  vgpu_share_make(&accounts->share, processors > 0 ? (uint32_t)processors : 1);
  accounts->device_count = device_count;
  for (uint32_t i = 0; i < device_count; i++) accounts->total[i] = totals[i];
  return accounts;
}

/* A worker that was stopped while it held the lock must not stop the others for good. */
static bool lock_accounts(struct vgpu_accounts *accounts) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  int result = pthread_mutex_timedlock(&accounts->lock, &until);
  if (result == EOWNERDEAD) {
    /* Each update is a single store, so what the dead worker left is sound. */
    pthread_mutex_consistent(&accounts->lock);
    result = 0;
  }
  return result == 0;
}

static uint64_t load(const uint64_t *value) {
  return __atomic_load_n(value, __ATOMIC_RELAXED);
}

void vgpu_accounts_begin(struct vgpu_accounts *accounts, uint32_t slot) {
  if (slot >= accounts->slots_begun) __atomic_store_n(&accounts->slots_begun, slot + 1, __ATOMIC_RELEASE);
}

uint32_t vgpu_accounts_slots(const struct vgpu_accounts *accounts) {
  uint32_t slots = __atomic_load_n(&accounts->slots_begun, __ATOMIC_ACQUIRE);
  return slots < VGPU_SESSIONS_MAX ? slots : VGPU_SESSIONS_MAX;
}

uint32_t vgpu_accounts_devices(const struct vgpu_accounts *accounts) {
  uint32_t devices = __atomic_load_n(&accounts->device_count, __ATOMIC_RELAXED);
  return devices < VGPU_DEVICES_MAX ? devices : VGPU_DEVICES_MAX;
}

uint64_t vgpu_accounts_used(const struct vgpu_accounts *accounts, uint32_t device) {
  uint64_t used = 0;
  uint32_t slots = vgpu_accounts_slots(accounts);
  for (uint32_t i = 0; i < slots; i++) used += load(&accounts->slots[i].used[device]);
  return used < accounts->total[device] ? used : accounts->total[device];
}

/* Bytes that all sessions of an account's peer hold, of all devices. */
static uint64_t peer_used(const struct vgpu_accounts *accounts, const struct vgpu_account *account) {
  uint64_t used = 0;
  uint32_t slots = vgpu_accounts_slots(accounts), devices = vgpu_accounts_devices(accounts);
  for (uint32_t i = 0; i < slots; i++) {
    const struct vgpu_account *other = &accounts->slots[i];
    if (other->peer.kind != account->peer.kind || other->peer.id != account->peer.id) continue;
    for (uint32_t device = 0; device < devices; device++) used += load(&other->used[device]);
  }
  return used;
}

static uint64_t session_used(const struct vgpu_accounts *accounts, const struct vgpu_account *account) {
  uint64_t used = 0;
  uint32_t devices = vgpu_accounts_devices(accounts);
  for (uint32_t i = 0; i < devices; i++) used += load(&account->used[i]);
  return used;
}

static void narrow(struct vgpu_room *room, uint64_t limit, uint64_t used) {
  if (limit == 0) return;
  uint64_t left = used < limit ? limit - used : 0;
  if (limit < room->total) room->total = limit;
  if (left < room->free) room->free = left;
}

struct vgpu_room vgpu_accounts_room(const struct vgpu_accounts *accounts, uint32_t slot, uint32_t device,
                                    uint64_t session_limit) {
  const struct vgpu_account *account = &accounts->slots[slot];
  uint64_t total = accounts->total[device];
  struct vgpu_room room = {.total = total, .free = total - vgpu_accounts_used(accounts, device)};
  narrow(&room, session_limit, session_used(accounts, account));
  if (account->peer_memory != 0) narrow(&room, account->peer_memory, peer_used(accounts, account));
  return room;
}

bool vgpu_accounts_take(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes,
                        uint64_t session_limit) {
  if (!lock_accounts(accounts)) return false;
  struct vgpu_account *account = &accounts->slots[slot];
  uint64_t session = session_used(accounts, account);
  bool room = bytes <= accounts->total[device] - vgpu_accounts_used(accounts, device);
  if (session_limit != 0 && (session > session_limit || bytes > session_limit - session)) room = false;
  if (room && account->peer_memory != 0) {
    uint64_t used = peer_used(accounts, account);
    room = used <= account->peer_memory && bytes <= account->peer_memory - used;
  }
  if (room) __atomic_store_n(&account->used[device], load(&account->used[device]) + bytes, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&accounts->lock);
  return room;
}

void vgpu_accounts_give(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes) {
  /* Only this worker writes its slot's number, and less in use harms nobody's check: no lock. */
  uint64_t *used = &accounts->slots[slot].used[device];
  __atomic_store_n(used, load(used) - bytes, __ATOMIC_RELAXED);
}
