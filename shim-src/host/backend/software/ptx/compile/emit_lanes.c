/* Operations across the lanes of a warp, and the registers that tell a lane where it is. */
#include <string.h>

#include "host/backend/software/ptx/compile/emit.h"
#include "host/backend/software/ptx/modes.h"
#include "host/backend/software/ptx/shuffle.h"
#include "host/backend/software/ptx/special.h"

bool ptx_emit_special(struct ptx_emit *e, const struct ptx_instruction *in) {
  if (in->size != 4 || in->m < SR_TID_X || in->m > SR_TID_Z) return false;
  uint32_t at = ptx_emit_value(e, "getelementptr i8, ptr %%tid, i64 %u", (in->m - SR_TID_X) * PTX_LANES * 4);
  ptx_emit_write(e, in->d, 32, ptx_emit_value(e, "load <32 x i32>, ptr %%v%u, align 4", at));
  return true;
}

/* A shuffle of all lanes; `data`: the lane that each lane reads from, and which of them are inside. */
static void shuffle(struct ptx_emit *e, const struct ptx_instruction *in, const void *data) {
  const uint32_t *from = data, to = e->plan->function->x[in->x + 1];
  uint32_t a = ptx_emit_read(e, in->a, 32);
  ptx_emit_write(e, in->d, 32, ptx_emit_shuffle(e, 32, PTX_LANES, a, a, PTX_LANES, from));
  if ((to & 3) == REF_FRAME)
    ptx_emit_write_predicate(e, to, ptx_emit_value(e, "add i32 %u, 0", from[PTX_LANES]));
}

static void vote(struct ptx_emit *e, const struct ptx_instruction *in) {
  uint32_t p = ptx_emit_predicate(e, in->a);
  if ((in->m & MW_NEGATED) != 0) p = ptx_emit_inverse(e, p);
  p = ptx_emit_value(e, "and i32 %%v%u, %%mask", p);
  if ((in->m & 3) == VOTE_BALLOT) {
    ptx_emit_write(e, in->d, 32, ptx_emit_spread(e, 32, p));
    return;
  }
  uint32_t all = ptx_emit_value(e, "icmp eq i32 %%v%u, %%mask", p),
           none = ptx_emit_value(e, "icmp eq i32 %%v%u, 0", p);
  uint32_t r = (in->m & 3) == VOTE_ALL   ? all
               : (in->m & 3) == VOTE_ANY ? ptx_emit_value(e, "xor i1 %%v%u, true", none)
                                         : ptx_emit_value(e, "or i1 %%v%u, %%v%u", all, none);
  ptx_emit_write_predicate(e, in->d, ptx_emit_value(e, "sext i1 %%v%u to i32", r));
}

/* An operation of the warp's lanes, which are all here. */
void ptx_emit_meeting(struct ptx_emit *e, const struct ptx_instruction *in, uint32_t pc) {
  if (in->kind == K_VOTE) {
    vote(e, in);
    return;
  }
  uint32_t b = ptx_plan_source(e->plan, in->b), c = ptx_plan_source(e->plan, in->c);
  if (in->kind != K_SHFL || (b & 3) != REF_CONSTANT || (c & 3) != REF_CONSTANT) {
    ptx_emit_step(e, in, pc);
    return;
  }
  uint32_t distance[PTX_LANES], ends[PTX_LANES], from[PTX_LANES + 1];
  memcpy(distance, e->constants + (b & ~3u), sizeof distance);
  memcpy(ends, e->constants + (c & ~3u), sizeof ends);
  from[PTX_LANES] = ptx_shuffle_sources(in->m & 3, distance, ends, from);
  ptx_emit_either(e, in, pc, ptx_emit_value(e, "icmp ne i32 %%mask, -1"), shuffle, from);
}
