/* A grid: blocks given to threads in order, each block's warps in turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/alu/fpu.h"
#include "host/backend/software/ptx/run/warp.h"

#define SHARED_LIMIT (227u << 10)
#define STACK_LIMIT 1024u
#define FRAME_BYTES (256ull << 20) /* of a thread, beyond a cooperative grid's */
#define MAX_COOPERATIVE 4096u
#define MOST_EXTENT (1ull << 30)
#define SLICE 8u
#define TURN_NS 2000000u /* a thread's turn, where several launches share the processors */
#define HELP_NS 300000l  /* a helper that has no turn looks again */

struct ptx_pool {
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  pthread_t *threads;
  uint32_t count, running;
  uint64_t job; /* counts launches */
  struct launch_state *launch;
  bool end;
};

uint64_t ptx_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void free_block(struct block *block) {
  if (block == NULL) return;
  for (uint32_t i = 0; block->warps != NULL && i < block->warp_count; i++) {
    struct split *split = block->warps[i].made;
    while (split != NULL) {
      struct split *next = split->made;
      free(split);
      split = next;
    }
  }
  ptx_check_free(block->check);
  free(block->warps);
  free(block->shared_memory);
  free(block->local);
  free(block);
}

/* Room for one block of this launch; used again for the next one. */
static struct block *new_block(struct worker *worker) {
  struct launch_state *l = worker->launch;
  const uint32_t *size = l->launch->block;
  struct block *block = calloc(1, sizeof *block);
  if (block == NULL) return NULL;
  block->worker = worker;
  block->launch = l;
  block->cluster = &block->alone;
  block->alone = (struct cluster){.blocks = {block}, .count = 1};
  block->threads = size[0] * size[1] * size[2];
  block->warp_count = (block->threads + PTX_LANES - 1) / PTX_LANES;
  block->warps = calloc(block->warp_count, sizeof *block->warps);
  uint64_t local = (uint64_t)l->local_bytes * block->warp_count * PTX_LANES;
  /* What a thread reads before it wrote it is whatever was there: never another session's, so zeros at first.
   * Pages that nobody touches cost nothing. */
  block->shared_memory = calloc(1, l->shared_bytes + 128);
  if (block->shared_memory != NULL)
    block->shared = (unsigned char *)(((uintptr_t)block->shared_memory + 127) / 128 * 128);
  void *stack = NULL;
  if (local > 0 && posix_memalign(&stack, 64, local) != 0) stack = NULL;
  block->local = stack;
  if (l->launch->checks != 0) block->check = ptx_check_new(l, block->warp_count);
  if (block->warps == NULL || block->shared == NULL || (local > 0 && block->local == NULL) ||
      (l->launch->checks != 0 && block->check == NULL)) {
    free_block(block);
    return NULL;
  }
  if (local > 0) memset(block->local, 0, local);
  uint32_t place[3] = {0, 0, 0};
  for (uint32_t w = 0; w < block->warp_count; w++) {
    struct warp *warp = &block->warps[w];
    warp->block = block;
    warp->number = w;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
      uint32_t thread = w * PTX_LANES + lane;
      if (thread < block->threads) warp->exists |= 1u << lane;
      for (int k = 0; k < 3; k++) warp->tid[k][lane] = place[k];
      /* counted on: divisions were a third of what a small launch cost */
      if (++place[0] < size[0]) continue;
      place[0] = 0;
      if (++place[1] < size[1]) continue;
      place[1] = 0;
      place[2]++;
    }
  }
  return block;
}

