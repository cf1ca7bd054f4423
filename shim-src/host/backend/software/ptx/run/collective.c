#include <string.h>

#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/special.h"
#include "host/backend/software/ptx/run/warp.h"
#include "host/backend/software/ptx/shuffle.h"

#define CANONICAL_NAN 0x7fffffffu
#define F32_INFINITY 0x7f800000u

static uint32_t extra(const struct place *at, uint32_t index) {
  return at->split->frame->function->x[at->in->x + index];
}

static void put_predicate(const struct place *at, uint32_t reference, uint32_t value, uint32_t mask) {
  if ((reference & 3) == REF_FRAME) ptx_set_predicate(at, reference, value, mask);
}

/*
 * Collects the operand of every lane from the instruction at which the lane waits. `pick` is the place of the
 * operand in the instruction; the operand has 4 bytes.
 */
static void collect(const struct meeting *meeting, size_t pick, uint32_t to[PTX_LANES]) {
  for (uint32_t i = 0; i < meeting->count; i++) {
    const struct place *at = &meeting->parties[i].at;
    uint32_t reference;
    memcpy(&reference, (const unsigned char *)at->in + pick, 4);
    if (i == 0) memcpy(to, ptx_operand(at, reference), PTX_LANES * 4);
    else ptx_blend(at->worker, to, ptx_operand(at, reference), meeting->parties[i].mask, 4);
  }
}

static uint32_t collect_predicate(const struct meeting *meeting) {
  uint32_t p = 0;
  for (uint32_t i = 0; i < meeting->count; i++) {
    const struct place *at = &meeting->parties[i].at;
    p |= ptx_predicate(at, at->in->a) & meeting->parties[i].mask;
  }
  return (meeting->parties[0].at.in->m & MW_NEGATED) != 0 ? ~p : p;
}

/* Writes the result to the lanes of `mask`. `second` is the predicate beside the result, if there is one. */
static void give(const struct meeting *meeting, const uint32_t r[PTX_LANES], uint32_t second, uint32_t mask) {
  for (uint32_t i = 0; i < meeting->count; i++) {
    const struct place *at = &meeting->parties[i].at;
    uint32_t lanes = meeting->parties[i].mask & mask;
    if (lanes == 0) continue;
    ptx_blend(at->worker, at->registers + (at->in->d & ~3u), r, lanes, 4);
    put_predicate(at, extra(at, 1), second, lanes);
  }
}

static void give_all(const struct meeting *meeting, uint32_t value, uint32_t second, uint32_t mask) {
  uint32_t r[PTX_LANES];
  for (int i = 0; i < PTX_LANES; i++) r[i] = value;
  give(meeting, r, second, mask);
}

/*
 * The frequent shuffle: all lanes are at one instruction whose distance and segments are constants. The lanes
 * that are read depend only on these, and the worker keeps them.
 */
static bool shuffle_whole(const struct place *at) {
  const struct ptx_instruction *in = at->in;
  if ((in->b & 3) != REF_CONSTANT || (in->c & 3) != REF_CONSTANT) return false;
  struct shuffled *kept = &at->worker->shuffled[at->pc % SHUFFLE_CACHE];
  uint64_t key = (uint64_t)in->b << 32 | (in->c ^ (in->m & 3));
  if (kept->key != key) {
    const void *b = ptx_operand(at, in->b), *c = ptx_operand(at, in->c);
    kept->inside = ptx_shuffle_sources(in->m & 3, b, c, kept->from);
    kept->key = key;
  }
  const uint32_t *a = (const void *)ptx_operand(at, in->a);
  uint32_t r[PTX_LANES];
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) r[lane] = a[kept->from[lane]];
  memcpy(at->registers + (in->d & ~3u), r, sizeof r);
  put_predicate(at, extra(at, 1), kept->inside, FULL);
  return true;
}

/* A value from a lane outside the mask is undefined; 0 gives every run the same result. */
static void shuffle(const struct meeting *meeting, uint32_t group) {
  if (meeting->count == 1 && group == FULL && shuffle_whole(&meeting->parties[0].at)) return;
  uint32_t a[PTX_LANES], b[PTX_LANES], c[PTX_LANES], r[PTX_LANES], from[PTX_LANES];
  const struct ptx_instruction *in = meeting->parties[0].at.in;
  collect(meeting, offsetof(struct ptx_instruction, a), a);
  collect(meeting, offsetof(struct ptx_instruction, b), b);
  collect(meeting, offsetof(struct ptx_instruction, c), c);
  uint32_t inside = ptx_shuffle_sources(in->m & 3, b, c, from);
  if (group != FULL) {
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) a[lane] = (group >> lane & 1) != 0 ? a[lane] : 0;
  }
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) r[lane] = a[from[lane]];
  give(meeting, r, inside, group);
}

