/* Values in device memory decide which frames run next. */
#include <string.h>
#include <time.h>

#include "cuda_handlers.h"
#include "host/backend/common/graph.h"
#include "host/session/worker.h"
#include "cuda_results.h"
#include "wire/clock.h"

#define DEPTH_MAX 64u                  /* levels of bodies within bodies */
#define LIMIT_NS (600ull * 1000000000) /* for a launch, as for a kernel, because a loop may be endless */

struct vgpu_condition vgpu_frame_condition(const struct vgpu_graph_frame *frame) {
  struct vgpu_send_graph_condition send;
  memcpy(&send, frame->bytes, sizeof send);
  return (struct vgpu_condition){
      .context = send.context, .handle = send.handle, .kind = send.kind, .bodies = send.bodies};
}

uint32_t vgpu_frame_body(const struct vgpu_graph_frame *frame) {
  struct vgpu_send_graph_body send;
  memcpy(&send, frame->bytes, sizeof send);
  return send.nodes;
}

static bool counts_fit(const struct vgpu_condition *condition) {
  switch (condition->kind) {
    case VGPU_CONDITION_IF:
      return condition->bodies == 1 || condition->bodies == 2;
    case VGPU_CONDITION_WHILE:
      return condition->bodies == 1;
    case VGPU_CONDITION_SWITCH:
      return condition->bodies > 0;
    default:
      return false;
  }
}

/* Checks the frames [at, end); *at moves to the end. */
static bool range_fits(const struct vgpu_exec_object *exec, uint32_t at, uint32_t end, uint32_t depth) {
  while (at < end) {
    const struct vgpu_graph_frame *frame = &exec->frames[at++];
    uint32_t opcode = vgpu_frame_opcode(frame);
    if (opcode == VGPU_OP_graph_values) {
      if (depth > 0) return false;
    } else if (opcode != VGPU_OP_graph_condition) {
      if (!vgpu_graph_recordable(frame)) return false;
    } else {
      const struct vgpu_condition condition = vgpu_frame_condition(frame);
      if (depth == DEPTH_MAX || !counts_fit(&condition)) return false;
      for (uint32_t i = 0; i < condition.bodies; i++) {
        if (at == end || vgpu_frame_opcode(&exec->frames[at]) != VGPU_OP_graph_body) return false;
        uint32_t nodes = vgpu_frame_body(&exec->frames[at++]);
        if (nodes > end - at || !range_fits(exec, at, at + nodes, depth + 1)) return false;
        at += nodes;
      }
    }
  }
  return true;
}

static bool is_structure(const struct vgpu_graph_frame *frame) {
  uint32_t opcode = vgpu_frame_opcode(frame);
  return opcode == VGPU_OP_graph_values || opcode == VGPU_OP_graph_condition || opcode == VGPU_OP_graph_body;
}

int32_t vgpu_conditions_check(struct vgpu_exec_object *exec) {
  for (uint32_t i = 0; i < exec->count; i++)
    exec->has_conditions = exec->has_conditions || is_structure(&exec->frames[i]);
  return !exec->has_conditions || range_fits(exec, 0, exec->count, 0) ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}

bool vgpu_conditions_fit(const struct vgpu_graph_frame *old, const struct vgpu_graph_frame *new) {
  if (!is_structure(old)) return !is_structure(new) && vgpu_graph_recordable(new);
  if (vgpu_frame_opcode(old) != vgpu_frame_opcode(new)) return false;
  if (vgpu_frame_opcode(old) == VGPU_OP_graph_body) return vgpu_frame_body(old) == vgpu_frame_body(new);
  if (vgpu_frame_opcode(old) == VGPU_OP_graph_values) return true;
  const struct vgpu_condition a = vgpu_frame_condition(old), b = vgpu_frame_condition(new);
  return a.kind == b.kind && a.bodies == b.bodies;
}

int32_t vgpu_frame_run(struct vgpu_worker *worker, const struct vgpu_graph_frame *frame, uint64_t stream) {
  _Alignas(8) unsigned char body[VGPU_BODY_MAX];
  memcpy(body, frame->bytes, frame->row->send_size);
  memcpy(body + frame->row->stream, &stream, sizeof stream);
  struct vgpu_bulk bulk = {.in = frame->bytes + frame->row->send_size, .in_size = frame->bulk_size};
  return frame->row->run[worker->backend->number](worker, body, NULL, &bulk);
}

