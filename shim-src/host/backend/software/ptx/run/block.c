#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/backend/software/ptx/run/block.h"
#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/run/region.h"

#define SLICE 8u
#define LEAST_NS 100000u /* of a turn that ends early */
#define LOOK_WARPS 64u   /* that end or pass a barrier, between two looks at the clock */
#define TURN_NS 2000000u /* length of a thread's turn, if several launches share the processors */

uint64_t ptx_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void ptx_block_free(struct block *block) {
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

struct block *ptx_block_new(struct worker *worker) {
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
  size_t bytes = block->warp_count * sizeof *block->warps;
  block->warps = aligned_alloc(_Alignof(struct warp), bytes);
  if (block->warps != NULL) memset(block->warps, 0, bytes);
  uint64_t local = (uint64_t)l->local_bytes * block->warp_count * PTX_LANES;
  /* A thread that reads before it writes must not see another session's data. */
  block->shared_memory = calloc(1, l->shared_bytes + 128);
  if (block->shared_memory != NULL)
    block->shared = (unsigned char *)(((uintptr_t)block->shared_memory + 127) / 128 * 128);
  void *stack = NULL;
  if (local > 0 && posix_memalign(&stack, 64, local) != 0) stack = NULL;
  block->local = stack;
  if (l->launch->checks != 0) block->check = ptx_check_new(l, block->warp_count);
  if (block->warps == NULL || block->shared == NULL || (local > 0 && block->local == NULL) ||
      (l->launch->checks != 0 && block->check == NULL)) {
    ptx_block_free(block);
    return NULL;
  }
  if (local > 0) memset(block->local, 0, local);
  uint32_t place[3] = {0, 0, 0};
  for (uint32_t w = 0; w < block->warp_count; w++) {
    struct warp *warp = &block->warps[w];
    warp->block = block;
    warp->number = w;
    warp->free_splits = &warp->own;
    warp->split_count = 1;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
      uint32_t thread = w * PTX_LANES + lane;
      if (thread < block->threads) warp->exists |= 1u << lane;
      for (int k = 0; k < 3; k++) warp->tid[k][lane] = place[k];
      /* Increments the place, because divisions took a third of the time of a small launch. */
      if (++place[0] < size[0]) continue;
      place[0] = 0;
      if (++place[1] < size[1]) continue;
      place[1] = 0;
      place[2]++;
    }
  }
  return block;
}

void ptx_block_begin(struct block *block, uint64_t cluster, uint32_t rank) {
  struct launch_state *l = block->launch;
  for (int i = 0; i < 3; i++) {
    uint64_t along = l->launch->grid[i], up = 0;
    if (l->cluster_blocks > 1) along /= l->cluster[i];
    if (cluster >= along) up = cluster / along; /* a division takes as long as a small kernel's warp begins */
    block->id[i] = (uint32_t)(cluster - up * along);
    cluster = up;
    if (l->cluster_blocks == 1) continue;
    block->id[i] = block->id[i] * l->cluster[i] + rank % l->cluster[i];
    rank /= l->cluster[i];
  }
  block->over = block->waits = block->timed = block->events = false;
  block->cluster->arrived = 0;
  block->live = block->threads;
  block->together = l->module->functions[l->function]->settles;
  if (block->arrived_at != 0) memset(block->barriers, 0, sizeof block->barriers);
  block->arrived_at = 0;
  if (block->check != NULL) ptx_check_begin(block);
  for (uint32_t w = 0; w < block->warp_count; w++) {
    block->warps[w].fresh = true;
    block->warps[w].products = 0;
  }
  ptx_region_heat(l, l->function, block->warp_count, 0);
}

bool ptx_begin_warp(struct warp *warp) {
  struct worker *worker = warp->block->worker;
  warp->exited = warp->spun = warp->seen = 0;
  warp->frame = ptx_new_frame(worker, worker->launch->function);
  if (warp->frame == NULL) {
    ptx_block_raise(warp->block, PTX_OUT_OF_MEMORY, "no memory for the registers of a warp");
    return false;
  }
  if (!warp->frame->settled) ptx_settle_frame(warp, warp->frame);
  return true;
}

struct split *ptx_split_warp(struct warp *warp, uint32_t pc) {
  struct split *root = ptx_new_split(warp, warp->frame);
  if (root == NULL) {
    ptx_block_raise(warp->block, PTX_OUT_OF_MEMORY, "no memory for the registers of a warp");
    return NULL;
  }
  warp->frame->grows = false;
  warp->frame = NULL;
  warp->fresh = false;
  warp->at = warp->at_cluster = 0;
  memset(warp->launch_error, 0, sizeof warp->launch_error);
  root->mask = warp->exists;
  root->pc = pc;
  root->spun = warp->spun;
  warp->leaves[0] = root;
  warp->leaf_count = 1;
  return root;
}