static void vote(const struct meeting *meeting, uint32_t group) {
  const struct ptx_instruction *in = meeting->parties[0].at.in;
  uint32_t p = collect_predicate(meeting) & group, result;
  switch (in->m & 3) {
    case VOTE_ALL:
      result = p == group ? FULL : 0;
      break;
    case VOTE_ANY:
      result = p != 0 ? FULL : 0;
      break;
    case VOTE_UNI:
      result = p == 0 || p == group ? FULL : 0;
      break;
    default:
      give_all(meeting, p, 0, group);
      return;
  }
  for (uint32_t i = 0; i < meeting->count; i++) {
    const struct place *at = &meeting->parties[i].at;
    put_predicate(at, at->in->d, result, meeting->parties[i].mask & group);
  }
}

static void match(const struct meeting *meeting, uint32_t group) {
  const struct ptx_instruction *in = meeting->parties[0].at.in;
  uint64_t value[PTX_LANES] = {0};
  uint32_t r[PTX_LANES] = {0}, agreed = 0, bytes = in->type;
  for (uint32_t i = 0; i < meeting->count; i++) {
    const unsigned char *a = ptx_operand(&meeting->parties[i].at, meeting->parties[i].at.in->a);
    for (uint32_t left = meeting->parties[i].mask & group; left != 0; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      memcpy(&value[lane], a + lane * bytes, bytes);
    }
  }
  for (uint32_t rest = group; rest != 0;) {
    uint64_t wanted = value[__builtin_ctz(rest)];
    uint32_t same = 0;
    for (uint32_t k = 0; k < PTX_LANES; k++) same |= (uint32_t)(value[k] == wanted) << k;
    same &= group;
    for (uint32_t left = same; left != 0; left &= left - 1) r[__builtin_ctz(left)] = same;
    rest &= ~same;
  }
  if ((in->m & 1) != 0) {
    bool all = r[__builtin_ctz(group)] == group;
    agreed = all ? FULL : 0;
    for (uint32_t i = 0; i < PTX_LANES; i++) r[i] = all ? group : 0;
  }
  give(meeting, r, agreed, group);
}

/* -0 is less than +0. NaNs count only with .NaN, or if there is nothing else. */
static uint32_t reduce_floats(uint32_t m, const uint32_t a[PTX_LANES], uint32_t group) {
  uint32_t best = CANONICAL_NAN;
  int32_t best_order = 0;
  for (uint32_t left = group; left != 0; left &= left - 1) {
    uint32_t x = a[__builtin_ctz(left)] & ((m & MW_MAGNITUDE) != 0 ? INT32_MAX : FULL);
    if ((x & INT32_MAX) > F32_INFINITY) {
      if ((m & MW_NAN) != 0) return CANONICAL_NAN;
      continue;
    }
    int32_t order = x >> 31 != 0 ? (int32_t)(x ^ INT32_MAX) : (int32_t)x;
    if (best == CANONICAL_NAN || ((m & 15) == A_MIN ? order < best_order : order > best_order)) {
      best = x;
      best_order = order;
    }
  }
  return best;
}

static void reduce(const struct meeting *meeting, uint32_t group) {
  const struct ptx_instruction *in = meeting->parties[0].at.in;
  uint32_t a[PTX_LANES];
  collect(meeting, offsetof(struct ptx_instruction, a), a);
  if (in->type == T_F32) {
    give_all(meeting, reduce_floats(in->m, a, group), 0, group);
    return;
  }
  uint32_t total = a[__builtin_ctz(group)];
  bool is_signed = in->type == T_S32;
  for (uint32_t left = group & (group - 1); left != 0; left &= left - 1) {
    uint32_t x = a[__builtin_ctz(left)];
    switch (in->m & 15) {
      case A_AND:
        total &= x;
        break;
      case A_OR:
        total |= x;
        break;
      case A_XOR:
        total ^= x;
        break;
      case A_ADD:
        total += x;
        break;
      case A_MIN:
        total = is_signed ? ((int32_t)x < (int32_t)total ? x : total) : x < total ? x : total;
        break;
      default:
        total = is_signed ? ((int32_t)x > (int32_t)total ? x : total) : x > total ? x : total;
        break;
    }
  }
  give_all(meeting, total, 0, group);
}

static void elect(const struct meeting *meeting, uint32_t group) {
  uint32_t leader = (uint32_t)__builtin_ctz(group);
  give_all(meeting, leader, 1u << leader, group);
}

void ptx_together(const struct meeting *meeting, uint32_t group) {
  const struct place *at = &meeting->parties[0].at;
  switch (at->in->kind) {
    case K_SHFL:
      shuffle(meeting, group);
      break;
    case K_VOTE:
      vote(meeting, group);
      break;
    case K_MATCH:
      match(meeting, group);
      break;
    case K_REDUX:
      reduce(meeting, group);
      break;
    case K_ELECT:
      elect(meeting, group);
      break;
    case K_WARP_BARRIER:
      if (at->warp->block->check != NULL) ptx_check_met(at->warp, group);
      break;
    default:
      break;
  }
}

