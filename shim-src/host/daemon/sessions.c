#include "host/daemon/sessions.h"

#include <stdlib.h>
#include <string.h>

#include "wire/clock.h"

static bool is_taken(const struct vgpu_session_entry *entry) {
  return entry->pid != 0 || entry->begins;
}

int vgpu_sessions_free_slot(const struct vgpu_sessions *sessions) {
  for (uint32_t i = 0; i < sessions->limit; i++) {
    if (!is_taken(&sessions->entries[i])) return (int)i;
  }
  return -1;
}

uint32_t vgpu_sessions_count(const struct vgpu_sessions *sessions) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) count += is_taken(&sessions->entries[i]);
  return count;
}

uint32_t vgpu_sessions_of_peer(const struct vgpu_sessions *sessions, const struct vgpu_peer *peer) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    const struct vgpu_session_entry *entry = &sessions->entries[i];
    if (is_taken(entry) && vgpu_peer_same(&entry->peer, peer)) count++;
  }
  return count;
}

static uint64_t load(const uint64_t *value) {
  return __atomic_load_n(value, __ATOMIC_RELAXED);
}

/* Writes printable ASCII, padded with zeros to `size` (of both). */
static void copy_plain(char *to, const char *from, size_t size) {
  memset(to, 0, size);
  for (size_t i = 0; i + 1 < size && from[i] != '\0'; i++)
    to[i] = from[i] < ' ' || from[i] > '~' ? '?' : from[i];
}

static struct vgpu_session_facts facts_of(const struct vgpu_session_entry *entry,
                                          const struct vgpu_account *account, uint32_t devices) {
  struct vgpu_session_facts facts = {
      .session = entry->session,
      .age = (uint64_t)(vgpu_now_ms() - entry->began),
      .launches = load(&account->launches),
      .calls = load(&account->calls),
      .refused = load(&account->refused),
      .last_refusal = __atomic_load_n(&account->last_refusal, __ATOMIC_RELAXED),
      .library = entry->hello.library,
      .pid = entry->hello.pid,
      .pid_namespace = entry->hello.pid_namespace,
      .carrier = __atomic_load_n(&account->carrier, __ATOMIC_RELAXED),
  };
  for (uint32_t i = 0; i < devices; i++) facts.memory += load(&account->used[i]);
  copy_plain(facts.program, entry->hello.program, sizeof facts.program);
  return facts;
}

static int by_session(const void *one, const void *other) {
  const struct vgpu_session_facts *a = one, *b = other;
  return a->session < b->session ? -1 : a->session > b->session;
}

uint32_t vgpu_sessions_list(const struct vgpu_sessions *sessions, const struct vgpu_accounts *accounts,
                            const struct vgpu_peer *peer, struct vgpu_session_facts *facts) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    const struct vgpu_session_entry *entry = &sessions->entries[i];
    if (entry->pid == 0 || (peer != NULL && !vgpu_peer_same(&entry->peer, peer))) continue;
    facts[count++] = facts_of(entry, &accounts->slots[i], accounts->device_count);
  }
  qsort(facts, count, sizeof *facts, by_session);
  return count;
}

void vgpu_sessions_add_refused(const struct vgpu_session_entry *entry, const struct vgpu_account *account,
                               struct vgpu_refused_kernels *refused) {
  uint64_t count = __atomic_load_n(&account->kernels_refused, __ATOMIC_ACQUIRE);
  if (count == 0) return;
  refused->count += count;
  int64_t at = __atomic_load_n(&account->kernel_refused_at, __ATOMIC_RELAXED), now = vgpu_now_ms();
  if (at > now) at = now;
  if (at < refused->at) return;
  refused->at = at;
  copy_plain(refused->program, entry->hello.program, sizeof refused->program);
  copy_plain(refused->kernel, account->refused_kernel, sizeof refused->kernel);
}

void vgpu_sessions_add_refused_memory(const struct vgpu_session_entry *entry,
                                      const struct vgpu_account *account,
                                      struct vgpu_refused_to_peer *refused) {
  const struct vgpu_refused_memory *told = &account->memory_refused;
  uint64_t count = __atomic_load_n(&told->count, __ATOMIC_ACQUIRE);
  if (count == 0) return;
  uint64_t all = refused->last.count + count;
  int64_t at = __atomic_load_n(&told->at, __ATOMIC_RELAXED), now = vgpu_now_ms();
  if (at > now) at = now;
  if (at >= refused->last.at) {
    refused->last = (struct vgpu_refused_memory){.at = at,
                                                 .bytes = load(&told->bytes),
                                                 .limit = load(&told->limit),
                                                 .free = load(&told->free),
                                                 .by = __atomic_load_n(&told->by, __ATOMIC_RELAXED)};
    copy_plain(refused->program, entry->hello.program, sizeof refused->program);
  }
  refused->last.count = all;
}

struct vgpu_refused_to_peer vgpu_sessions_refused_memory(const struct vgpu_sessions *sessions,
                                                         const struct vgpu_accounts *accounts,
                                                         const struct vgpu_peer_record *record) {
  struct vgpu_refused_to_peer refused = record->memory;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    const struct vgpu_session_entry *entry = &sessions->entries[i];
    if (entry->pid == 0 || !vgpu_peer_same(&entry->peer, &record->peer)) continue;
    vgpu_sessions_add_refused_memory(entry, &accounts->slots[i], &refused);
  }
  return refused;
}

struct vgpu_refused_kernels vgpu_sessions_refused(const struct vgpu_sessions *sessions,
                                                  const struct vgpu_accounts *accounts,
                                                  const struct vgpu_peer_record *record) {
  struct vgpu_refused_kernels refused = record->refused;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    const struct vgpu_session_entry *entry = &sessions->entries[i];
    if (entry->pid == 0 || !vgpu_peer_same(&entry->peer, &record->peer)) continue;
    vgpu_sessions_add_refused(entry, &accounts->slots[i], &refused);
  }
  return refused;
}
