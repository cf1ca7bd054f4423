#include "host/backend/software/ptx/compile/plan.h"

#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/modes.h"
#include "host/backend/software/ptx/special.h"

#define MOST_PLACES (PTX_PLAN_WORDS * 64u)
#define MOST_ARM 32u    /* instructions that a branch carries out with a mask */
#define MOST_LOOP 64u   /* instructions of a loop that is compiled a second time, with a mask */
#define LEAST_LENGTH 6u /* instructions of an entry that is worth the way into compiled code */

void ptx_plan_visit(const struct ptx_function *f, const struct ptx_instruction *in, ptx_place_visitor *visit,
                    void *data) {
  const uint32_t reads[3] = {in->a, in->b, in->c};
  if (in->guard != 0) visit(data, in->guard & ~3u, false);
  for (uint32_t i = 0; i < 3; i++) {
    if ((reads[i] & 3) == REF_FRAME) visit(data, reads[i] & ~3u, false);
  }
  bool list = in->kind != K_BRX && in->kind != K_CALL && in->kind != K_CALL_INDIRECT;
  for (uint32_t pass = 0; pass < 2; pass++) {
    for (uint32_t i = 0; list && i < in->x_count; i++) {
      uint32_t x = f->x[in->x + i];
      bool written = f->x_written[in->x + i] != 0;
      bool read = !written || in->kind == K_WGMMA; /* which adds to what it writes */
      if ((x & 3) == REF_FRAME && (pass == 0 ? read : written)) visit(data, x & ~3u, pass == 1);
    }
    if (pass == 0 && (in->d & 3) == REF_FRAME) visit(data, in->d & ~3u, true);
  }
}

static bool reads_clock(const struct ptx_instruction *in) {
  return in->m >= SR_CLOCK && in->m <= SR_GLOBALTIMER_HI;
}

bool ptx_plan_steps(const struct ptx_plan *p, const struct ptx_instruction *in) {
  if (in->control != 0 && in->control != p->control && (in->kind == K_ALU || in->kind == K_SETP)) return true;
  switch (in->kind) {
    case K_LOAD:
    case K_STORE:
    case K_CARRY:
    case K_SET:
    case K_SET_PAIR:
    case K_SETP_PAIR:
    case K_ATOM:
    case K_ISSPACEP:
    case K_LOCAL_ADDRESS:
    case K_LDMATRIX:
    case K_STMATRIX:
    case K_MOVMATRIX:
    case K_MMA:
    case K_CP_ASYNC:
      return true;
    case K_SPECIAL:
      return !reads_clock(in);
    default:
      return false;
  }
}

uint32_t ptx_plan_source(const struct ptx_plan *p, uint32_t reference) {
  if ((reference & 3) != REF_FRAME) return reference;
  uint32_t constant = p->constant[reference / 64];
  return constant == PTX_NONE || constant == PTX_UNIFORM ? reference : constant;
}

static void note_uniform(void *data, uint32_t place, bool write) {
  const struct ptx_plan *p = data;
  if (write) p->constant[place / 64] = PTX_UNIFORM;
}

/* The first instructions of a function are carried out before all others, with equal results in all lanes. */
static bool find_constants(struct ptx_plan *p) {
  const struct ptx_alu *alu = ptx_alu_best();
  uint32_t units = p->function->frame_bytes / 64 + 1;
  p->constant = malloc(units * sizeof *p->constant);
  if (p->constant == NULL) return false;
  for (uint32_t i = 0; i < units; i++) p->constant[i] = PTX_NONE;
  for (uint32_t pc = 0; pc < p->function->settles; pc++) {
    const struct ptx_instruction *in = &p->code[pc];
    bool moves = false;
    ptx_plan_visit(p->function, in, note_uniform, p);
    for (uint32_t type = 0; type < T_TYPES; type++)
      moves =
          moves || (in->kind == K_ALU && in->u.lanes != NULL && alu->operation[OP_MOV][type] == in->u.lanes);
    if (moves && (in->d & 3) == REF_FRAME && (in->a & 3) == REF_CONSTANT) p->constant[in->d / 64] = in->a;
  }
  return true;
}

bool ptx_plan_meets(const struct ptx_instruction *in) {
  return in->kind == K_SHFL || in->kind == K_VOTE || in->kind == K_MATCH || in->kind == K_REDUX ||
         in->kind == K_ELECT || in->kind == K_WARP_BARRIER;
}

