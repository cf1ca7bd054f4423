#include "host/daemon/sessions.h"

#include <stdlib.h>
#include <string.h>

#include "wire/clock.h"

int vgpu_sessions_free_slot(const struct vgpu_sessions *sessions) {
  for (uint32_t i = 0; i < sessions->limit; i++) {
    if (sessions->entries[i].pid == 0) return (int)i;
  }
  return -1;
}

uint32_t vgpu_sessions_count(const struct vgpu_sessions *sessions) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) count += sessions->entries[i].pid != 0;
  return count;
}

uint32_t vgpu_sessions_of_peer(const struct vgpu_sessions *sessions, const struct vgpu_peer *peer) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    const struct vgpu_session_entry *entry = &sessions->entries[i];
    if (entry->pid != 0 && vgpu_peer_same(&entry->peer, peer)) count++;
  }
  return count;
}

static uint64_t load(const uint64_t *value) {
  return __atomic_load_n(value, __ATOMIC_RELAXED);
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
  };
  for (uint32_t i = 0; i < devices; i++) facts.memory += load(&account->used[i]);
  for (size_t i = 0; i + 1 < sizeof facts.program && entry->hello.program[i] != '\0'; i++) {
    char c = entry->hello.program[i];
    facts.program[i] = c < ' ' || c > '~' ? '?' : c;
  }
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
