#include "host/backend/software/ptx/run/check.h"

#include <stdlib.h>
#include <string.h>

enum direction { READS = 1, WRITES = 2, MEETS = 4 };

static uint32_t direction_of(const struct ptx_instruction *in) {
  switch (in->kind) {
    case K_LOAD:
      return READS | ((in->m & ML_VOLATILE) != 0 ? MEETS : 0);
    case K_STORE:
      return WRITES | ((in->m & ML_VOLATILE) != 0 ? MEETS : 0);
    case K_ATOM: /* mbarrier.init only writes */
      return (MA_OPERATION(in->m) == A_EXCH && in->d == PTX_NONE ? 0 : READS) | WRITES | MEETS;
    case K_LDMATRIX:
    case K_WMMA_LOAD:
    case K_ASYNC_READ:
    case K_WGMMA:
      return READS;
    case K_ASYNC_WRITE:
    case K_STMATRIX:
    case K_WMMA_STORE:
    case K_CP_ASYNC:
      return WRITES;
    default:
      return 0; /* its loads were checked already */
  }
}

struct block_check *ptx_check_new(const struct launch_state *launch, uint32_t warps) {
  struct block_check *check = calloc(1, sizeof *check);
  if (check == NULL) return NULL;
  check->race = (launch->launch->checks & PTX_CHECK_RACE) != 0;
  check->init = (launch->launch->checks & PTX_CHECK_INIT) != 0;
  check->local_bytes = (uint64_t)launch->local_bytes * warps * PTX_LANES;
  bool whole = true;
  if (check->race) {
    check->pairs = calloc(warps, sizeof *check->pairs);
    check->shared = calloc(launch->shared_bytes + 1u, sizeof *check->shared);
    whole = check->pairs != NULL && check->shared != NULL;
  }
  if (check->init) {
    check->shared_written = malloc(launch->shared_bytes + 1u);
    check->local_written = malloc(check->local_bytes + 1u);
    whole = whole && check->shared_written != NULL && check->local_written != NULL;
  }
  if (whole) return check;
  ptx_check_free(check);
  return NULL;
}

void ptx_check_free(struct block_check *check) {
  if (check == NULL) return;
  free(check->pairs);
  free(check->shared);
  free(check->shared_written);
  free(check->local_written);
  free(check);
}

/* No accesses of the last block remain: they were before `born`. */
void ptx_check_begin(struct block *block) {
  struct block_check *check = block->check;
  check->born = ++check->now;
  memset(check->arrived, 0, sizeof check->arrived);
  memset(&check->gone, 0, sizeof check->gone);
  memset(check->places, 0, sizeof check->places);
  if (!check->init) return;
  memset(check->shared_written, 0, block->launch->shared_bytes);
  memset(check->local_written, 0, check->local_bytes);
}

static void learn(struct clocks *who, const struct clocks *from) {
  for (uint32_t i = 0; i < CHECK_WARPS; i++) {
    if (from->of[i] > who->of[i]) who->of[i] = from->of[i];
  }
}

/* Merges all that the warp knows, and its own accesses, into `place`. */
static void tell(struct block_check *check, uint32_t warp, struct clocks *place) {
  learn(place, &check->known[warp]);
  place->of[warp] = ++check->now;
}

void ptx_check_arrive(struct warp *warp, uint32_t barrier) {
  tell(warp->block->check, warp->number, &warp->block->check->arrived[barrier]);
}

void ptx_check_pass(struct warp *warp, uint32_t barrier, bool all) {
  struct block_check *check = warp->block->check;
  learn(&check->known[warp->number], &check->arrived[barrier]);
  if (all) learn(&check->known[warp->number], &check->gone);
}

void ptx_check_open(struct block *block, uint32_t barrier) {
  memset(&block->check->arrived[barrier], 0, sizeof block->check->arrived[barrier]);
}

void ptx_check_gone(struct warp *warp) {
  tell(warp->block->check, warp->number, &warp->block->check->gone);
}

void ptx_check_met(struct warp *warp, uint32_t lanes) {
  struct block_check *check = warp->block->check;
  if (!check->race) return;
  uint32_t now = ++check->now;
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    uint32_t *row = check->pairs[warp->number][__builtin_ctz(left)];
    for (uint32_t i = 0; i < PTX_LANES; i++) row[i] = (lanes >> i & 1) != 0 ? now : row[i];
  }
}

static struct clocks *meeting_place(struct block_check *check, uint64_t address) {
  uint32_t slot = (uint32_t)(address >> 2) % MEETING_PLACES;
  if (check->places[slot].address != address) {
    memset(&check->places[slot].clocks, 0, sizeof check->places[slot].clocks);
    check->places[slot].address = address;
  }
  return &check->places[slot].clocks;
}

/* Threads that do atomics at one address learn what each did before. */
static void meet_at(const struct place *at, uint64_t address) {
  struct block_check *check = at->warp->block->check;
  uint32_t warp = at->warp->number;
  struct clocks *clocks = meeting_place(check, address);
  learn(&check->known[warp], clocks);
  tell(check, warp, clocks);
  check->known[warp].of[warp] = check->now; /* lanes of one warp that take a lock in turn */
}

/* True if the access that was seen came before everything that this thread does now. */
static bool before(const struct block_check *check, const struct seen *seen, uint32_t thread) {
  if (seen->time < check->born || seen->thread == thread) return true;
  uint32_t warp = thread / PTX_LANES, other = seen->thread / PTX_LANES;
  if (seen->time < check->known[warp].of[other]) return true;
  return warp == other && seen->time < check->pairs[warp][seen->thread % PTX_LANES][thread % PTX_LANES];
}

