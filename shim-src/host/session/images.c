#include "host/session/images.h"
#include "host/session/shared_lock.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire/shared.h"

#define PLACES 4096u

struct place {
  struct vgpu_peer peer;
  struct vgpu_hash hash;
  uint64_t offset;
  uint64_t size; /* 0: free */
};

/* Shared memory: a worker that was taken over could write anything here. */
struct table {
  struct vgpu_shared_lock lock; /* taken by workers only */
  uint32_t torn;                /* a worker ended in the middle of a change */
  uint64_t next;                /* offset of the next image; the memory is used as a ring */
  struct place places[PLACES];
  unsigned char bytes[];
};

struct vgpu_images {
  struct table *table;
  uint64_t capacity;
};

struct vgpu_images *vgpu_images_map(int descriptor, uint64_t capacity) {
  struct vgpu_images *images = malloc(sizeof *images);
  if (images == NULL) return NULL;
  images->capacity = capacity;
  images->table = vgpu_shared_map(descriptor, sizeof *images->table + capacity);
  if (images->table != NULL) return images;
  free(images);
  return NULL;
}

struct vgpu_images *vgpu_images_make(uint64_t capacity, int *descriptor) {
  *descriptor = vgpu_shared_make("vgpu-images", sizeof(struct table) + capacity);
  if (*descriptor < 0) return NULL;
  struct vgpu_images *images = vgpu_images_map(*descriptor, capacity);
  if (images == NULL) close(*descriptor);
  return images;
}

void vgpu_images_end(struct vgpu_images *images, uint32_t slot) {
  if (images != NULL && vgpu_shared_lock_abandon(&images->table->lock, slot))
    __atomic_store_n(&images->table->torn, 1, __ATOMIC_RELEASE);
}

/* False: a worker that has stopped keeps the lock. The cache is not used then. */
static bool lock(struct table *table, uint32_t slot) {
  if (!vgpu_shared_lock_take(&table->lock, slot)) return false;
  if (__atomic_exchange_n(&table->torn, 0, __ATOMIC_ACQ_REL) != 0) {
    for (uint32_t i = 0; i < PLACES; i++) table->places[i].size = 0;
  }
  return true;
}

static bool sound(const struct place *place, uint64_t capacity) {
  return place->size != 0 && place->offset <= capacity && place->size <= capacity - place->offset;
}

static struct place *find(struct table *table, const struct vgpu_peer *peer, const struct vgpu_hash *hash,
                          uint64_t size) {
  for (uint32_t i = 0; i < PLACES; i++) {
    struct place *place = &table->places[i];
    if (place->size == size && place->peer.kind == peer->kind && place->peer.id == peer->id &&
        memcmp(&place->hash, hash, sizeof *hash) == 0) {
      return place;
    }
  }
  return NULL;
}

unsigned char *vgpu_images_get(struct vgpu_images *images, uint32_t slot, const struct vgpu_peer *peer,
                               const struct vgpu_hash *hash, uint64_t size) {
  if (images == NULL || size == 0 || !lock(images->table, slot)) return NULL;
  struct table *table = images->table;
  struct place *found = find(table, peer, hash, size);
  struct place place = found == NULL ? (struct place){0} : *found;
  unsigned char *copy = NULL;
  if (sound(&place, images->capacity)) copy = malloc(size);
  if (copy != NULL) memcpy(copy, table->bytes + place.offset, size);
  vgpu_shared_lock_give(&table->lock);
  if (copy == NULL) return NULL;
  struct vgpu_hash made;
  vgpu_sha256(copy, size, &made);
  if (memcmp(&made, hash, sizeof made) == 0) return copy;
  free(copy);
  return NULL;
}

/*
 * Removes images whose bytes are in [start, end). Returns a free place, or the place of the image that comes
 * next in the ring.
 */
static struct place *make_room(struct table *table, uint64_t start, uint64_t end) {
  struct place *unused = NULL, *oldest = &table->places[0];
  for (uint32_t i = 0; i < PLACES; i++) {
    struct place *place = &table->places[i];
    if (place->size != 0 && place->offset < end && place->offset + place->size > start) place->size = 0;
    if (place->size == 0) unused = place;
    else if (place->offset - end < oldest->offset - end) oldest = place;
  }
  return unused != NULL ? unused : oldest;
}

void vgpu_images_put(struct vgpu_images *images, uint32_t slot, const struct vgpu_peer *peer,
                     const struct vgpu_hash *hash, const void *bytes, uint64_t size) {
  if (images == NULL || size == 0 || !lock(images->table, slot)) return;
  struct table *table = images->table;
  uint64_t capacity = images->capacity, next = __atomic_load_n(&table->next, __ATOMIC_RELAXED);
  if (size <= capacity && find(table, peer, hash, size) == NULL) {
    uint64_t start = next <= capacity && size <= capacity - next ? next : 0;
    struct place *place = make_room(table, start, start + size);
    memcpy(table->bytes + start, bytes, size);
    *place = (struct place){.peer = *peer, .hash = *hash, .offset = start, .size = size};
    table->next = (start + size + 63) & ~63ull;
  }
  vgpu_shared_lock_give(&table->lock);
}
