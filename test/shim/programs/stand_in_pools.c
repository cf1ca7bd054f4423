/*
 * The stand-in driver's `pools` (stand_in_driver.c): freed memory stays in its pool.
 */
#include <pthread.h>
#include <stdlib.h>

#include "stand_in.h"

EXPORT int cuMemPoolCreate(void **pool, const void *properties);
EXPORT int cuDeviceGetDefaultMemPool(void **pool, int device);
EXPORT int cuMemPoolDestroy(void *pool);
EXPORT int cuMemPoolGetAttribute(void *pool, int attribute, void *value);
EXPORT int cuMemPoolSetAttribute(void *pool, int attribute, void *value);
EXPORT uint64_t stand_in_pool_bytes(void);

enum { RELEASE_THRESHOLD = 4, RESERVED_CURRENT = 5 };

static struct {
  void *pool; /* NULL: the place is free */
  uint64_t threshold;
} pools[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const void *pool) {
  size_t i = 0;
  while (i < sizeof pools / sizeof *pools && pools[i].pool != pool) i++;
  return i;
}

/* Makes the library behind keep freed memory, which it would release at once. */
static int adopt(void *pool) {
  uint64_t everything = UINT64_MAX;
  int result = 0;
  if (word("pools") == NULL) return result;
  pthread_mutex_lock(&lock);
  const size_t known = place_of(pool), place = place_of(NULL);
  if (known == sizeof pools / sizeof *pools && place < known) {
    pools[place].pool = pool;
    pools[place].threshold = 0;
    result =
        NEXT(int (*)(void *, int, void *), "cuMemPoolSetAttribute")(pool, RELEASE_THRESHOLD, &everything);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

int cuMemPoolCreate(void **pool, const void *properties) {
  int result = NEXT(int (*)(void **, const void *), "cuMemPoolCreate")(pool, properties);
  return result == 0 ? adopt(*pool) : result;
}

int cuDeviceGetDefaultMemPool(void **pool, int device) {
  int result = NEXT(int (*)(void **, int), "cuDeviceGetDefaultMemPool")(pool, device);
  return result == 0 ? adopt(*pool) : result;
}

int cuMemPoolDestroy(void *pool) {
  await_device();
  pthread_mutex_lock(&lock);
  const size_t place = place_of(pool);
  if (place < sizeof pools / sizeof *pools) pools[place].pool = NULL;
  pthread_mutex_unlock(&lock);
  return NEXT(int (*)(void *), "cuMemPoolDestroy")(pool);
}

int cuMemPoolGetAttribute(void *pool, int attribute, void *value) {
  const char *text = word("units");
  int result = NEXT(int (*)(void *, int, void *), "cuMemPoolGetAttribute")(pool, attribute, value);
  if (result == 0 && attribute == RESERVED_CURRENT && text != NULL) {
    const uint64_t unit = strtoull(text, NULL, 10) << 20;
    *(uint64_t *)value = (*(uint64_t *)value + unit - 1) / unit * unit;
  }
  return result;
}

int cuMemPoolSetAttribute(void *pool, int attribute, void *value) {
  int result = 0;
  pthread_mutex_lock(&lock);
  const size_t place = place_of(pool);
  const bool ours = attribute == RELEASE_THRESHOLD && place < sizeof pools / sizeof *pools;
  if (ours) pools[place].threshold = *(uint64_t *)value;
  else result = NEXT(int (*)(void *, int, void *), "cuMemPoolSetAttribute")(pool, attribute, value);
  pthread_mutex_unlock(&lock);
  return result;
}

void release_pools(void) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
    if (pools[i].pool != NULL)
      NEXT(int (*)(void *, size_t), "cuMemPoolTrimTo")(pools[i].pool, pools[i].threshold);
  pthread_mutex_unlock(&lock);
}

/* Bytes of all pools, for the stand-in for NVML in the same process. */
uint64_t stand_in_pool_bytes(void) {
  uint64_t sum = 0;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
    uint64_t bytes = 0;
    if (pools[i].pool != NULL) cuMemPoolGetAttribute(pools[i].pool, RESERVED_CURRENT, &bytes);
    sum += bytes;
  }
  pthread_mutex_unlock(&lock);
  return sum;
}
