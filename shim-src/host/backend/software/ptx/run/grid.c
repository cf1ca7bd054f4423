/* Which blocks a thread runs, and in which order. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/backend/software/ptx/alu/fpu.h"
#include "host/backend/software/ptx/compile/compiler.h"
#include "host/backend/software/ptx/run/block.h"
#include "host/backend/software/ptx/run/grid.h"
#include "host/backend/software/ptx/run/resident_blocks.h"

#define HELP_NS 300000l /* a helper without a turn checks again after this time */

/* A helper begins only while blocks are left. */
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

static void free_worker(struct worker *worker) {
  struct ptx_compiler *compiler = worker->launch->launch->compiler;
  if (compiler != NULL) {
    __atomic_fetch_add(&compiler->counts.stepped, worker->stepped, __ATOMIC_RELAXED);
    __atomic_fetch_add(&compiler->counts.saved, worker->saved, __ATOMIC_RELAXED);
  }
  free(worker->apart);
  for (uint32_t i = 0; worker->written != NULL && i < worker->launch->module->function_count; i++)
    free(worker->written[i]);
  free(worker->written);
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

static void free_blocks(struct block *first) {
  while (first != NULL) {
    struct block *next = first->next;
    ptx_block_free(first);
    first = next;
  }
}

static void run_in_turns(struct worker *worker) {
  /* Cooperative: every block that this thread has taken stays resident and gets turns. */
  struct launch_state *l = worker->launch;
  struct block *first = NULL, **last = &first;
  for (;;) {
    uint64_t number = __atomic_fetch_add(&l->next_block, 1, __ATOMIC_RELAXED);
    if (number >= l->blocks) break;
    struct block *block = ptx_block_new(worker);
    if (block == NULL) {
      out_of_memory(l);
      break;
    }
    ptx_block_begin(block, number, 0);
    *last = block;
    last = &block->next;
  }
  while (first != NULL && __atomic_load_n(&l->stop, __ATOMIC_RELAXED) == 0) {
    for (struct block **link = &first; *link != NULL && __atomic_load_n(&l->stop, __ATOMIC_RELAXED) == 0;) {
      struct block *block = *link;
      enum run run = ptx_block_run(block);
      if (run == RUN_YIELD) {
        link = &block->next;
        continue;
      }
      *link = block->next;
      ptx_block_free(block);
    }
    if (first != NULL && ptx_is_late(l, ptx_now()))
      ptx_block_raise(first, PTX_TIMEOUT, "the kernel ran longer than it may");
  }
  free_blocks(first);
}

/*
 * Begins the next block, in the memory of one that has ended if there is one (*spare). NULL: none is left, or
 * no memory, which stops the launch.
 */
static struct block *begin_block(struct worker *worker, struct block **spare) {
  struct launch_state *l = worker->launch;
  uint64_t number = __atomic_fetch_add(&l->next_block, 1, __ATOMIC_RELAXED);
  if (number >= l->blocks) return NULL;
  struct block *block = *spare;
  if (block != NULL) *spare = block->next;
  else block = ptx_block_new(worker);
  if (block == NULL) {
    out_of_memory(l);
    return NULL;
  }
  ptx_block_begin(block, number, 0);
  block->next = NULL;
  return block;
}

static void run_in_order(struct worker *worker) {
  struct launch_state *l = worker->launch;
  struct block *first = NULL, *spare = NULL;
  struct patience patience = {.wanted = 1};
  while (__atomic_load_n(&l->stop, __ATOMIC_RELAXED) == 0) {
    struct block **link = &first;
    struct turn turn = {0};
    while (*link != NULL) link = &(*link)->next;
    while (patience.resident < patience.wanted) {
      struct block *block = begin_block(worker, &spare);
      if (block == NULL) break;
      *link = block;
      link = &block->next;
      patience.resident++;
    }
    if (first == NULL) break;
    for (link = &first; *link != NULL && __atomic_load_n(&l->stop, __ATOMIC_RELAXED) == 0;) {
      struct block *block = *link;
      enum run run = ptx_block_run(block);
      ptx_note_turn(&turn, block);
      if (run == RUN_YIELD) {
        link = &block->next;
        continue;
      }
      *link = block->next;
      patience.resident--;
      turn.ended = true;
      if (l->deadline != 0 && ptx_is_late(l, ptx_now()) && run == RUN_DONE && l->next_block < l->blocks)
        ptx_block_raise(block, PTX_TIMEOUT, "the kernel ran longer than it may");
      block->next = spare;
      spare = block;
    }
    ptx_be_patient(worker, &patience, &turn);
  }
  free_blocks(first);
  free_blocks(spare);
}

static void free_cluster(struct cluster *cluster) {
  if (cluster == NULL) return;
  for (uint32_t i = 0; i < cluster->count; i++) ptx_block_free(cluster->blocks[i]);
  free(cluster);
}

/*
 * Begins all blocks of a cluster, in the memory of a cluster that has ended (`again`; NULL: none). NULL: no
 * memory.
 */
static struct cluster *begin_cluster(struct worker *worker, uint64_t number, struct cluster *again) {
  struct launch_state *l = worker->launch;
  struct cluster *cluster = again == NULL ? calloc(1, sizeof *cluster) : again;
  if (cluster == NULL) return NULL;
  for (uint32_t rank = 0; rank < l->cluster_blocks; rank++) {
    if (cluster->blocks[rank] == NULL) {
      cluster->blocks[rank] = ptx_block_new(worker);
      if (cluster->blocks[rank] == NULL) break;
      cluster->blocks[rank]->cluster = cluster;
      cluster->count = rank + 1;
    }
    ptx_block_begin(cluster->blocks[rank], number, rank);
  }
  if (cluster->count == l->cluster_blocks) return cluster;
  free_cluster(cluster);
  return NULL;
}

/* Runs the blocks of a cluster in turn. Their memory stays until all have ended. */
static enum run run_cluster(struct cluster *cluster) {
  bool progress = false;
  struct block *left = NULL;
  for (uint32_t i = 0; i < cluster->count; i++) {
    struct block *block = cluster->blocks[i];
    if (block->over) continue;
    enum run run = ptx_block_run(block);
    if (run == RUN_FAULT) return RUN_FAULT;
    if (run != RUN_BLOCKED) progress = true;
    if (run == RUN_DONE) block->over = true;
    else left = block;
  }
  if (left == NULL) return RUN_DONE;
  if (progress) return RUN_YIELD;
  for (uint32_t i = 0; i < cluster->count; i++) {
    if (ptx_block_has(cluster->blocks[i], SPLIT_READY)) return RUN_YIELD;
  }
  ptx_block_raise(left, PTX_TIMEOUT, "all threads of a cluster wait at barriers that can never open");
  return RUN_FAULT;
}

/* Takes the next cluster. NULL: none is left, or no memory, which stops the launch. */
static struct cluster *take_cluster(struct worker *worker, struct cluster **spare) {
  struct launch_state *l = worker->launch;
  uint64_t number = __atomic_fetch_add(&l->next_block, 1, __ATOMIC_RELAXED);
  if (number >= l->blocks) return NULL;
  struct cluster *cluster = begin_cluster(worker, number, *spare);
  *spare = NULL;
  if (cluster == NULL) out_of_memory(l);
  return cluster;
}

/*
 * One thread runs a cluster, so its blocks are resident together. In a cooperative launch all clusters are.
 */
static void run_clusters(struct worker *worker) {
  struct launch_state *l = worker->launch;
  struct cluster *first = NULL, *spare = NULL;
  struct patience patience = {.wanted = l->launch->cooperative ? UINT32_MAX : 1};
  while (__atomic_load_n(&l->stop, __ATOMIC_RELAXED) == 0) {
    struct cluster **link = &first;
    struct turn turn = {0};
    while (*link != NULL) link = &(*link)->next;
    while (patience.resident < patience.wanted && (*link = take_cluster(worker, &spare)) != NULL) {
      link = &(*link)->next;
      patience.resident++;
    }
    if (first == NULL) break;
    for (link = &first; *link != NULL;) {
      struct cluster *cluster = *link;
      enum run run = run_cluster(cluster);
      for (uint32_t i = 0; i < cluster->count; i++) ptx_note_turn(&turn, cluster->blocks[i]);
      if (run == RUN_YIELD) {
        link = &cluster->next;
        continue;
      }
      *link = cluster->next;
      cluster->next = NULL;
      patience.resident--;
      turn.ended = true;
      free_cluster(spare);
      spare = cluster;
    }
    if (!l->launch->cooperative) ptx_be_patient(worker, &patience, &turn);
    struct cluster *late = first != NULL ? first : l->next_block < l->blocks ? spare : NULL;
    if (late != NULL && ptx_is_late(l, ptx_now()))
      ptx_block_raise(late->blocks[0], PTX_TIMEOUT, "the kernel ran longer than it may");
  }
  while (first != NULL) {
    struct cluster *next = first->next;
    free_cluster(first);
    first = next;
  }
  free_cluster(spare);
}

void ptx_grid_work(struct launch_state *l, bool helps) {
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
    worker->constants = l->module->constants;
    worker->free_frames = calloc(l->module->function_count, sizeof *worker->free_frames);
  }
  if (worker == NULL || worker->free_frames == NULL) {
    free(worker);
    out_of_memory(l);
    if (turns != NULL) turns->leave(l->launch->user, 0);
    return;
  }
  worker->turn = worker->served = began;
  worker->helps = helps;
  ptx_fpu saved = ptx_fpu_get();
  if (l->cluster_blocks > 1) run_clusters(worker);
  else if (l->launch->cooperative) run_in_turns(worker);
  else run_in_order(worker);
  ptx_fpu_put(saved);
  if (turns != NULL) turns->leave(l->launch->user, ptx_now() - worker->turn);
  free_worker(worker);
  free(worker);
}
