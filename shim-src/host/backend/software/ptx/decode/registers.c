/* Assigns registers to places in a frame: 32 lanes each, one after the other. */
#include <string.h>

#include "host/backend/software/ptx/text/parser.h"

typedef void reference_visitor(void *data, uint32_t *reference, bool defines);

/* Visits every reference of an instruction: d is written, the others are read. */
void ptx_each_reference(struct parser *p, struct ptx_instruction *in, reference_visitor *visit, void *data);
void ptx_each_reference(struct parser *p, struct ptx_instruction *in, reference_visitor *visit, void *data) {
  visit(data, &in->a, false);
  visit(data, &in->b, false);
  visit(data, &in->c, false);
  bool list = in->kind != K_BRX && in->kind != K_CALL && in->kind != K_CALL_INDIRECT;
  for (uint32_t i = 0; list && i < in->x_count; i++) {
    uint32_t *x = &p->x[in->x + i];
    if ((*x & 3) == REF_FRAME && (*x & PTX_DEFINED) == 0) visit(data, x, false);
  }
  visit(data, &in->d, true);
  for (uint32_t i = 0; list && i < in->x_count; i++) {
    uint32_t *x = &p->x[in->x + i];
    if ((*x & 3) == REF_FRAME && (*x & PTX_DEFINED) != 0) visit(data, x, true);
  }
}

struct placing {
  struct parser *p;
  uint32_t *place;
  uint32_t end;
};

static uint32_t place_of(struct placing *placing, uint32_t number) {
  uint32_t *place = &placing->place[number];
  if (*place == 0) {
    uint32_t bytes = placing->p->registers[number];
    *place = placing->end;
    placing->end += bytes == 0 ? 64 : bytes * PTX_LANES;
    if (placing->end > 1u << 28)
      ptx_fail(placing->p, PTX_UNSUPPORTED, "the registers of a function take too much room");
  }
  return *place;
}

static void put(void *data, uint32_t *reference, bool defines) {
  (void)defines;
  if ((*reference & 3) != REF_FRAME) return;
  *reference = place_of(data, (*reference & ~PTX_DEFINED) >> 2) | REF_FRAME;
}

void ptx_place_registers(struct parser *p) {
  /*
   * The first 64 bytes are unused, because 0 means no place yet. Parameters of calls come first, at their
   * offsets.
   */
  uint32_t start = (p->frame_params + 127) / 64 * 64;
  struct placing placing = {p, ptx_scratch(p, (p->register_count + 1) * sizeof *placing.place), start};
  for (uint32_t i = 0; i < p->code_count; i++) {
    struct ptx_instruction *in = &p->code[i];
    ptx_each_reference(p, in, put, &placing);
    if (in->guard != 0) in->guard = place_of(&placing, in->guard >> 2) | (in->guard & 3);
  }
  p->function->frame_bytes = placing.end;
  p->function->registers = (placing.end - start) / 128 < 255 ? (placing.end - start) / 128 + 8 : 255;
}