/* The block with this rank of a cluster, which is one block where a launch has no clusters. */
static bool begin_block(struct block *block, uint64_t cluster, uint32_t rank) {
  struct launch_state *l = block->launch;
  for (int i = 0; i < 3; i++) {
    uint32_t along = l->launch->grid[i] / l->cluster[i];
    block->id[i] = (uint32_t)(cluster % along) * l->cluster[i] + rank % l->cluster[i];
    cluster /= along;
    rank /= l->cluster[i];
  }
  block->over = false;
  block->cluster->arrived = 0;
  block->live = block->threads;
  block->next_warp = 0;
  memset(block->barriers, 0, sizeof block->barriers);
  if (block->check != NULL) ptx_check_begin(block);
  uint32_t kernel = l->module->kernel_function[l->info - l->module->kernels];
  for (uint32_t w = 0; w < block->warp_count; w++) {
    struct warp *warp = &block->warps[w];
    warp->exited = 0;
    warp->leaf_count = warp->at = 0;
    warp->products = 0;
    memset(warp->launch_error, 0, sizeof warp->launch_error);
    warp->at_cluster = 0;
    struct frame *frame = ptx_new_frame(block->worker, kernel);
    if (frame == NULL) return false;
    struct split *root = ptx_new_split(warp, frame);
    if (root == NULL) return false;
    root->mask = warp->exists;
    warp->leaves[warp->leaf_count++] = root;
  }
  return true;
}

static void raise_in(struct block *block, enum ptx_status status, const char *text) {
  struct place at = {.warp = &block->warps[0], .worker = block->worker};
  ptx_raise(&at, status, 0, 0, text);
}

static bool late(const struct launch_state *l) {
  return l->deadline != 0 && ptx_now() > l->deadline;
}

/* After a while others may compute. */
static void give_way(struct worker *worker) {
  const struct ptx_launch *launch = worker->launch->launch;
  if (launch->turns == NULL) return;
  uint64_t used = ptx_now() - worker->turn;
  if (used < TURN_NS) return;
  launch->turns->leave(launch->user, used);
  launch->turns->enter(launch->user);
  worker->turn = ptx_now();
}

/* A helper begins only while there is something to help with. */
static bool wait_to_help(const struct launch_state *l) {
  const struct ptx_turns *turns = l->launch->turns;
  while (turns != NULL && !turns->try(l->launch->user)) {
    if (__atomic_load_n(&l->stop, __ATOMIC_RELAXED) != 0 ||
        __atomic_load_n(&l->next_block, __ATOMIC_RELAXED) >= l->blocks) {
      return false;
    }
    struct timespec nap = {.tv_nsec = HELP_NS};
    nanosleep(&nap, NULL);
  }
  return true;
}

static bool has_leaf(const struct block *block, enum split_state state) {
  for (uint32_t n = 0; n < block->warp_count; n++) {
    for (uint32_t k = 0; k < block->warps[n].leaf_count; k++) {
      if (block->warps[n].leaves[k]->state == state) return true;
    }
  }
  return false;
}

/* Every warp a turn. RUN_YIELD: there is more to do. RUN_BLOCKED: other blocks of the cluster have to. */
static enum run run_block(struct block *block) {
  bool progress = false;
  for (uint32_t n = 0; n < block->warp_count; n++) {
    struct warp *warp = &block->warps[n];
    if (warp->leaf_count == 0) continue;
    switch (ptx_run_warp(warp, SLICE)) {
      case RUN_FAULT:
        return RUN_FAULT;
      case RUN_YIELD:
        progress = true;
        give_way(block->worker);
        if (late(block->launch)) {
          raise_in(block, PTX_TIMEOUT, "the kernel ran longer than it may");
          return RUN_FAULT;
        }
        break;
      case RUN_DONE:
        progress = true;
        break;
      default:
        break;
    }
  }
  if (block->live == 0) return RUN_DONE;
  if (progress) return RUN_YIELD;
  /* Nobody could go on by itself; a barrier that opened meanwhile has made somebody ready. */
  if (has_leaf(block, SPLIT_READY)) return RUN_YIELD;
  if (ptx_release_waiting(block)) return RUN_YIELD;
  if (block->cluster->count > 1 && has_leaf(block, SPLIT_EVENT)) return RUN_BLOCKED;
  raise_in(block, PTX_TIMEOUT, "all threads of a block wait at barriers that can never open");
  return RUN_FAULT;
}