/* ---- carrying out ---------------------------------------------------------- */

struct launch {
  struct vgpu_worker *worker;
  const struct vgpu_exec_object *exec;
  uint64_t stream;
  uint64_t deadline;
  int32_t result;
};

static void run_range(struct launch *launch, uint32_t at, uint32_t end);

static bool read_value(struct launch *launch, uint64_t handle, uint32_t *value) {
  if (launch->worker->backend->condition(launch->worker, handle, value)) return true;
  launch->result = CUDA_ERROR_INVALID_HANDLE;
  return false;
}

/*
 * Only kernels change a condition, and only their time is limited by the session's share. A round without a
 * kernel could repeat forever at full speed, so a pause follows it.
 */
static void repeat(struct launch *launch, uint64_t handle, uint32_t at, uint32_t end) {
  const uint64_t *launches = &launch->worker->accounts->slots[launch->worker->slot].launches;
  const struct timespec pause = {.tv_nsec = 10000000};
  uint32_t value;
  while (launch->result == CUDA_SUCCESS && read_value(launch, handle, &value) && value != 0) {
    uint64_t before = *launches;
    run_range(launch, at, end);
    if (*launches == before) nanosleep(&pause, NULL);
    /* A skipped kernel changes no condition. */
    if (launch->worker->code_options->kernels == VGPU_KERNELS_SKIP) return;
    if (launch->result == CUDA_SUCCESS && vgpu_now_ns() > launch->deadline)
      launch->result = CUDA_ERROR_LAUNCH_TIMEOUT;
  }
}

/* Runs the condition whose bodies begin at `at`. Returns the place after all of its bodies. */
static uint32_t run_condition(struct launch *launch, const struct vgpu_condition *condition, uint32_t at) {
  uint32_t value = 0, chosen = condition->bodies;
  if (read_value(launch, condition->handle, &value)) {
    if (condition->kind == VGPU_CONDITION_SWITCH) chosen = value;
    else if (condition->kind == VGPU_CONDITION_IF) chosen = value != 0 ? 0 : 1;
    else chosen = 0;
  }
  for (uint32_t i = 0; i < condition->bodies; i++) {
    uint32_t nodes = vgpu_frame_body(&launch->exec->frames[at++]);
    if (i == chosen && condition->kind == VGPU_CONDITION_WHILE)
      repeat(launch, condition->handle, at, at + nodes);
    else if (i == chosen) run_range(launch, at, at + nodes);
    at += nodes;
  }
  return at;
}

/* Runs the frames. Stops at the first failure, because a condition's value is then not defined. */
static void run_range(struct launch *launch, uint32_t at, uint32_t end) {
  while (launch->result == CUDA_SUCCESS && at < end) {
    const struct vgpu_graph_frame *frame = &launch->exec->frames[at++];
    if (frame->row == NULL) continue;
    if (frame->row->opcode == VGPU_OP_graph_condition) {
      const struct vgpu_condition condition = vgpu_frame_condition(frame);
      at = run_condition(launch, &condition, at);
      continue;
    }
    launch->result = vgpu_frame_run(launch->worker, frame, launch->stream);
  }
}

int32_t vgpu_conditions_launch(struct vgpu_worker *worker, const struct vgpu_exec_object *exec,
                               uint64_t stream) {
  if (worker->backend->condition == NULL) return CUDA_ERROR_NOT_SUPPORTED;
  struct launch launch = {
      .worker = worker, .exec = exec, .stream = stream, .deadline = vgpu_now_ns() + LIMIT_NS};
  run_range(&launch, 0, exec->count);
  return launch.result;
}

/* These frames are valid only in an executable graph. */
int32_t vgpu_common_graph_condition(struct vgpu_worker *worker,
                                    const struct vgpu_send_graph_condition *send) {
  (void)worker, (void)send;
  return CUDA_ERROR_INVALID_VALUE;
}

int32_t vgpu_common_graph_body(struct vgpu_worker *worker, const struct vgpu_send_graph_body *send) {
  (void)worker, (void)send;
  return CUDA_ERROR_INVALID_VALUE;
}
