/* Places in a frame, 32 lanes each. Registers that are never live together share one. */
#include <string.h>

#include "host/backend/software/ptx/analysis/uniform.h"
#include "host/backend/software/ptx/matrix.h"

#define CLASSES 9u /* by bytes per lane, 0 to 8; 0 is a predicate */
#define NOBODY UINT32_MAX

struct placing {
  struct parser *p;
  uint32_t *place; /* of each register; 0: none yet */
  uint32_t end;
  uint8_t *widths;
};

static uint32_t room_of(const struct parser *p, uint32_t number) {
  uint32_t bytes = p->registers[number];
  return bytes == 0 ? 64 : bytes * PTX_LANES;
}

static uint32_t place_of(struct placing *placing, uint32_t number) {
  uint32_t *place = &placing->place[number];
  if (*place == 0) {
    *place = placing->end;
    placing->end += room_of(placing->p, number);
    if (placing->end > 1u << 28)
      ptx_fail(placing->p, PTX_UNSUPPORTED, "the registers of a function take too much room");
  }
  return *place;
}

static void place(void *data, uint32_t *reference, bool define) {
  (void)define;
  place_of(data, (*reference & ~PTX_DEFINED) >> 2);
}

static void put(void *data, uint32_t *reference, bool define) {
  struct placing *placing = data;
  (void)define;
  uint32_t number = (*reference & ~PTX_DEFINED) >> 2, place = place_of(placing, number);
  placing->widths[place / 64] = placing->p->registers[number];
  *reference = place | REF_FRAME;
}

/* wmma is fast where a matrix's registers are adjacent. */
static bool wants_neighbours(const struct ptx_instruction *in) {
  return in->kind == K_WMMA_LOAD || in->kind == K_WMMA_STORE ||
         (in->kind == K_MMA && (in->m >> 24 & MX_WMMA) != 0);
}

struct list {
  uint32_t *first, *next;
};
static struct list new_list(struct parser *p) {
  struct list list = {ptx_scratch(p, (p->code_count + 1) * sizeof *list.first),
                      ptx_scratch(p, (p->register_count + 1) * sizeof *list.next)};
  for (uint32_t pc = 0; pc < p->code_count; pc++) list.first[pc] = NOBODY;
  return list;
}
static void append(struct list *list, uint32_t pc, uint32_t number) {
  list->next[number] = list->first[pc];
  list->first[pc] = number;
}

/*
 * A register gets its place where its interval begins. The place is free after the interval's last
 * instruction, so an instruction never writes to the place of another register that it reads.
 */
static void share(struct placing *placing, const struct ptx_interval *of) {
  struct parser *p = placing->p;
  struct list begin = new_list(p), end = new_list(p);
  uint32_t *next = ptx_scratch(p, (p->register_count + 1) * sizeof *next), unused[CLASSES];
  for (uint32_t i = 0; i < CLASSES; i++) unused[i] = NOBODY;
  for (uint32_t i = p->register_count; i-- > 0;) {
    if (placing->place[i] != 0 || of[i].from > of[i].to) continue;
    append(&begin, of[i].from, i);
    append(&end, of[i].to, i);
  }
  for (uint32_t pc = 0; pc < p->code_count; pc++) {
    for (uint32_t i = begin.first[pc]; i != NOBODY; i = begin.next[i]) {
      uint32_t *from = &unused[p->registers[i]];
      if (*from != NOBODY) {
        placing->place[i] = placing->place[*from];
        *from = next[*from];
      } else {
        place_of(placing, i);
      }
    }
    for (uint32_t i = end.first[pc]; i != NOBODY; i = end.next[i]) {
      next[i] = unused[p->registers[i]];
      unused[p->registers[i]] = i;
    }
  }
}

/* Returns the frame that registers with places of their own would take. Programs get this number. */
static uint32_t estimate(const struct placing *all, uint32_t start) {
  uint32_t count = (all->end - start) / 128;
  return count < 255 ? count + 8 : 255;
}

void ptx_place_registers(struct parser *p) {
  /* Place 0 means none, so 64 bytes are unused. Call parameters come first, at their offsets. */
  uint32_t start = (p->frame_params + 127) / 64 * 64;
  size_t bytes = (p->register_count + 1) * sizeof(uint32_t);
  struct placing placing = {.p = p, .place = ptx_scratch(p, bytes), .end = start};
  struct placing unshared = {.p = p, .place = ptx_scratch(p, bytes), .end = start};
  for (uint32_t i = 0; i < p->code_count; i++) {
    struct ptx_instruction *in = &p->code[i];
    ptx_each_reference(p, in, place, &unshared);
    if (in->guard != 0) place_of(&unshared, in->guard >> 2);
    if (wants_neighbours(in)) ptx_each_reference(p, in, place, &placing);
  }
  if ((ptx_analyses & PTX_ANALYSE_LIVE) != 0) {
    struct ptx_interval *of = ptx_live(p);
    if ((ptx_analyses & PTX_ANALYSE_UNIFORM) != 0 && p->function->entry) ptx_move_uniform(p, of);
    share(&placing, of);
  }
  for (uint32_t i = 0; i < p->code_count; i++) {
    struct ptx_instruction *in = &p->code[i];
    if (in->guard != 0) place_of(&placing, in->guard >> 2);
    ptx_each_reference(p, in, place, &placing);
  }
  p->function->x_written = ptx_take(p, p->x_count + 1);
  for (uint32_t i = 0; i < p->x_count; i++) p->function->x_written[i] = (p->x[i] & PTX_DEFINED) != 0;
  placing.widths = ptx_take(p, placing.end / 64 + 1);
  memset(placing.widths, PTX_NO_REGISTER, placing.end / 64 + 1);
  for (uint32_t i = 0; i < p->code_count; i++) {
    struct ptx_instruction *in = &p->code[i];
    uint32_t guard = in->guard & ~3u;
    if (in->guard != 0) put(&placing, &guard, false);
    ptx_each_reference(p, in, put, &placing);
    if (in->guard != 0) in->guard = guard | (in->guard & 3);
  }
  p->function->widths = placing.widths;
  p->function->frame_bytes = placing.end;
  p->function->registers = estimate(&unshared, start);
}