static void free_worker(struct worker *worker) {
  while (worker->made != NULL) {
    struct frame *next = worker->made->made;
    free(worker->made);
    worker->made = next;
  }
  free(worker->free_frames);
}

static void out_of_memory(struct launch_state *l) {
  pthread_mutex_lock(&l->lock);
  if (l->fault.status == PTX_OK) l->fault.status = PTX_OUT_OF_MEMORY;
  pthread_mutex_unlock(&l->lock);
  __atomic_store_n(&l->stop, 1, __ATOMIC_RELAXED);
}

static void run_in_turns(struct worker *worker) {
  /* Cooperative: every block that this thread has taken is resident, and gets turns. */
  struct launch_state *l = worker->launch;
  struct block *first = NULL, **last = &first;
  for (;;) {
    uint64_t number = __atomic_fetch_add(&l->next_block, 1, __ATOMIC_RELAXED);
    if (number >= l->blocks) break;
    struct block *block = new_block(worker);
    if (block == NULL || !begin_block(block, number, 0)) {
      free_block(block);
      out_of_memory(l);
      break;
    }
    *last = block;
    last = &block->next;
  }
  while (first != NULL && __atomic_load_n(&l->stop, __ATOMIC_RELAXED) == 0) {
    for (struct block **link = &first; *link != NULL;) {
      struct block *block = *link;
      enum run run = run_block(block);
      if (run == RUN_YIELD) {
        link = &block->next;
        continue;
      }
      *link = block->next;
      free_block(block);
    }
    if (first != NULL && late(l)) raise_in(first, PTX_TIMEOUT, "the kernel ran longer than it may");
  }
  while (first != NULL) {
    struct block *next = first->next;
    free_block(first);
    first = next;
  }
}

static void run_in_order(struct worker *worker) {
  struct launch_state *l = worker->launch;
  struct block *block = NULL;
  while (__atomic_load_n(&l->stop, __ATOMIC_RELAXED) == 0) {
    uint64_t number = __atomic_fetch_add(&l->next_block, 1, __ATOMIC_RELAXED);
    if (number >= l->blocks) break;
    if (block == NULL) block = new_block(worker);
    if (block == NULL || !begin_block(block, number, 0)) {
      out_of_memory(l);
      break;
    }
    enum run run;
    do run = run_block(block);
    while (run == RUN_YIELD && __atomic_load_n(&l->stop, __ATOMIC_RELAXED) == 0);
    if (l->deadline != 0 && late(l) && run == RUN_DONE && l->next_block < l->blocks) {
      raise_in(block, PTX_TIMEOUT, "the kernel ran longer than it may");
    }
  }
  free_block(block);
}

static void free_cluster(struct cluster *cluster) {
  if (cluster == NULL) return;
  for (uint32_t i = 0; i < cluster->count; i++) free_block(cluster->blocks[i]);
  free(cluster);
}

/* All blocks of a cluster, those of one that is over (NULL: none) used again. NULL: no memory. */
static struct cluster *begin_cluster(struct worker *worker, uint64_t number, struct cluster *again) {
  struct launch_state *l = worker->launch;
  struct cluster *cluster = again == NULL ? calloc(1, sizeof *cluster) : again;
  if (cluster == NULL) return NULL;
  for (uint32_t rank = 0; rank < l->cluster_blocks; rank++) {
    if (cluster->blocks[rank] == NULL) {
      cluster->blocks[rank] = new_block(worker);
      if (cluster->blocks[rank] == NULL) break;
      cluster->blocks[rank]->cluster = cluster;
      cluster->count = rank + 1;
    }
    if (begin_block(cluster->blocks[rank], number, rank)) continue;
    free_cluster(cluster);
    return NULL;
  }
  if (cluster->count == l->cluster_blocks) return cluster;
  free_cluster(cluster);
  return NULL;
}