void ptx_block_raise(struct block *block, enum ptx_status status, const char *text) {
  struct place at = {.warp = &block->warps[0], .worker = block->worker};
  ptx_raise(&at, status, 0, 0, text);
}

bool ptx_is_late(const struct launch_state *l, uint64_t now) {
  return l->deadline != 0 && now > l->deadline;
}

/* The launching thread has other things to do than to compute. */
static void serve_others(struct worker *worker, uint64_t now) {
  const struct ptx_launch *launch = worker->launch->launch;
  if (launch->serve == NULL || worker->helps || now - worker->served < PTX_SERVE_NS) return;
  launch->serve(launch->user);
  worker->served = ptx_now();
}

static void give_way(struct worker *worker, uint64_t now) {
  const struct ptx_launch *launch = worker->launch->launch;
  if (launch->turns == NULL) return;
  uint64_t used = now - worker->turn;
  if (used < TURN_NS && (used < LEAST_NS || !launch->turns->crowded(launch->user))) return;
  launch->turns->leave(launch->user, used);
  launch->turns->enter(launch->user);
  worker->turn = ptx_now();
}

bool ptx_block_has(const struct block *block, enum split_state state) {
  for (uint32_t n = 0; n < block->warp_count; n++) {
    for (uint32_t k = 0; k < block->warps[n].leaf_count; k++) {
      if (block->warps[n].leaves[k]->state == state) return true;
    }
  }
  return false;
}

/* Lets others use the thread. Returns the time. */
static uint64_t let_others(struct worker *worker) {
  const uint64_t now = ptx_now();
  worker->ran = 0;
  serve_others(worker, now);
  give_way(worker, now);
  return now;
}

/* Calls let_others(). False: the launch is past its deadline, and a fault was raised. */
static bool has_time(struct block *block) {
  if (!ptx_is_late(block->launch, let_others(block->worker))) return true;
  ptx_block_raise(block, PTX_TIMEOUT, "the kernel ran longer than it may");
  return false;
}

/*
 * Call this when the warps of a block have passed a barrier or ended. Reads the clock only after LOOK_WARPS
 * warps, because that often takes longer than they do. If the block has ended, grid.c checks the deadline.
 */
static enum run pass(struct block *block, enum run run) {
  struct worker *worker = block->worker;
  worker->ran += block->warp_count;
  if (worker->ran < LOOK_WARPS) return run;
  ptx_region_heat(block->launch, block->launch->function, 0, 0);
  if (run == RUN_YIELD) return has_time(block) ? run : RUN_FAULT;
  (void)let_others(worker);
  return run;
}

enum run ptx_block_run(struct block *block) {
  bool progress = false;
  const struct ptx_function *f = block->launch->module->functions[block->launch->function];
  const struct ptx_compiled *compiled = ptx_code_of(block->launch, f);
  struct ptx_region_call call;
  if (compiled != NULL) ptx_region_prepare_call(&call, block, compiled);
  if (block->together != PTX_NO_PC) {
    enum run run = ptx_region_block(block, compiled, &call);
    if (run == RUN_FAULT) return RUN_FAULT;
    if (run != RUN_BLOCKED) return pass(block, run);
  }
  for (uint32_t n = 0; n < block->warp_count; n++) {
    struct warp *warp = &block->warps[n];
    if (!warp->fresh && warp->leaf_count == 0) continue;
    call.turns = PTX_TURNS;
    call.seen = 0;
    if (warp->fresh && (!ptx_begin_warp(warp) || ptx_split_warp(warp, f->settles) == NULL)) return RUN_FAULT;
    enum run run = RUN_YIELD;
    if (compiled != NULL && warp->leaf_count == 1) run = ptx_region_warp(warp, compiled, &call);
    if (run == RUN_YIELD) run = ptx_run_warp(warp, SLICE, call.turns, call.seen);
    switch (run) {
      case RUN_FAULT:
        return RUN_FAULT;
      case RUN_YIELD:
        progress = true;
        if (!has_time(block)) return RUN_FAULT;
        break;
      case RUN_DONE:
        progress = true;
        break;
      default:
        break;
    }
  }
  if (block->live == 0) return pass(block, RUN_DONE);
  if (progress) return RUN_YIELD;
  /* A barrier that opened meanwhile has made a warp ready. A loop of barriers can come here each time. */
  if (ptx_block_has(block, SPLIT_READY) || ptx_release_waiting(block))
    return has_time(block) ? RUN_YIELD : RUN_FAULT;
  if (block->cluster->count > 1 && ptx_block_has(block, SPLIT_EVENT)) return RUN_BLOCKED;
  ptx_block_raise(block, PTX_TIMEOUT, "all threads of a block wait at barriers that can never open");
  return RUN_FAULT;
}
