#include "host/backend/software/kernel/pace.h"

#include <time.h>

#include "cuda_calls.h"
#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/software.h"
#include "wire/clock.h"

#define CALL_NS 500u             /* cost of a call besides its handler */
#define LONG_NS 1000000u         /* a call that takes longer makes the session patient */
#define UNPAID_NS 200000u        /* a session with more unpaid time takes a turn */
#define PATIENT_NS 1000000000ull /* for how long, after a long call */

/*
 * Returns the processor time in `elapsed` nanoseconds by the clock. Asks the kernel only if `elapsed` is
 * long.
 */
static uint64_t computed(uint64_t elapsed) {
  static _Thread_local uint64_t before; /* processor time up to the last charge */
  struct timespec now;
  if (elapsed < UNPAID_NS || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) {
    before += elapsed;
    return elapsed;
  }
  const uint64_t all = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  const uint64_t used = all > before ? all - before : 0;
  before = all;
  return used < elapsed ? used : elapsed;
}

struct vgpu_turns vgpu_pace_turns(const struct vgpu_worker *worker) {
  return (struct vgpu_turns){.accounts = worker->accounts, .slot = worker->slot};
}

uint64_t vgpu_pace_charge(struct vgpu_worker *worker, uint64_t elapsed) {
  const struct vgpu_turns turns = vgpu_pace_turns(worker);
  const uint64_t used = computed(elapsed) + ptx_compiler_used(software_of(worker)->compiler);
  vgpu_share_leave(&turns, used);
  return used;
}

static void charge(struct vgpu_worker *worker, uint64_t now) {
  struct vgpu_pace *pace = &software_of(worker)->pace;
  pace->unpaid += now - pace->began;
  pace->began = now;
  if (!pace->holds) return;
  vgpu_pace_charge(worker, pace->unpaid);
  pace->holds = false;
  pace->unpaid = 0;
}

/* Such a call counts as long from the first one on: else a new session for each call would take no turn. */
static bool compiles(const struct vgpu_dispatch_row *row) {
  switch (row->opcode) {
    case VGPU_OP_cuModuleLoadDataEx:
    case VGPU_OP_cuLibraryLoadData:
    case VGPU_OP_cuLibraryGetModule:
    case VGPU_OP_cuModuleGetFunction:
    case VGPU_OP_cuLibraryGetKernel:
    case VGPU_OP_link_images:
    case VGPU_OP_function_load:
      return true;
    default:
      return false;
  }
}

int32_t vgpu_pace_run(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                      void *reply, struct vgpu_bulk *bulk) {
  struct vgpu_pace *pace = &software_of(worker)->pace;
  if (pace->depth > 0) return vgpu_queue_run(worker, row, body, reply, bulk);
  uint64_t began = vgpu_now_ns();
  if (pace->unpaid >= UNPAID_NS || began < pace->patient || compiles(row)) {
    const struct vgpu_turns turns = vgpu_pace_turns(worker);
    vgpu_share_enter(&turns);
    pace->holds = true;
    began = vgpu_now_ns();
  }
  pace->began = began;
  pace->unpaid += CALL_NS;
  pace->depth++;
  int32_t status = vgpu_queue_run(worker, row, body, reply, bulk);
  pace->depth--;
  const uint64_t now = vgpu_now_ns();
  if (now - pace->began >= LONG_NS) pace->patient = now + PATIENT_NS;
  charge(worker, now);
  return status;
}

void vgpu_pace_pause(struct vgpu_worker *worker) {
  charge(worker, vgpu_now_ns());
}

void vgpu_pace_go_on(struct vgpu_worker *worker) {
  software_of(worker)->pace.began = vgpu_now_ns();
}