static uint64_t uniform(const struct place *at, uint32_t number) {
  const struct block *block = at->warp->block;
  const struct launch_state *l = block->launch;
  const uint32_t *grid = l->launch->grid, *size = l->launch->block;
  switch (number) {
    case SR_NTID_X:
    case SR_NTID_Y:
    case SR_NTID_Z:
      return size[number - SR_NTID_X];
    case SR_CTAID_X:
    case SR_CTAID_Y:
    case SR_CTAID_Z:
      return block->id[number - SR_CTAID_X];
    case SR_NCTAID_X:
    case SR_NCTAID_Y:
    case SR_NCTAID_Z:
      return grid[number - SR_NCTAID_X];
    case SR_CLUSTERID_X:
    case SR_CLUSTERID_Y:
    case SR_CLUSTERID_Z:
      return block->id[number - SR_CLUSTERID_X] / l->cluster[number - SR_CLUSTERID_X];
    case SR_NCLUSTERID_X:
    case SR_NCLUSTERID_Y:
    case SR_NCLUSTERID_Z:
      return grid[number - SR_NCLUSTERID_X] / l->cluster[number - SR_NCLUSTERID_X];
    case SR_CLUSTER_CTAID_X:
    case SR_CLUSTER_CTAID_Y:
    case SR_CLUSTER_CTAID_Z:
      return block->id[number - SR_CLUSTER_CTAID_X] % l->cluster[number - SR_CLUSTER_CTAID_X];
    case SR_CLUSTER_NCTAID_X:
    case SR_CLUSTER_NCTAID_Y:
    case SR_CLUSTER_NCTAID_Z:
      return l->cluster[number - SR_CLUSTER_NCTAID_X];
    case SR_CLUSTER_CTARANK:
      return ptx_cluster_rank(block);
    case SR_CLUSTER_NCTARANK:
      return l->cluster_blocks;
    case SR_IS_EXPLICIT_CLUSTER:
      return l->launch->cluster[0] != 0 || l->info->cluster[0] != 0;
    case SR_WARPID:
      return at->warp->number;
    case SR_NWARPID:
      return block->warp_count;
    case SR_NSMID:
      return 1;
    case SR_GRIDID:
      return 1;
    case SR_CLOCK:
      return (uint32_t)(ptx_now() - l->begun);
    case SR_CLOCK_HI:
      return (ptx_now() - l->begun) >> 32;
    case SR_CLOCK64:
      return ptx_now() - l->begun;
    case SR_GLOBALTIMER:
      return ptx_now();
    case SR_GLOBALTIMER_LO:
      return (uint32_t)ptx_now();
    case SR_GLOBALTIMER_HI:
      return ptx_now() >> 32;
    case SR_DYNAMIC_SMEM_SIZE:
      return l->launch->dynamic_shared;
    case SR_TOTAL_SMEM_SIZE:
      return l->own_shared;
    case SR_AGGREGATE_SMEM_SIZE:
      return l->own_shared + l->info->reserved_shared;
    case SR_RESERVED_BEGIN:
      return l->reserved_offset;
    case SR_RESERVED_END:
      return l->shared_bytes;
    case SR_RESERVED_SIZE:
      return l->info->reserved_shared;
    case SR_RESERVED_OFFSET_1:
      return l->reserved_offset + PTX_RESERVED_SHARED / 2;
    case SR_DYNAMIC_SHARED:
      return l->dynamic_offset;
      /* where cooperative groups find the grid's workspace */
    case SR_ENVREG1:
      return l->launch->workspace >> 32;
    case SR_ENVREG2:
      return (uint32_t)l->launch->workspace;
    default:
      return 0;
  }
}

/* Writes all lanes; the caller blends. */
void ptx_special(const struct place *at) {
  const struct ptx_instruction *in = at->in;
  uint32_t *d = (void *)at->worker->scratch;
  switch (in->m) {
    case SR_TID_X:
    case SR_TID_Y:
    case SR_TID_Z:
      memcpy(d, at->warp->tid[in->m - SR_TID_X], sizeof at->warp->tid[0]);
      return;
    case SR_LANEID:
      for (uint32_t i = 0; i < PTX_LANES; i++) d[i] = i;
      return;
    case SR_LANEMASK_EQ:
      for (uint32_t i = 0; i < PTX_LANES; i++) d[i] = 1u << i;
      return;
    case SR_LANEMASK_LT:
      for (uint32_t i = 0; i < PTX_LANES; i++) d[i] = (1u << i) - 1;
      return;
    case SR_LANEMASK_LE:
      for (uint32_t i = 0; i < PTX_LANES; i++) d[i] = (uint32_t)((2ull << i) - 1);
      return;
    case SR_LANEMASK_GE:
      for (uint32_t i = 0; i < PTX_LANES; i++) d[i] = FULL << i;
      return;
    case SR_LANEMASK_GT:
      for (uint32_t i = 0; i < PTX_LANES; i++) d[i] = (uint32_t)((uint64_t)FULL << (i + 1));
      return;
    default:
      break;
  }
  uint64_t value = uniform(at, in->m);
  if (in->size == 8) {
    uint64_t *wide = (void *)at->worker->scratch;
    for (int i = 0; i < PTX_LANES; i++) wide[i] = value;
  } else {
    for (int i = 0; i < PTX_LANES; i++) d[i] = (uint32_t)value;
  }
}
