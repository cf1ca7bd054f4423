#include "guest/cuda/stream/gate.h"

#include <stdlib.h>

#include "api/device_attributes.h"
#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"

#define PLACES 1024u
#define BITS 64u

enum { WAIT_32 = 1 }; /* CUstreamBatchMemOpType */

struct vgpu_gates {
  uint64_t address;        /* of the first word */
  uint64_t events[PLACES]; /* made when a place is first used; 0: not made */
  uint32_t values[PLACES];
  uint64_t taken[PLACES / BITS];
};

static int make_words(uint64_t context, struct vgpu_gates *gates) {
  const struct vgpu_send_gate_words send = {.context = context, .words = PLACES};
  struct vgpu_reply_gate_words reply;
  int result = vgpu_cuda_call(VGPU_OP_gate_words, &send, sizeof send, &reply, sizeof reply);
  if (result == CUDA_SUCCESS) gates->address = reply.address;
  return result;
}

static int find_gates(struct vgpu_context *owner, struct vgpu_gates **found) {
  *found = owner->gates;
  if (owner->gates != NULL) return CUDA_SUCCESS;
  if (vgpu_cuda_device_facts(owner->ordinal)->attributes[VGPU_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS] == 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  struct vgpu_gates *gates = calloc(1, sizeof *gates);
  if (gates == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  int result = make_words(owner->number, gates);
  if (result == CUDA_SUCCESS) *found = owner->gates = gates;
  else free(gates);
  return result;
}

/* A free place, or PLACES. */
static uint32_t free_place(const struct vgpu_gates *gates) {
  for (uint32_t i = 0; i < PLACES / BITS; i++) {
    if (gates->taken[i] != UINT64_MAX) return i * BITS + (uint32_t)__builtin_ctzll(~gates->taken[i]);
  }
  return PLACES;
}

static uint64_t word(const struct vgpu_gates *gates, uint32_t place) {
  return gates->address + place * sizeof(uint32_t);
}

/* Records the event by which a stream reports that it has reached the gate. */
static int post_reached(struct vgpu_driver *driver, uint64_t context, uint64_t stream, uint64_t *event) {
  if (*event == 0) {
    *event = vgpu_cuda_next_number(driver);
    return vgpu_cuda_post_event(context, *event, stream);
  }
  const struct vgpu_send_cuEventRecordWithFlags record = {
      .context = context, .event = *event, .stream = stream};
  return vgpu_cuda_post_uncaptured(VGPU_OP_cuEventRecordWithFlags, &record, sizeof record);
}

static int post_wait(uint64_t context, uint64_t stream, uint64_t address, uint32_t value) {
  const struct vgpu_send_memory_op send = {
      .context = context, .stream = stream, .address = address, .value = value, .operation = WAIT_32};
  return vgpu_cuda_post_uncaptured(VGPU_OP_memory_op, &send, sizeof send);
}

static void post_open(uint64_t context, uint64_t address, uint32_t value) {
  const struct vgpu_send_gate_open send = {.context = context, .address = address, .value = value};
  vgpu_cuda_post_uncaptured(VGPU_OP_gate_open, &send, sizeof send);
}

static int close_one(struct vgpu_driver *driver, uint64_t stream, struct vgpu_gate *gate) {
  struct vgpu_gates *gates;
  int result = find_gates(gate->owner, &gates);
  if (result != CUDA_SUCCESS) return result;
  gate->place = free_place(gates);
  if (gate->place == PLACES) return CUDA_ERROR_OUT_OF_MEMORY;
  gate->value = ++gates->values[gate->place];
  __atomic_store_n(&driver->holds, true, __ATOMIC_RELEASE);
  uint64_t *event = &gates->events[gate->place];
  gate->calls = 2u + (*event == 0);
  result = post_reached(driver, gate->context, stream, event);
  gate->event = *event;
  if (result == CUDA_SUCCESS)
    result = post_wait(gate->context, stream, word(gates, gate->place), gate->value);
  if (result == CUDA_SUCCESS) gates->taken[gate->place / BITS] |= UINT64_C(1) << gate->place % BITS;
  return result;
}

int vgpu_gate_close(struct vgpu_driver *driver, struct vgpu_context *owner, uint64_t context, uint64_t stream,
                    struct vgpu_gate *gate) {
  *gate = (struct vgpu_gate){.owner = owner, .context = context};
  pthread_mutex_lock(&driver->lock);
  int result = owner->number == context ? close_one(driver, stream, gate) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  pthread_mutex_unlock(&driver->lock);
  return result;
}

bool vgpu_gate_open(struct vgpu_driver *driver, const struct vgpu_gate *gate) {
  pthread_mutex_lock(&driver->lock);
  struct vgpu_gates *gates = gate->owner->gates;
  bool lives = gates != NULL && gate->owner->number == gate->context;
  if (lives) {
    post_open(gate->context, word(gates, gate->place), gate->value);
    gates->taken[gate->place / BITS] &= ~(UINT64_C(1) << gate->place % BITS);
  }
  pthread_mutex_unlock(&driver->lock);
  return lives;
}

void vgpu_gates_context_ends(struct vgpu_context *context) {
  struct vgpu_gates *gates = context->gates;
  if (gates == NULL) return;
  for (uint32_t i = 0; i < PLACES; i++) {
    if ((gates->taken[i / BITS] >> i % BITS & 1) != 0)
      post_open(context->number, word(gates, i), gates->values[i]);
  }
  context->gates = NULL;
  free(gates);
}