/* Its blocks take turns; their memory stays until all are over. */
static enum run run_cluster(struct cluster *cluster) {
  bool progress = false;
  struct block *left = NULL;
  for (uint32_t i = 0; i < cluster->count; i++) {
    struct block *block = cluster->blocks[i];
    if (block->over) continue;
    enum run run = run_block(block);
    if (run == RUN_FAULT) return RUN_FAULT;
    if (run != RUN_BLOCKED) progress = true;
    if (run == RUN_DONE) block->over = true;
    else left = block;
  }
  if (left == NULL) return RUN_DONE;
  if (progress) return RUN_YIELD;
  for (uint32_t i = 0; i < cluster->count; i++) {
    if (has_leaf(cluster->blocks[i], SPLIT_READY)) return RUN_YIELD;
  }
  raise_in(left, PTX_TIMEOUT, "all threads of a cluster wait at barriers that can never open");
  return RUN_FAULT;
}

/* A cluster is one thread's: its blocks are there at once. Cooperative: so are all clusters. */
static void run_clusters(struct worker *worker) {
  struct launch_state *l = worker->launch;
  struct cluster *first = NULL, *spare = NULL;
  for (;;) {
    struct cluster **last = &first;
    while (first == NULL || l->launch->cooperative) {
      uint64_t number = __atomic_fetch_add(&l->next_block, 1, __ATOMIC_RELAXED);
      if (number >= l->blocks) break;
      struct cluster *cluster = begin_cluster(worker, number, spare);
      spare = NULL;
      if (cluster == NULL) {
        out_of_memory(l);
        break;
      }
      *last = cluster;
      last = &cluster->next;
    }
    if (first == NULL) break;
    while (first != NULL && __atomic_load_n(&l->stop, __ATOMIC_RELAXED) == 0) {
      for (struct cluster **link = &first; *link != NULL;) {
        struct cluster *cluster = *link;
        if (run_cluster(cluster) == RUN_YIELD) {
          link = &cluster->next;
          continue;
        }
        *link = cluster->next;
        cluster->next = NULL;
        free_cluster(spare);
        spare = cluster;
      }
      if (first != NULL && late(l))
        raise_in(first->blocks[0], PTX_TIMEOUT, "the kernel ran longer than it may");
    }
    if (__atomic_load_n(&l->stop, __ATOMIC_RELAXED) != 0) break;
    if (late(l) && l->next_block < l->blocks && spare != NULL)
      raise_in(spare->blocks[0], PTX_TIMEOUT, "the kernel ran longer than it may");
  }
  while (first != NULL) {
    struct cluster *next = first->next;
    free_cluster(first);
    first = next;
  }
  free_cluster(spare);
}

static void work(struct launch_state *l, bool helps) {
  const struct ptx_turns *turns = l->launch->turns;
  if (helps && !wait_to_help(l)) return;
  if (!helps && turns != NULL) turns->enter(l->launch->user);
  uint64_t began = ptx_now();
  struct worker *worker = NULL;
  void *memory = NULL;
  if (posix_memalign(&memory, 64, sizeof *worker) == 0) {
    worker = memory;
    memset(worker, 0, sizeof *worker);
    worker->launch = l;
    worker->alu = ptx_alu_best();
    worker->free_frames = calloc(l->module->function_count, sizeof *worker->free_frames);
  }
  if (worker == NULL || worker->free_frames == NULL) {
    free(worker);
    out_of_memory(l);
    if (turns != NULL) turns->leave(l->launch->user, 0);
    return;
  }
  worker->turn = began;
  ptx_fpu saved = ptx_fpu_get();
  if (l->cluster_blocks > 1) run_clusters(worker);
  else if (l->launch->cooperative) run_in_turns(worker);
  else run_in_order(worker);
  ptx_fpu_put(saved);
  if (turns != NULL) turns->leave(l->launch->user, ptx_now() - worker->turn);
  free_worker(worker);
  free(worker);
}

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
    work(l, true);
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
  pthread_cond_init(&pool->done, NULL);
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

static enum ptx_status refuse(struct ptx_fault *fault, const char *format, uint64_t have, uint64_t may) {
  fault->status = PTX_BAD_LAUNCH;
  snprintf(fault->text, sizeof fault->text, format, (unsigned long long)have, (unsigned long long)may);
  return PTX_BAD_LAUNCH;
}

