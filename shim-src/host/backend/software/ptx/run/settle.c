/* Values that are equal in all threads of a launch: analysis/uniform.h. */
#include <string.h>

#include "host/backend/software/ptx/run/warp.h"

void ptx_settle_frame(struct warp *warp, struct frame *frame) {
  struct split root = {.frame = frame};
  struct worker *worker = warp->block->worker;
  const struct ptx_function *f = frame->function;
  frame->settled = true;
  struct place at = {.warp = warp,
                     .split = &root,
                     .worker = worker,
                     .registers = frame->registers,
                     .constants = worker->constants};
  for (at.pc = 0; at.pc < f->settles; at.pc++) {
    const struct ptx_instruction *in = at.in = &f->code[at.pc];
    unsigned char *d = at.registers + (in->d & ~3u);
    if (in->kind == K_ALU) {
      in->u.lanes(d, ptx_operand(&at, in->a), ptx_operand(&at, in->b), ptx_operand(&at, in->c), in->m);
    } else if (in->kind == K_SPECIAL) {
      ptx_special(&at);
      memcpy(d, worker->scratch, (size_t)in->size * PTX_LANES);
    } else {
      ptx_kernel_parameter(&at, FULL);
    }
  }
}
