#include <string.h>

#include "host/backend/software/ptx/analysis/graph.h"
#include "host/backend/software/ptx/analysis/live.h"

uint32_t ptx_analyses = UINT32_MAX;

/* The sets of a function have blocks * registers bits; beyond these limits they are not made. */
#define MOST_BITS (1ull << 25)
#define MOST_STEPS (1ull << 26) /* of 64 bits */

void ptx_each_reference(struct parser *p, struct ptx_instruction *in, ptx_reference_visitor *visit,
                        void *data) {
  uint32_t *reads[3] = {&in->a, &in->b, &in->c};
  for (uint32_t i = 0; i < 3; i++) {
    if ((*reads[i] & 3) == REF_FRAME) visit(data, reads[i], false);
  }
  bool list = in->kind != K_BRX && in->kind != K_CALL && in->kind != K_CALL_INDIRECT;
  for (uint32_t pass = 0; pass < 2; pass++) {
    const bool define = pass == 1;
    if (define && (in->d & 3) == REF_FRAME) visit(data, &in->d, define);
    for (uint32_t i = 0; list && i < in->x_count; i++) {
      uint32_t *x = &p->x[in->x + i];
      if ((*x & 3) == REF_FRAME && ((*x & PTX_DEFINED) != 0) == define) visit(data, x, define);
    }
  }
}

struct live {
  struct parser *p;
  struct ptx_graph g;
  struct ptx_interval *of;
  uint32_t *exposed;   /* 1 + number in the sets of a register that a block reads before it writes; 0: none */
  uint32_t *written;   /* 1 + the last block that wrote all of a register before the present instruction */
  uint32_t *registers; /* by number in the sets */
  uint32_t count, words; /* of the sets */
  uint64_t *use, *define, *in;
  uint32_t block, pc;
  bool guarded, updates, sets; /* the second pass fills the sets */
  uint64_t steps;
  bool changed;
};

static bool bit(const uint64_t *set, uint32_t n) {
  return (set[n / 64] >> n % 64 & 1) != 0;
}

static void cover(struct ptx_interval *of, uint32_t pc) {
  if (pc < of->from) of->from = pc;
  if (pc > of->to) of->to = pc;
}

static void read(struct live *l, uint32_t number) {
  if (l->written[number] == l->block + 1) return;
  if (l->sets) {
    uint32_t n = l->exposed[number] - 1;
    l->use[(size_t)l->block * l->words + n / 64] |= 1ull << n % 64;
  } else if (l->exposed[number] == 0) {
    l->exposed[number] = ++l->count;
  }
}

static void see(void *data, uint32_t *reference, bool define) {
  struct live *l = data;
  uint32_t number = (*reference & ~PTX_DEFINED) >> 2;
  if (!l->sets) cover(&l->of[number], l->pc);
  if (!define || l->updates) read(l, number);
  if (!define || l->guarded) return;
  l->written[number] = l->block + 1;
  if (l->sets && l->exposed[number] != 0) {
    uint32_t n = l->exposed[number] - 1;
    l->define[(size_t)l->block * l->words + n / 64] |= 1ull << n % 64;
  }
}

static void scan(struct live *l) {
  struct parser *p = l->p;
  memset(l->written, 0, p->register_count * sizeof *l->written);
  for (l->block = 0; l->block < l->g.count; l->block++) {
    for (l->pc = l->g.first[l->block]; l->pc < l->g.first[l->block + 1]; l->pc++) {
      struct ptx_instruction *in = &p->code[l->pc];
      uint32_t guard = in->guard & ~3u;
      l->guarded = in->guard != 0;
      l->updates = in->kind == K_WGMMA; /* it adds to d */
      if (l->guarded) see(l, &guard, false);
      ptx_each_reference(p, in, see, l);
    }
  }
}

/* Adds the registers that are live at the start of `to` and not written in `from`. */
static void flow(void *data, uint32_t from, uint32_t to) {
  struct live *l = data;
  if (to == l->g.count || l->steps > MOST_STEPS) return;
  l->steps += l->words;
  const uint64_t *next = l->in + (size_t)to * l->words, *define = l->define + (size_t)from * l->words;
  uint64_t *in = l->in + (size_t)from * l->words;
  for (uint32_t i = 0; i < l->words; i++) {
    uint64_t more = next[i] & ~define[i] & ~in[i];
    if (more == 0) continue;
    in[i] |= more;
    l->changed = true;
  }
}

/* A register that is live at the start of `to` is live at the end of `from`. */
static void extend(void *data, uint32_t from, uint32_t to) {
  struct live *l = data;
  if (to == l->g.count) return;
  const uint64_t *next = l->in + (size_t)to * l->words;
  for (uint32_t i = 0; i < l->words; i++) {
    for (uint64_t left = next[i]; left != 0; left &= left - 1) {
      struct ptx_interval *of = &l->of[l->registers[i * 64 + (uint32_t)__builtin_ctzll(left)]];
      cover(of, l->g.first[from + 1] - 1);
      cover(of, l->g.first[to]);
    }
  }
}

/* False: the sets would be too large, or need too many steps. */
static bool solve(struct live *l) {
  struct parser *p = l->p;
  l->words = (l->count + 63) / 64;
  if ((uint64_t)l->words * 64 * l->g.count > MOST_BITS) return false;
  size_t bytes = (size_t)l->words * l->g.count * sizeof *l->use;
  l->use = ptx_scratch(p, bytes);
  l->define = ptx_scratch(p, bytes);
  l->in = l->use;
  l->sets = true;
  scan(l);
  do {
    l->changed = false;
    for (uint32_t b = l->g.count; b-- > 0;) ptx_successors(p, &l->g, false, b, flow, l);
  } while (l->changed && l->steps <= MOST_STEPS);
  if (l->steps > MOST_STEPS) return false;
  for (uint32_t b = 0; b < l->g.count; b++) ptx_successors(p, &l->g, false, b, extend, l);
  return true;
}

struct ptx_interval *ptx_live(struct parser *p) {
  uint32_t count = p->register_count;
  struct live l = {.p = p, .g = ptx_graph_make(p)};
  l.of = ptx_scratch(p, (count + 1) * sizeof *l.of);
  l.exposed = ptx_scratch(p, (count + 1) * sizeof *l.exposed);
  l.written = ptx_scratch(p, (count + 1) * sizeof *l.written);
  for (uint32_t i = 0; i < count; i++) l.of[i] = (struct ptx_interval){UINT32_MAX, 0};
  scan(&l);
  l.registers = ptx_scratch(p, (l.count + 64) * sizeof *l.registers);
  for (uint32_t i = 0; i < count; i++) {
    if (l.exposed[i] != 0) l.registers[l.exposed[i] - 1] = i;
  }
  bool solved = l.count == 0 || solve(&l);
  for (uint32_t n = 0; n < l.count; n++) {
    if (!solved || bit(l.in, n)) l.of[l.registers[n]] = (struct ptx_interval){0, p->code_count - 1};
  }
  return l.of;
}
