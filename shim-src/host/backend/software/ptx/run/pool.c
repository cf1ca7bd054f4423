#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "host/backend/software/ptx/run/grid.h"

struct ptx_pool {
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  pthread_t *threads;
  uint32_t count, running;
  uint64_t job; /* counts launches */
  struct launch_state *launch;
  bool end;
};

static void *helper(void *argument) {
  struct ptx_pool *pool = argument;
  uint64_t seen = 0;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (!pool->end && (pool->job == seen || pool->launch == NULL))
      pthread_cond_wait(&pool->work, &pool->lock);
    if (pool->end) break;
    seen = pool->job;
    struct launch_state *l = pool->launch;
    pool->running++;
    pthread_mutex_unlock(&pool->lock);
    ptx_grid_work(l, true);
    pthread_mutex_lock(&pool->lock);
    if (--pool->running == 0) pthread_cond_broadcast(&pool->done);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

struct ptx_pool *ptx_pool_new(uint32_t helpers) {
  struct ptx_pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL) return NULL;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_condattr_t steady;
  pthread_condattr_init(&steady);
  pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
  pthread_cond_init(&pool->done, &steady);
  pthread_condattr_destroy(&steady);
  pool->threads = calloc(helpers == 0 ? 1 : helpers, sizeof *pool->threads);
  for (uint32_t i = 0; pool->threads != NULL && i < helpers; i++) {
    if (pthread_create(&pool->threads[i], NULL, helper, pool) != 0) break;
    pool->count++;
  }
  return pool;
}

void ptx_pool_free(struct ptx_pool *pool) {
  if (pool == NULL) return;
  pthread_mutex_lock(&pool->lock);
  pool->end = true;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (uint32_t i = 0; i < pool->count; i++) pthread_join(pool->threads[i], NULL);
  pthread_mutex_destroy(&pool->lock);
  pthread_cond_destroy(&pool->work);
  pthread_cond_destroy(&pool->done);
  free(pool->threads);
  free(pool);
}

void ptx_pool_begin(struct ptx_pool *pool, struct launch_state *l) {
  pthread_mutex_lock(&pool->lock);
  pool->launch = l;
  pool->job++;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
}

/* Waits until a helper is done, and serves others meanwhile. */
static void wait_for_helpers(struct ptx_pool *pool, const struct ptx_launch *launch) {
  if (launch->serve == NULL) {
    pthread_cond_wait(&pool->done, &pool->lock);
    return;
  }
  uint64_t until = ptx_now() + PTX_SERVE_NS;
  struct timespec at = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
  if (pthread_cond_timedwait(&pool->done, &pool->lock, &at) != ETIMEDOUT) return;
  pthread_mutex_unlock(&pool->lock);
  launch->serve(launch->user);
  pthread_mutex_lock(&pool->lock);
}

void ptx_pool_end(struct ptx_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  const struct ptx_launch *launch = pool->launch->launch;
  pool->launch = NULL; /* helpers that have not begun need not */
  while (pool->running > 0) wait_for_helpers(pool, launch);
  pthread_mutex_unlock(&pool->lock);
}

uint32_t ptx_pool_count(const struct ptx_pool *pool) {
  return pool == NULL ? 0 : pool->count;
}