uint32_t ptx_plan_members(const struct ptx_plan *p, const struct ptx_instruction *in) {
  return ptx_plan_source(p, in->kind == K_WARP_BARRIER ? in->a : p->function->x[in->x]);
}

static bool compiles(const struct ptx_plan *p, const struct ptx_instruction *in) {
  if (ptx_plan_meets(in))
    return in->guard == 0 && (in->m & MW_SYNC) != 0 && (ptx_plan_members(p, in) & 3) == REF_CONSTANT;
  switch (in->kind) {
    case K_ALU:
    case K_SETP:
    case K_PRED:
    case K_LABEL:
    case K_BRA:
    case K_LOAD_KERNEL_PARAM:
      return true;
    default:
      return ptx_plan_steps(p, in);
  }
}

static uint32_t frequent_control(const struct ptx_function *f, const struct ptx_instruction *code) {
  uint32_t count[9] = {0}, best = 0;
  for (uint32_t pc = 0; pc < f->code_count; pc++) {
    if (code[pc].control < 9) count[code[pc].control]++;
  }
  for (uint32_t i = 1; i < 9; i++) {
    if (count[i] > 0 && (best == 0 || count[i] > count[best])) best = i;
  }
  return best;
}

/* A short block without ways out that ends at a join. */
static bool is_arm(const struct ptx_plan *p, uint32_t b, uint32_t join) {
  if (b == PTX_NO_PC || join == PTX_NO_PC || b >= join) return false;
  const struct ptx_plan_block *block = &p->blocks[b];
  const struct ptx_instruction *last = &p->code[block->to - 1];
  bool jumps = last->kind == K_BRA;
  return block->compiled && !block->meets && block->to - block->from <= MOST_ARM &&
         (!jumps || last->guard == 0) && block->next[jumps] == join;
}

static void find_arms(struct ptx_plan *p) {
  for (uint32_t b = 0; b < p->block_count; b++) {
    struct ptx_plan_block *block = &p->blocks[b];
    const struct ptx_instruction *last = &p->code[block->to - 1];
    block->loops = block->compiled && last->kind == K_BRA && last->guard != 0 && block->next[1] == b &&
                   !block->meets && block->to - block->from <= MOST_LOOP;
    if (!block->compiled || last->kind != K_BRA || last->guard == 0 || last->join >= p->function->code_count)
      continue;
    uint32_t join = p->block_of[last->join], on = block->next[0], to = block->next[1];
    if (p->blocks[join].from != last->join || join <= b || on <= b || to <= b || !is_arm(p, on, join))
      continue;
    if (to != join && (to == on || !is_arm(p, to, join))) continue;
    block->arm[0] = on;
    if (to != join) block->arm[1] = to;
    block->next[2] = join;
  }
}

static bool make_blocks(struct ptx_plan *p) {
  const struct ptx_function *f = p->function;
  uint32_t count = f->code_count;
  uint8_t *leads = calloc(count + 1, 1);
  p->block_of = malloc((count + 1) * sizeof *p->block_of);
  p->entry = malloc((count + 1) * sizeof *p->entry);
  p->blocks = calloc(count + 1, sizeof *p->blocks);
  if (leads == NULL || p->block_of == NULL || p->entry == NULL || p->blocks == NULL) {
    free(leads);
    return false;
  }
  leads[f->settles] = leads[0] = 1;
  for (uint32_t pc = 0; pc < count; pc++) {
    const struct ptx_instruction *in = &p->code[pc];
    bool alone = !compiles(p, in) || pc < f->settles || ptx_plan_meets(in);
    if (in->kind == K_LABEL || alone) leads[pc] = 1;
    if (in->kind == K_BRA || alone) leads[pc + 1] = 1;
    if (in->kind == K_BRA) leads[in->target] = 1;
    for (uint32_t i = 0; in->kind == K_BRX && i < in->x_count; i++) leads[f->x[in->x + i]] = 1;
  }
  for (uint32_t pc = 0; pc < count; pc++) {
    if (leads[pc]) {
      struct ptx_plan_block *block = &p->blocks[p->block_count++];
      *block = (struct ptx_plan_block){.from = pc,
                                       .meets = ptx_plan_meets(&p->code[pc]),
                                       .compiled = compiles(p, &p->code[pc]) && pc >= f->settles,
                                       .next = {PTX_NO_PC, PTX_NO_PC, PTX_NO_PC},
                                       .arm = {PTX_NO_PC, PTX_NO_PC}};
    }
    p->block_of[pc] = p->block_count - 1;
    p->blocks[p->block_count - 1].to = pc + 1;
  }
  p->block_of[count] = PTX_NO_PC;
  for (uint32_t b = 0; b < p->block_count; b++) {
    struct ptx_plan_block *block = &p->blocks[b];
    const struct ptx_instruction *last = &p->code[block->to - 1];
    bool ends = last->guard == 0 && (last->kind == K_BRA || last->kind == K_BRX || last->kind == K_RET ||
                                     last->kind == K_EXIT || last->kind == K_TRAP);
    if (!ends) block->next[0] = p->block_of[block->to];
    if (last->kind == K_BRA) block->next[1] = p->block_of[last->target];
  }
  find_arms(p);
  free(leads);
  return true;
}

