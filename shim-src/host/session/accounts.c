#include "host/session/accounts.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire/clock.h"
#include "wire/shared.h"

static void *map(size_t size, int protection, int flags, void *at, int descriptor, size_t offset) {
  void *memory = mmap(at, size, protection, MAP_SHARED | flags, descriptor, (off_t)offset);
  return memory == MAP_FAILED ? NULL : memory;
}

/*
 * Maps the table at a multiple of VGPU_ACCOUNTS_PAGE, which may be larger than the alignment of a plain
 * mapping.
 */
static struct vgpu_accounts *map_whole(int protection, int descriptor) {
  const size_t size = sizeof(struct vgpu_accounts), room = size + VGPU_ACCOUNTS_PAGE;
  char *reserved = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return NULL;
  size_t before = (VGPU_ACCOUNTS_PAGE - (uintptr_t)reserved % VGPU_ACCOUNTS_PAGE) % VGPU_ACCOUNTS_PAGE;
  void *whole = map(size, protection, MAP_FIXED, reserved + before, descriptor, 0);
  if (before > 0) munmap(reserved, before);
  munmap(reserved + before + size, room - before - size);
  return whole;
}

struct vgpu_accounts *vgpu_accounts_make(const uint64_t *totals, uint32_t device_count, int *writable,
                                         int *readable) {
  int descriptor = vgpu_shared_make("vgpu-accounts", sizeof(struct vgpu_accounts));
  if (descriptor < 0) return NULL;
  struct vgpu_accounts *accounts = map_whole(PROT_READ | PROT_WRITE, descriptor);
  if (accounts != NULL && readable != NULL) {
    /* Opened again, for reading only: a mapping of this descriptor cannot be made writable. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    *readable = open(path, O_RDONLY | O_CLOEXEC);
    if (*readable < 0) {
      munmap(accounts, sizeof *accounts);
      accounts = NULL;
    }
  }
  if (accounts == NULL || writable == NULL) close(descriptor);
  else *writable = descriptor;
  if (accounts == NULL) return NULL;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  accounts->share.turns = processors > 0 ? (uint32_t)processors : 1;
  accounts->share.turn_ns = VGPU_TURN_NS;
  accounts->device_count = device_count;
  for (uint32_t i = 0; i < device_count; i++) accounts->total[i] = totals[i];
  return accounts;
}

struct vgpu_accounts *vgpu_accounts_map(int writable, int readable, uint32_t slot) {
  struct vgpu_accounts *accounts = map_whole(PROT_READ, readable);
  if (accounts == NULL) return NULL;
  const int both = PROT_READ | PROT_WRITE;
  if (map(sizeof accounts->slots[slot], both, MAP_FIXED, &accounts->slots[slot], writable,
          offsetof(struct vgpu_accounts, slots) + slot * sizeof *accounts->slots) == NULL)
    return NULL;
  close(writable);
  close(readable);
  return accounts;
}

static uint64_t load(const uint64_t *value) {
  return __atomic_load_n(value, __ATOMIC_RELAXED);
}

void vgpu_accounts_begin(struct vgpu_accounts *accounts, uint32_t slot,
                         const struct vgpu_account_owner *owner) {
  struct vgpu_account *account = &accounts->slots[slot];
  /* Clears everything: the next session belongs to another guest. */
  memset(account, 0, offsetof(struct vgpu_account, memory_refused) + sizeof account->memory_refused);
  account->denied = -1;
  accounts->owners[slot] = *owner;
  struct vgpu_chosen_devices *devices = &accounts->owners[slot].devices;
  if (devices->count == 0) {
    devices->count = accounts->device_count;
    for (uint32_t i = 0; i < devices->count; i++) devices->index[i] = (uint8_t)i;
  }
  if (slot >= accounts->slots_begun) __atomic_store_n(&accounts->slots_begun, slot + 1, __ATOMIC_RELEASE);
}

void vgpu_accounts_end(struct vgpu_accounts *accounts, uint32_t slot) {
  struct vgpu_account *account = &accounts->slots[slot];
  memset(account->used, 0, sizeof account->used);
  memset(account->driver, 0, sizeof account->driver);
  memset(account->contexts, 0, sizeof account->contexts);
  __atomic_store_n(&account->held, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&accounts->owners[slot].pid, 0, __ATOMIC_RELEASE);
  vgpu_share_end(accounts, slot);
}

uint64_t vgpu_accounts_newest(const struct vgpu_accounts *accounts, uint32_t slot) {
  const uint32_t slots = vgpu_accounts_slots(accounts);
  uint64_t newest = 0;
  for (uint32_t i = 0; i < slots; i++) {
    const struct vgpu_account_owner *owner = &accounts->owners[i];
    uint64_t session = load(&owner->session);
    if (owner->peer_pid == accounts->owners[slot].peer_pid && session > newest) newest = session;
  }
  return newest;
}

const struct vgpu_account_owner *vgpu_accounts_owner(const struct vgpu_accounts *accounts,
                                                     const struct vgpu_peer *peer, int32_t pid) {
  const uint32_t slots = vgpu_accounts_slots(accounts);
  for (uint32_t i = 0; pid != 0 && i < slots; i++) {
    const struct vgpu_account_owner *owner = &accounts->owners[i];
    if (__atomic_load_n(&owner->pid, __ATOMIC_ACQUIRE) == pid && owner->peer.kind == peer->kind &&
        owner->peer.id == peer->id)
      return owner;
  }
  return NULL;
}

uint32_t vgpu_accounts_slots(const struct vgpu_accounts *accounts) {
  return __atomic_load_n(&accounts->slots_begun, __ATOMIC_ACQUIRE);
}

uint32_t vgpu_accounts_device(const struct vgpu_accounts *accounts, uint32_t slot, uint32_t device) {
  return accounts->owners[slot].devices.index[device];
}

uint64_t vgpu_account_bytes(const struct vgpu_account *account, uint32_t device) {
  return load(&account->used[device]) + load(&account->driver[device]);
}

uint64_t vgpu_accounts_used(const struct vgpu_accounts *accounts, uint32_t device) {
  uint64_t used = 0;
  uint32_t slots = vgpu_accounts_slots(accounts);
  for (uint32_t i = 0; i < slots; i++) used += vgpu_account_bytes(&accounts->slots[i], device);
  return used < accounts->total[device] ? used : accounts->total[device];
}

static uint64_t session_used(const struct vgpu_accounts *accounts, uint32_t slot) {
  uint64_t used = 0;
  for (uint32_t i = 0; i < accounts->device_count; i++) used += vgpu_account_bytes(&accounts->slots[slot], i);
  return used;
}

static uint64_t peer_used(const struct vgpu_accounts *accounts, const struct vgpu_peer *peer) {
  uint64_t used = 0;
  uint32_t slots = vgpu_accounts_slots(accounts);
  for (uint32_t i = 0; i < slots; i++) {
    const struct vgpu_peer *other = &accounts->owners[i].peer;
    if (other->kind != peer->kind || other->id != peer->id) continue;
    used += session_used(accounts, i) + load(&accounts->slots[i].held);
  }
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
  const struct vgpu_account_owner *owner = &accounts->owners[slot];
  device = vgpu_accounts_device(accounts, slot, device);
  uint64_t total = accounts->total[device];
  const uint64_t used = vgpu_accounts_used(accounts, device);
  struct vgpu_room room = {.total = total, .free = used < total ? total - used : 0};
  narrow(&room, session_limit, session_used(accounts, slot));
  if (owner->peer_memory != 0) narrow(&room, owner->peer_memory, peer_used(accounts, &owner->peer));
  return room;
}

void vgpu_accounts_refused(struct vgpu_accounts *accounts, uint32_t slot,
                           const struct vgpu_refused_memory *refused) {
  struct vgpu_refused_memory *memory = &accounts->slots[slot].memory_refused;
  memory->bytes = refused->bytes;
  memory->limit = refused->limit;
  memory->free = refused->free;
  memory->by = refused->by;
  __atomic_store_n(&memory->at, vgpu_now_ms(), __ATOMIC_RELAXED);
  __atomic_store_n(&memory->count, memory->count + 1, __ATOMIC_RELEASE);
}

/* Returns the limit that refuses `bytes` more (0: none), and fills `refused`. */
static uint32_t keeps_from(uint64_t bytes, uint64_t limit, uint64_t used, uint32_t by,
                           struct vgpu_refused_memory *refused) {
  uint64_t left = used < limit ? limit - used : 0;
  if (bytes <= left) return VGPU_MEMORY_LIMIT_NONE;
  *refused = (struct vgpu_refused_memory){.bytes = bytes, .limit = limit, .free = left, .by = by};
  return by;
}

/* Checks all limits of a slot. `counted`: bytes of the request that are already in the slot's use. */
static uint32_t limit_of(const struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes,
                         uint64_t session_limit, uint64_t counted, struct vgpu_refused_memory *refused) {
  const struct vgpu_account_owner *owner = &accounts->owners[slot];
  uint32_t by = VGPU_MEMORY_LIMIT_NONE;
  /* Reports the administrator's limit before a full device: the administrator can change it. */
  if (owner->peer_memory != 0)
    by = keeps_from(bytes, owner->peer_memory, peer_used(accounts, &owner->peer) - counted,
                    VGPU_MEMORY_LIMIT_GUEST, refused);
  if (by == VGPU_MEMORY_LIMIT_NONE && session_limit != 0)
    by = keeps_from(bytes, session_limit, session_used(accounts, slot) - counted, VGPU_MEMORY_LIMIT_SESSION,
                    refused);
  if (by == VGPU_MEMORY_LIMIT_NONE)
    by = keeps_from(bytes, accounts->total[device], vgpu_accounts_used(accounts, device) - counted,
                    VGPU_MEMORY_LIMIT_DEVICE, refused);
  return by;
}

/*
 * Adds the bytes, then takes them back if the sum exceeds a limit. No lock: a worker that was taken over
 * could keep one. Two sessions that want the last bytes at the same time may both be refused, but never both
 * served.
 */
static bool try_to_take(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes,
                        uint64_t session_limit, struct vgpu_refused_memory *refused) {
  uint64_t *used = &accounts->slots[slot].used[device];
  bool room = limit_of(accounts, slot, device, bytes, session_limit, 0, refused) == VGPU_MEMORY_LIMIT_NONE;
  if (room) {
    __atomic_add_fetch(used, bytes, __ATOMIC_SEQ_CST);
    room = limit_of(accounts, slot, device, bytes, session_limit, bytes, refused) == VGPU_MEMORY_LIMIT_NONE;
    if (!room) __atomic_sub_fetch(used, bytes, __ATOMIC_RELAXED);
  }
  return room;
}

static struct {
  void (*correct)(void *context);
  void *context;
} before_refusal;

void vgpu_accounts_before_refusal(void (*correct)(void *context), void *context) {
  before_refusal.correct = correct;
  before_refusal.context = context;
}

bool vgpu_accounts_take_uncorrected(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device,
                                    uint64_t bytes, uint64_t session_limit) {
  struct vgpu_refused_memory refused;
  device = vgpu_accounts_device(accounts, slot, device);
  if (try_to_take(accounts, slot, device, bytes, session_limit, &refused)) return true;
  vgpu_accounts_refused(accounts, slot, &refused);
  return false;
}

bool vgpu_accounts_take(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes,
                        uint64_t session_limit) {
  struct vgpu_refused_memory refused;
  const uint32_t place = vgpu_accounts_device(accounts, slot, device);
  if (try_to_take(accounts, slot, place, bytes, session_limit, &refused)) return true;
  if (before_refusal.correct != NULL) before_refusal.correct(before_refusal.context);
  return vgpu_accounts_take_uncorrected(accounts, slot, device, bytes, session_limit);
}

void vgpu_accounts_correct(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes) {
  device = vgpu_accounts_device(accounts, slot, device);
  struct vgpu_account *account = &accounts->slots[slot];
  const uint64_t used = load(&account->used[device]);
  __atomic_store_n(&account->driver[device], bytes > used ? bytes - used : 0, __ATOMIC_RELAXED);
}

bool vgpu_accounts_hold(struct vgpu_accounts *accounts, uint32_t slot, uint64_t held) {
  const struct vgpu_account_owner *owner = &accounts->owners[slot];
  uint64_t *place = &accounts->slots[slot].held;
  const uint64_t before = load(place);
  if (held == before) return true;
  /* Counted before the check, as in try_to_take(). */
  __atomic_store_n(place, held, __ATOMIC_SEQ_CST);
  if (owner->peer_memory == 0 || held < before) return true;
  const uint64_t others = peer_used(accounts, &owner->peer) - (held - before);
  struct vgpu_refused_memory refused;
  if (keeps_from(held - before, owner->peer_memory, others, VGPU_MEMORY_LIMIT_GUEST, &refused) ==
      VGPU_MEMORY_LIMIT_NONE)
    return true;
  __atomic_store_n(place, before, __ATOMIC_RELAXED);
  vgpu_accounts_refused(accounts, slot, &refused);
  return false;
}

void vgpu_accounts_give(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, uint64_t bytes) {
  /* No lock: only this worker writes its slot, and a lower number makes no check fail. */
  uint64_t *used = &accounts->slots[slot].used[vgpu_accounts_device(accounts, slot, device)];
  __atomic_sub_fetch(used, bytes, __ATOMIC_RELAXED);
}

void vgpu_accounts_context(struct vgpu_accounts *accounts, uint32_t slot, uint32_t device, int32_t more) {
  uint32_t *contexts = &accounts->slots[slot].contexts[vgpu_accounts_device(accounts, slot, device)];
  __atomic_add_fetch(contexts, (uint32_t)more, __ATOMIC_RELAXED);
}
