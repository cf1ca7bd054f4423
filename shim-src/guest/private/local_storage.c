#include "guest/private/local_storage.h"

#include "guest/reentry.h"
#include "guest/private/core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

struct entry {
  struct entry *next;
  void *context;
  void *key;
  void *value;
  vgpu_local_destructor destructor;
};

/* A list: a process has few contexts, and one key for each copy of the runtime. */
struct store {
  unsigned process; /* vgpu_private_core_generation() of the process it belongs to */
  pthread_mutex_t lock;
  struct entry *entries;
};

/*
 * The store of this process, not of a session: it outlives a lost host. A forked child gets a store of its
 * own, because the parent's may be locked.
 */
static _Atomic(struct store *) current;

/* The runtime asks in each of its calls. Each thread keeps its last answer, valid until `changes` changes. */
static atomic_ulong changes = 1;
static _Thread_local struct {
  unsigned long changes; /* 0: none kept */
  void *context;
  void *key;
  void *value;
} last;

static void context_destroyed(void *context);

static struct store *store_of_process(void) {
  unsigned process = vgpu_private_core_generation();
  struct store *store = atomic_load_explicit(&current, memory_order_acquire);

  if (store && store->process == process) {
    return store;
  }
  struct store *fresh = calloc(1, sizeof *fresh);
  if (!fresh) {
    return NULL;
  }
  fresh->process = process;
  pthread_mutex_init(&fresh->lock, NULL);
  if (!atomic_compare_exchange_strong(&current, &store, fresh)) {
    free(fresh); /* another thread was faster; `store` is its store */
    return store;
  }
  atomic_fetch_add(&changes, 1);
  vgpu_private_core_on_destroyed(context_destroyed);
  return fresh;
}

static int resolve(void **context) {
  if (*context) {
    return VGPU_PRIVATE_SUCCESS;
  }
  int result = vgpu_private_core_current(context);
  if (result != VGPU_PRIVATE_SUCCESS) {
    return result;
  }
  return *context ? VGPU_PRIVATE_SUCCESS : VGPU_PRIVATE_INVALID_CONTEXT;
}

static struct entry **find(struct store *store, const void *context, const void *key) {
  struct entry **at = &store->entries;

  while (*at && ((*at)->context != context || (*at)->key != key)) {
    at = &(*at)->next;
  }
  return at;
}

/* The runtime calls these functions directly, not through an entry point. */
static bool enter(struct store *store) {
  if (!vgpu_enter()) {
    return false;
  }
  pthread_mutex_lock(&store->lock);
  return true;
}

static void leave(struct store *store) {
  pthread_mutex_unlock(&store->lock);
  vgpu_leave();
}

int vgpu_local_put(void *context, void *key, void *value, vgpu_local_destructor destructor) {
  int result = resolve(&context);
  if (result != VGPU_PRIVATE_SUCCESS) {
    return result;
  }
  struct store *store = store_of_process();
  struct entry *fresh = store ? malloc(sizeof *fresh) : NULL;
  if (!fresh) {
    return VGPU_PRIVATE_OUT_OF_MEMORY;
  }

  if (!enter(store)) {
    free(fresh);
    return VGPU_PRIVATE_DEINITIALIZED;
  }
  struct entry **at = find(store, context, key);
  if (*at) {
    (*at)->value = value;
    (*at)->destructor = destructor;
  } else {
    *fresh = (struct entry){store->entries, context, key, value, destructor};
    store->entries = fresh;
    fresh = NULL;
  }
  atomic_fetch_add_explicit(&changes, 1, memory_order_release);
  leave(store);
  free(fresh);
  return VGPU_PRIVATE_SUCCESS;
}

int vgpu_local_delete(void *context, void *key) {
  int result = resolve(&context);
  if (result != VGPU_PRIVATE_SUCCESS) {
    return result;
  }
  struct store *store = store_of_process();
  if (!store) {
    return VGPU_PRIVATE_OUT_OF_MEMORY;
  }

  if (!enter(store)) {
    return VGPU_PRIVATE_DEINITIALIZED;
  }
  struct entry **at = find(store, context, key);
  struct entry *gone = *at;
  if (gone) {
    *at = gone->next;
    atomic_fetch_add_explicit(&changes, 1, memory_order_release);
  }
  leave(store);
  free(gone);
  return VGPU_PRIVATE_SUCCESS;
}

int vgpu_local_get(void **value, void *context, void *key) {
  if (!value) {
    return VGPU_PRIVATE_INVALID_VALUE;
  }
  int result = resolve(&context);
  if (result != VGPU_PRIVATE_SUCCESS) {
    return result;
  }
  struct store *store = store_of_process();
  if (!store) {
    return VGPU_PRIVATE_OUT_OF_MEMORY;
  }

  unsigned long now = atomic_load_explicit(&changes, memory_order_acquire);
  if (last.changes == now && last.context == context && last.key == key) {
    *value = last.value;
    return VGPU_PRIVATE_SUCCESS;
  }

  if (!enter(store)) {
    return VGPU_PRIVATE_DEINITIALIZED;
  }
  struct entry *entry = *find(store, context, key);
  if (entry) {
    *value = entry->value;
    last.changes = atomic_load_explicit(&changes, memory_order_relaxed);
    last.context = context;
    last.key = key;
    last.value = entry->value;
  }
  leave(store);
  if (entry) return VGPU_PRIVATE_SUCCESS;
  return vgpu_private_core_active(context) ? VGPU_PRIVATE_INVALID_HANDLE : VGPU_PRIVATE_INVALID_CONTEXT;
}

static void context_destroyed(void *context) {
  struct store *store = store_of_process();
  struct entry *gone = NULL;

  if (!store) {
    return;
  }
  pthread_mutex_lock(&store->lock);
  for (struct entry **at = &store->entries; *at;) {
    struct entry *entry = *at;
    if (entry->context != context) {
      at = &entry->next;
      continue;
    }
    *at = entry->next;
    entry->next = gone;
    gone = entry;
  }
  if (gone) {
    atomic_fetch_add_explicit(&changes, 1, memory_order_release);
  }
  pthread_mutex_unlock(&store->lock);

  /* The lock is not held: a destructor may call put, get or delete. */
  while (gone) {
    struct entry *entry = gone;
    gone = entry->next;
    if (entry->destructor) {
      entry->destructor(context, entry->key, entry->value);
    }
    free(entry);
  }
}