/* Straight instructions from a block on, up to one that the interpreter carries out. */
static uint32_t length(const struct ptx_plan *p, uint32_t b) {
  uint32_t n = 0;
  while (b != PTX_NO_PC && p->blocks[b].compiled && n < LEAST_LENGTH) {
    const struct ptx_instruction *last = &p->code[p->blocks[b].to - 1];
    n += p->blocks[b].to - p->blocks[b].from;
    if (last->kind == K_BRA && last->target <= p->blocks[b].to) return LEAST_LENGTH;
    b = last->kind == K_BRA && last->guard == 0 ? p->blocks[b].next[1] : p->blocks[b].next[0];
  }
  return n;
}

static bool choose_entries(struct ptx_plan *p) {
  bool any = false;
  memset(p->entry, 0xff, p->function->code_count * sizeof *p->entry);
  for (uint32_t b = 0; b < p->block_count; b++) {
    struct ptx_plan_block *block = &p->blocks[b];
    uint32_t pc = block->from + (p->code[block->from].kind == K_LABEL);
    if (!block->compiled || pc == block->to || p->code[pc].kind == K_BRA || ptx_plan_meets(&p->code[pc]))
      continue;
    if (length(p, b) < LEAST_LENGTH) continue;
    any = block->entered = true;
    p->entry[pc] = b;
  }
  return any;
}

struct naming {
  struct ptx_plan *p;
  bool failed;
};
static void name(void *data, uint32_t place, bool write) {
  struct naming *n = data;
  (void)write;
  uint32_t *number = &n->p->number[place / 64];
  if (*number != PTX_NO_PC) return;
  if (n->p->place_count == MOST_PLACES) {
    n->failed = true;
    return;
  }
  *number = n->p->place_count;
  n->p->places[n->p->place_count++] = place;
}

static bool name_places(struct ptx_plan *p) {
  const struct ptx_function *f = p->function;
  uint32_t units = f->frame_bytes / 64 + 1;
  p->number = malloc(units * sizeof *p->number);
  p->places = malloc(MOST_PLACES * sizeof *p->places);
  if (p->number == NULL || p->places == NULL) return false;
  memset(p->number, 0xff, units * sizeof *p->number);
  struct naming n = {.p = p};
  for (uint32_t pc = 0; pc < f->code_count; pc++) ptx_plan_visit(f, &p->code[pc], name, &n);
  p->words = (p->place_count + 63) / 64;
  return !n.failed;
}

struct scan {
  struct ptx_plan *p;
  uint64_t *use, *define, *written;
  bool guarded;
};
static void see(void *data, uint32_t place, bool write) {
  struct scan *s = data;
  uint32_t n = s->p->number[place / 64];
  uint64_t bit = 1ull << n % 64;
  if (write) s->written[n / 64] |= bit;
  if (write && !s->guarded) s->define[n / 64] |= bit;
  else if ((s->define[n / 64] & bit) == 0) s->use[n / 64] |= bit;
}