void ptx_cluster_of(const struct ptx_launch *launch, const struct ptx_kernel_info *info, uint32_t to[3]) {
  for (int i = 0; i < 3; i++)
    to[i] = launch->cluster[0] != 0 ? launch->cluster[i] : info->cluster[0] != 0 ? info->cluster[i] : 1;
}

static enum ptx_status check(const struct ptx_launch *launch, const struct ptx_kernel_info *info,
                             struct ptx_fault *fault) {
  uint64_t threads = 1, blocks = 1;
  static const uint32_t most_grid[3] = {0x7fffffff, 65535, 65535}, most_block[3] = {1024, 1024, 64};
  for (int i = 0; i < 3; i++) {
    if (launch->grid[i] == 0 || launch->grid[i] > most_grid[i])
      return refuse(fault, "a grid of %llu, 1 to %llu allowed", launch->grid[i], most_grid[i]);
    if (launch->block[i] == 0 || launch->block[i] > most_block[i])
      return refuse(fault, "a block of %llu, 1 to %llu allowed", launch->block[i], most_block[i]);
    threads *= launch->block[i];
    blocks *= launch->grid[i];
    if (info->required_threads[0] != 0 && launch->block[i] != info->required_threads[i])
      return refuse(fault, "a block of %llu, the kernel requires %llu", launch->block[i],
                    info->required_threads[i]);
  }
  if (threads > info->max_threads)
    return refuse(fault, "%llu threads a block, %llu allowed", threads, info->max_threads);
  uint32_t cluster[3];
  ptx_cluster_of(launch, info, cluster);
  for (int i = 0; i < 3; i++) {
    if (cluster[i] == 0 || cluster[i] > PTX_CLUSTER_MOST || launch->grid[i] % cluster[i] != 0)
      return refuse(fault, "a grid of %llu in clusters of %llu", launch->grid[i], cluster[i]);
    if (info->cluster[0] != 0 && cluster[i] != info->cluster[i])
      return refuse(fault, "a cluster of %llu, the kernel requires %llu", cluster[i], info->cluster[i]);
  }
  if (cluster[0] * cluster[1] * cluster[2] > PTX_CLUSTER_MOST)
    return refuse(fault, "%llu blocks in a cluster, %llu allowed", cluster[0] * cluster[1] * cluster[2],
                  PTX_CLUSTER_MOST);
  if (launch->cooperative && blocks > MAX_COOPERATIVE)
    return refuse(fault, "%llu blocks at once, %llu allowed", blocks, MAX_COOPERATIVE);
  if (launch->parameter_bytes < info->parameter_bytes ||
      (launch->parameters == NULL && info->parameter_bytes > 0))
    return refuse(fault, "%llu bytes of parameters, the kernel has %llu", launch->parameter_bytes,
                  info->parameter_bytes);
  uint64_t limit = launch->shared_limit == 0 ? SHARED_LIMIT : launch->shared_limit;
  uint64_t shared = ((uint64_t)info->static_shared + 15) / 16 * 16 + launch->dynamic_shared;
  if (shared > limit)
    return refuse(fault, "%llu bytes of shared memory a block, %llu allowed", shared, limit);
  /* What other kernels have lies between: it is not touched, but a kernel that wants to can. */
  if (launch->cooperative && blocks * info->shared_extent > MOST_EXTENT)
    return refuse(fault, "shared variables that %llu bytes of all blocks lie among, %llu allowed",
                  blocks * info->shared_extent, MOST_EXTENT);
  return PTX_OK;
}

bool ptx_launch_possible(const struct ptx_launch *launch, const struct ptx_kernel_info *info,
                         struct ptx_fault *fault) {
  return check(launch, info, fault) == PTX_OK;
}

