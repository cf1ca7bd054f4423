#include "host/backend/common/images.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PLACES 4096u

struct place {
  struct vgpu_peer peer; /* whose it is */
  struct vgpu_hash hash;
  uint64_t offset;
  uint64_t size; /* 0: free */
};

struct vgpu_images {
  pthread_mutex_t lock; /* robust, between processes; only workers take it */
  uint64_t capacity;
  uint64_t next; /* where the next image goes: the bytes are used round and round */
  struct place places[PLACES];
  unsigned char bytes[];
};

struct vgpu_images *vgpu_images_make(uint64_t capacity) {
  struct vgpu_images *images = mmap(NULL, sizeof *images + capacity, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (images == MAP_FAILED) return NULL;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&images->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  images->capacity = capacity;
  return images;
}

/* A worker that was stopped while it held the lock must not stop the others. */
static bool lock(struct vgpu_images *images) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  int result = pthread_mutex_timedlock(&images->lock, &until);
  if (result == EOWNERDEAD) {
    /* It died in the middle of a change: forget everything. */
    for (uint32_t i = 0; i < PLACES; i++) images->places[i].size = 0;
    pthread_mutex_consistent(&images->lock);
    result = 0;
  }
  return result == 0;
}

/* `capacity` as told when the table was made could be overwritten too: everything is checked again. */
static bool sound(const struct vgpu_images *images, const struct place *place, uint64_t capacity) {
  return place->size != 0 && place->offset <= capacity && place->size <= capacity - place->offset &&
         images->capacity == capacity;
}

static struct place *find(struct vgpu_images *images, const struct vgpu_peer *peer,
                          const struct vgpu_hash *hash, uint64_t size) {
  for (uint32_t i = 0; i < PLACES; i++) {
    struct place *place = &images->places[i];
    if (place->size == size && place->peer.kind == peer->kind && place->peer.id == peer->id &&
        memcmp(&place->hash, hash, sizeof *hash) == 0) {
      return place;
    }
  }
  return NULL;
}

unsigned char *vgpu_images_get(struct vgpu_images *images, const struct vgpu_peer *peer,
                               const struct vgpu_hash *hash, uint64_t size) {
  if (images == NULL || size == 0 || !lock(images)) return NULL;
  uint64_t capacity = images->capacity;
  struct place *found = find(images, peer, hash, size);
  struct place place = found == NULL ? (struct place){0} : *found;
  unsigned char *copy = NULL;
  if (sound(images, &place, capacity)) copy = malloc(size);
  if (copy != NULL) memcpy(copy, images->bytes + place.offset, size);
  pthread_mutex_unlock(&images->lock);
  if (copy == NULL) return NULL;
  struct vgpu_hash made;
  vgpu_sha256(copy, size, &made);
  if (memcmp(&made, hash, sizeof made) == 0) return copy;
  free(copy);
  return NULL;
}

/* Forgets images whose bytes lie in [start, end); gives a free place, or the one whose bytes come next. */
static struct place *make_room(struct vgpu_images *images, uint64_t start, uint64_t end) {
  struct place *unused = NULL, *oldest = &images->places[0];
  for (uint32_t i = 0; i < PLACES; i++) {
    struct place *place = &images->places[i];
    if (place->size != 0 && place->offset < end && place->offset + place->size > start) place->size = 0;
    if (place->size == 0) unused = place;
    else if (place->offset - end < oldest->offset - end) oldest = place; /* nearest ahead, going round */
  }
  return unused != NULL ? unused : oldest;
}

void vgpu_images_put(struct vgpu_images *images, const struct vgpu_peer *peer, const struct vgpu_hash *hash,
                     const void *bytes, uint64_t size) {
  if (images == NULL || size == 0 || !lock(images)) return;
  uint64_t capacity = images->capacity;
  if (size <= capacity && find(images, peer, hash, size) == NULL) {
    uint64_t start = images->next <= capacity && size <= capacity - images->next ? images->next : 0;
    struct place *place = make_room(images, start, start + size);
    memcpy(images->bytes + start, bytes, size);
    *place = (struct place){.peer = *peer, .hash = *hash, .offset = start, .size = size};
    images->next = (start + size + 63) & ~63ull;
  }
  pthread_mutex_unlock(&images->lock);
}