/* in = use | (out & ~define), where out is what the blocks that follow need. */
static bool backward(const struct ptx_plan *p, uint64_t *in, uint64_t *out, const uint64_t *use,
                     const uint64_t *define) {
  bool changed = false;
  for (uint32_t b = p->block_count; b-- > 0;) {
    for (uint32_t i = 0; i < p->words; i++) {
      size_t at = (size_t)b * p->words + i;
      uint64_t follow = 0;
      for (uint32_t k = 0; k < 3; k++) {
        uint32_t next = p->blocks[b].next[k];
        if (next != PTX_NO_PC) follow |= in[(size_t)next * p->words + i];
      }
      const struct ptx_instruction *last = &p->code[p->blocks[b].to - 1];
      if (last->kind == K_BRX) follow = ~0ull; /* any block may follow */
      out[at] = follow;
      uint64_t now = use[at] | (follow & ~define[at]);
      if (now == in[at]) continue;
      in[at] = now;
      changed = true;
    }
  }
  return changed;
}

static bool solve(struct ptx_plan *p) {
  size_t words = (size_t)p->words * p->block_count;
  if (words > 1u << 20) return false;
  uint64_t *sets = calloc(words * 5 + 1, sizeof *sets);
  if (sets == NULL) return false;
  p->live = sets;
  p->live_end = sets + words;
  p->written = sets + 2 * words;
  uint64_t *use = sets + 3 * words, *define = use + words;
  for (uint32_t b = 0; b < p->block_count; b++) {
    size_t at = (size_t)b * p->words;
    for (uint32_t pc = p->blocks[b].from; pc < p->blocks[b].to; pc++) {
      struct scan s = {p, use + at, define + at, p->written + at, p->code[pc].guard != 0};
      ptx_plan_visit(p->function, &p->code[pc], see, &s);
    }
  }
  while (backward(p, p->live, p->live_end, use, define)) continue;
  /* A branch where the code leaves is carried out by the interpreter, which reads its guard. */
  for (uint32_t b = 0; b < p->block_count; b++) {
    const struct ptx_instruction *last = &p->code[p->blocks[b].to - 1];
    if (last->kind != K_BRA || last->guard == 0) continue;
    uint32_t n = p->number[(last->guard & ~3u) / 64];
    p->live_end[(size_t)b * p->words + n / 64] |= 1ull << n % 64;
  }
  return true;
}

const uint64_t *ptx_plan_live(const struct ptx_plan *p, uint32_t pc) {
  const uint32_t b = p->block_of[pc], from = p->blocks[b].from;
  const bool begins = pc == from || (pc == from + 1 && p->code[from].kind == K_LABEL);
  return (begins ? p->live : p->live_end) + (size_t)b * p->words;
}

void ptx_plan_written(const struct ptx_plan *p, uint32_t block, uint32_t reconvergence, uint64_t *set) {
  uint64_t seen[PTX_PLAN_INSTRUCTIONS / 64 + 1] = {0};
  uint32_t first = block, last = block;
  memset(set, 0, p->words * sizeof *set);
  seen[block / 64] |= 1ull << block % 64;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = first; b <= last; b++) {
      if ((seen[b / 64] >> b % 64 & 1) == 0) continue;
      for (uint32_t k = 0; k < 3; k++) {
        const uint32_t next = p->blocks[b].next[k];
        if (next == PTX_NO_PC || !p->blocks[next].compiled || (seen[next / 64] >> next % 64 & 1) != 0)
          continue;
        const uint32_t from = p->blocks[next].from;
        if (from == reconvergence && p->code[from].kind == K_LABEL) continue;
        seen[next / 64] |= 1ull << next % 64;
        if (next < first) first = next;
        if (next > last) last = next;
        changed = true;
      }
    }
  }
  for (uint32_t b = first; b <= last; b++) {
    for (uint32_t i = 0; (seen[b / 64] >> b % 64 & 1) != 0 && i < p->words; i++)
      set[i] |= p->written[(size_t)b * p->words + i];
  }
}

bool ptx_plan_make(struct ptx_plan *plan, const struct ptx_function *f, const struct ptx_instruction *code) {
  *plan = (struct ptx_plan){.function = f, .code = code};
  if (f->code_count > PTX_PLAN_INSTRUCTIONS || f->widths == NULL) return false;
  plan->control = frequent_control(f, code);
  if (find_constants(plan) && make_blocks(plan) && name_places(plan) && choose_entries(plan) && solve(plan))
    return true;
  ptx_plan_free(plan);
  return false;
}

void ptx_plan_free(struct ptx_plan *plan) {
  free(plan->blocks);
  free(plan->block_of);
  free(plan->entry);
  free(plan->places);
  free(plan->number);
  free(plan->constant);
  free(plan->live); /* with the other sets */
  *plan = (struct ptx_plan){0};
}