/* Of one thread, stack of calls that cannot be counted included. */
static uint32_t local_bytes(const struct ptx_function *f, const struct ptx_launch *launch) {
  uint32_t bytes = f->local_total;
  if (f->recursive || f->grows) bytes += launch->stack_limit == 0 ? STACK_LIMIT : launch->stack_limit;
  return (bytes + 15) / 16 * 16;
}

uint64_t ptx_launch_local_bytes(const struct ptx_module *module, uint32_t kernel,
                                const struct ptx_launch *launch, const struct ptx_pool *pool) {
  struct ptx_fault fault;
  if (kernel >= module->kernel_count || check(launch, &module->kernels[kernel], &fault) != PTX_OK) return 0;
  uint32_t local = local_bytes(module->functions[module->kernel_function[kernel]], launch);
  uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
  uint32_t cluster[3];
  ptx_cluster_of(launch, &module->kernels[kernel], cluster);
  /* A thread has all blocks of a cluster. */
  uint64_t at_once = (pool == NULL ? 1 : pool->count + 1u) * ((uint64_t)cluster[0] * cluster[1] * cluster[2]);
  if (launch->cooperative || blocks < at_once) at_once = blocks;
  uint64_t warps = (threads + PTX_LANES - 1) / PTX_LANES;
  /* All blocks of a cooperative grid hold their registers at once. */
  const struct ptx_function *f = module->functions[module->kernel_function[kernel]];
  uint64_t frames = launch->cooperative ? blocks * warps * f->frame_bytes : 0;
  return at_once * warps * PTX_LANES * local + frames;
}

enum ptx_status ptx_launch(struct ptx_module *module, uint32_t kernel, const struct ptx_launch *launch,
                           struct ptx_pool *pool, struct ptx_fault *fault) {
  struct ptx_fault unused;
  if (fault == NULL) fault = &unused;
  memset(fault, 0, sizeof *fault);
  if (kernel >= module->kernel_count)
    return refuse(fault, "kernel %llu of %llu", kernel, module->kernel_count);
  const struct ptx_kernel_info *info = &module->kernels[kernel];
  const char *refused = ptx_module_prepare(module, kernel, &fault->status);
  if (refused != NULL) {
    snprintf(fault->text, sizeof fault->text, "%s", refused);
    return fault->status;
  }
  if (check(launch, info, fault) != PTX_OK) return PTX_BAD_LAUNCH;
  const struct ptx_function *f = module->functions[module->kernel_function[kernel]];
  struct launch_state l = {
      .module = module, .kernel = f, .info = info, .launch = launch, .findings = &module->findings[kernel]};
  ptx_cluster_of(launch, info, l.cluster);
  l.cluster_blocks = l.cluster[0] * l.cluster[1] * l.cluster[2];
  l.blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2] / l.cluster_blocks;
  l.dynamic_offset = (info->shared_extent + 15) / 16 * 16;
  l.shared_bytes = l.dynamic_offset + launch->dynamic_shared;
  l.local_bytes = local_bytes(f, launch);
  l.frame_limit = FRAME_BYTES;
  if (launch->cooperative) {
    uint64_t warps =
        ((uint64_t)launch->block[0] * launch->block[1] * launch->block[2] + PTX_LANES - 1) / PTX_LANES;
    l.frame_limit += l.blocks * l.cluster_blocks * warps * (f->frame_bytes + 256ull);
  }
  l.begun = ptx_now();
  l.deadline = launch->timeout == 0 ? 0 : l.begun + launch->timeout;
  pthread_mutex_init(&l.lock, NULL);
  bool helped = pool != NULL && pool->count > 0 && l.blocks > 1;
  if (helped) {
    pthread_mutex_lock(&pool->lock);
    pool->launch = &l;
    pool->job++;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
  }
  work(&l, false);
  if (helped) {
    pthread_mutex_lock(&pool->lock);
    pool->launch = NULL; /* who has not begun need not */
    while (pool->running > 0) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
  }
  pthread_mutex_destroy(&l.lock);
  if (launch->checks != 0) ptx_check_end(&l);
  *fault = l.fault;
  return l.fault.status;
}