/* Gives byte k of the value that a lane stores. False: not known here. */
static bool stored(const struct place *at, uint32_t lane, uint32_t k, unsigned char *value) {
  const struct ptx_instruction *in = at->in;
  if (in->kind != K_STORE) return false;
  const uint32_t *x = at->split->frame->function->x + in->x;
  *value = ptx_operand(at, x[k / in->size])[lane * ML_REGISTER(in->m) + k % in->size];
  return true;
}

static void races(const struct place *at, uint32_t lane, uint64_t offset, uint32_t bytes,
                  const unsigned char *memory, bool writes) {
  struct block_check *check = at->warp->block->check;
  uint32_t thread = at->warp->number * PTX_LANES + lane;
  struct seen now = {.time = check->now, .line = at->in->line, .thread = (uint16_t)thread};
  bool told = false;
  for (uint32_t k = 0; k < bytes; k++) {
    struct shadow *shadow = &check->shared[offset + k];
    unsigned char value;
    /* Two writes of the same value are no race. */
    bool same = writes && stored(at, lane, k, &value) && value == memory[k];
    if (!told && !before(check, &shadow->writer, thread) && !same) {
      ptx_check_found(at, writes ? CHECK_WRITE_WRITE : CHECK_READ_WRITE, lane, offset, bytes,
                      &shadow->writer);
      told = true;
    }
    for (int r = 0; r < 2 && writes && !told; r++) {
      if (before(check, &shadow->reader[r], thread)) continue;
      ptx_check_found(at, CHECK_WRITE_READ, lane, offset, bytes, &shadow->reader[r]);
      told = true;
    }
    if (writes) {
      shadow->writer = now;
    } else {
      if (shadow->reader[0].thread != thread) shadow->reader[1] = shadow->reader[0];
      shadow->reader[0] = now;
    }
  }
}

static bool all_written(const unsigned char *written, uint32_t bytes) {
  for (uint32_t k = 0; k < bytes; k++) {
    if (written[k] == 0) return false;
  }
  return true;
}

/*
 * A thread of another block uses this block's memory. Its access is not checked, but bytes that it writes
 * count as written. An atomic can pass on what any thread of this block had told the other block before.
 */
static void from_outside(struct block_check *check, uint32_t direction, uint64_t offset, uint32_t bytes) {
  if (check->race && (direction & MEETS) != 0) {
    struct clocks *clocks = meeting_place(check, PTX_SHARED_WINDOW + offset);
    check->now++;
    for (uint32_t i = 0; i < CHECK_WARPS; i++) clocks->of[i] = check->now;
  }
  if (check->init && (direction & WRITES) != 0) memset(check->shared_written + offset, 1, bytes);
}

void ptx_check_shared(const struct place *at, struct block *block, uint32_t lane, uint64_t offset,
                      uint32_t bytes) {
  struct block_check *check = block->check;
  uint32_t direction = direction_of(at->in);
  if (block != at->warp->block) {
    from_outside(check, direction, offset, bytes);
    return;
  }
  /* The reserved part is not the program's: only its order is followed. */
  bool own = offset < at->worker->launch->own_shared;
  /* A warp group may overwrite a product's memory after a wait; that order is not known here. */
  if (at->in->kind == K_WGMMA) direction = 0;
  if (check->race && (direction & MEETS) != 0) meet_at(at, PTX_SHARED_WINDOW + offset);
  else if (check->race && own && direction != 0)
    races(at, lane, offset, bytes, block->shared + offset, (direction & WRITES) != 0);
  if (!check->init || !own) return;
  direction = direction_of(at->in);
  if ((direction & READS) != 0 && !all_written(check->shared_written + offset, bytes))
    ptx_check_found(at, CHECK_SHARED, lane, offset, bytes, NULL);
  if ((direction & WRITES) != 0) memset(check->shared_written + offset, 1, bytes);
}

/* `offset` counts from the beginning of the block's local memory. */
void ptx_check_local(const struct place *at, uint32_t lane, uint64_t offset, uint32_t bytes) {
  const struct block_check *check = at->warp->block->check;
  uint32_t direction = direction_of(at->in);
  if (!check->init) return;
  if ((direction & READS) != 0 && !all_written(check->local_written + offset, bytes))
    ptx_check_found(at, CHECK_LOCAL, lane, offset % at->worker->launch->local_bytes, bytes, NULL);
  if ((direction & WRITES) != 0) memset(check->local_written + offset, 1, bytes);
}

void ptx_check_filled(const struct block *block, uint64_t offset, uint32_t bytes) {
  if (block->check->init) memset(block->check->local_written + offset, 1, bytes);
}

void ptx_check_global(const struct place *at, uint32_t lane, uint64_t address, uint32_t bytes,
                      unsigned char *written) {
  const struct block_check *check = at->warp->block->check;
  /* an asynchronous copy reads its source here; its destination is shared memory */
  uint32_t direction = at->in->kind == K_CP_ASYNC ? READS : direction_of(at->in);
  if (check->race && (direction & MEETS) != 0) meet_at(at, address);
  if (!check->init || written == NULL) return;
  if ((direction & READS) != 0 && !all_written(written, bytes))
    ptx_check_found(at, CHECK_GLOBAL, lane, address, bytes, NULL);
  if ((direction & WRITES) != 0) memset(written, 1, bytes);
}
