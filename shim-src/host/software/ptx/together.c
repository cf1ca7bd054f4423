/* What lanes of a warp do together, and special registers. */
#include <string.h>

#include "host/software/ptx/special.h"
#include "host/software/ptx/warp.h"

static uint32_t extra(const struct place *at, uint32_t index) {
  return at->split->frame->function->x[at->in->x + index];
}

static void put_predicate(const struct place *at, uint32_t reference, uint32_t value, uint32_t mask) {
  if ((reference & 3) != REF_FRAME) return;
  uint32_t old;
  unsigned char *to = at->registers + (reference & ~3u);
  memcpy(&old, to, 4);
  old = (old & ~mask) | (value & mask);
  memcpy(to, &old, 4);
}

void ptx_shuffle(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  uint32_t a[PTX_LANES], r[PTX_LANES], inside = 0;
  const uint32_t *b = (const void *)ptx_operand(at, in->b), *c = (const void *)ptx_operand(at, in->c);
  memcpy(a, ptx_operand(at, in->a), sizeof a);
  for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
    uint32_t clamp = c[lane] & 31, segment = c[lane] >> 8 & 31, n = b[lane] & 31;
    uint32_t most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    int32_t j;
    bool in_range;
    switch (in->m & 3) {
      case SHFL_UP:
        j = (int32_t)lane - (int32_t)n;
        in_range = j >= (int32_t)most;
        break;
      case SHFL_DOWN:
        j = (int32_t)(lane + n);
        in_range = j <= (int32_t)most;
        break;
      case SHFL_BFLY:
        j = (int32_t)(lane ^ n);
        in_range = j <= (int32_t)most;
        break;
      default:
        j = (int32_t)(least | (n & ~segment));
        in_range = j <= (int32_t)most;
        break;
    }
    if (!in_range) j = (int32_t)lane;
    inside |= (uint32_t)in_range << lane;
    r[lane] = a[j & 31];
  }
  ptx_blend(at->registers + (in->d & ~3u), r, mask, 4);
  put_predicate(at, extra(at, 1) & ~PTX_DEFINED, inside, mask);
}

void ptx_vote(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  uint32_t p;
  memcpy(&p, ptx_operand(at, in->a), 4);
  if ((in->m & MW_NEGATED) != 0) p = ~p;
  p &= mask;
  uint32_t result;
  switch (in->m & 3) {
    case VOTE_ALL:
      result = p == mask ? FULL : 0;
      break;
    case VOTE_ANY:
      result = p != 0 ? FULL : 0;
      break;
    case VOTE_UNI:
      result = p == 0 || p == mask ? FULL : 0;
      break;
    default: {
      uint32_t r[PTX_LANES];
      for (int i = 0; i < PTX_LANES; i++) r[i] = p;
      ptx_blend(at->registers + (in->d & ~3u), r, mask, 4);
      return;
    }
  }
  put_predicate(at, in->d, result, mask);
}

void ptx_match(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  uint64_t value[PTX_LANES];
  uint32_t r[PTX_LANES] = {0}, agreed = 0, bytes = in->type;
  const unsigned char *a = ptx_operand(at, in->a);
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    value[i] = 0;
    memcpy(&value[i], a + i * bytes, bytes);
  }
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    if ((mask >> i & 1) == 0) continue;
    for (uint32_t k = 0; k < PTX_LANES; k++) {
      if ((mask >> k & 1) != 0 && value[k] == value[i]) r[i] |= 1u << k;
    }
  }
  if ((in->m & 1) != 0) {
    bool all = r[__builtin_ctz(mask)] == mask;
    agreed = all ? FULL : 0;
    for (uint32_t i = 0; i < PTX_LANES; i++) r[i] = all ? mask : 0;
  }
  ptx_blend(at->registers + (in->d & ~3u), r, mask, 4);
  put_predicate(at, extra(at, 1) & ~PTX_DEFINED, agreed, mask);
}

void ptx_reduce(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *a = (const void *)ptx_operand(at, in->a);
  uint32_t total = a[__builtin_ctz(mask)];
  bool is_signed = in->type == T_S32;
  for (uint32_t left = mask & (mask - 1); left != 0; left &= left - 1) {
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
  uint32_t r[PTX_LANES];
  for (int i = 0; i < PTX_LANES; i++) r[i] = total;
  ptx_blend(at->registers + (in->d & ~3u), r, mask, 4);
}

void ptx_elect(const struct place *at, uint32_t mask) {
  uint32_t r[PTX_LANES], leader = (uint32_t)__builtin_ctz(mask);
  for (int i = 0; i < PTX_LANES; i++) r[i] = leader;
  ptx_blend(at->registers + (at->in->d & ~3u), r, mask, 4);
  put_predicate(at, extra(at, 1) & ~PTX_DEFINED, 1u << leader, mask);
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
      return block->id[number - SR_CLUSTERID_X];
    case SR_NCLUSTERID_X:
    case SR_NCLUSTERID_Y:
    case SR_NCLUSTERID_Z:
      return grid[number - SR_NCLUSTERID_X];
    case SR_CLUSTER_NCTAID_X:
    case SR_CLUSTER_NCTAID_Y:
    case SR_CLUSTER_NCTAID_Z:
    case SR_CLUSTER_NCTARANK:
      return 1;
    case SR_WARPID:
      return at->warp->number;
    case SR_NWARPID:
      return block->warp_count;
    case SR_NSMID:
      return 1;
    case SR_GRIDID:
      return 1;
    case SR_WARPSZ:
      return PTX_LANES;
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
      return l->shared_bytes;
    case SR_DYNAMIC_SHARED:
      return l->dynamic_offset;
      /* where cooperative groups look for the grid's workspace */
    case SR_ENVREG1:
      return l->launch->workspace >> 32;
    case SR_ENVREG2:
      return (uint32_t)l->launch->workspace;
    default:
      return 0;
  }
}

/* All lanes: whoever calls blends. */
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
