#include "guest/cuda/stream/gate.h"

#include <stdlib.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"

#define PLACES 1024u
#define BITS 64u
#define CAN_WAIT_FOR_VALUES 122 /* CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS */

enum { NON_BLOCKING = 1 };          /* CU_STREAM_NON_BLOCKING */
enum { WAIT_32 = 1, WRITE_32 = 2 }; /* CUstreamBatchMemOpType */

struct vgpu_gates {
  uint64_t address;        /* of the first word */
  uint64_t stream;         /* writes the words */
  uint64_t ready;          /* event: the words are zero */
  bool zero;               /* that has happened: a gate was open since */
  uint64_t events[PLACES]; /* made when a place is first used; 0: not made */
  uint32_t values[PLACES];
  uint64_t taken[PLACES / BITS];
};

static int post_operation(uint64_t context, uint64_t stream, uint64_t address, uint32_t operation,
                          uint32_t value) {
  const struct vgpu_send_memory_op send = {
      .context = context, .stream = stream, .address = address, .value = value, .operation = operation};
  return vgpu_cuda_post_uncaptured(VGPU_OP_memory_op, &send, sizeof send);
}

#define WORDS_CALLS 4u /* that make_words sends one-way */

static int make_words(uint64_t context, struct vgpu_gates *gates) {
  const struct vgpu_send_cuMemAlloc_v2 allocate = {.context = context, .bytes = PLACES * sizeof(uint32_t)};
  struct vgpu_reply_cuMemAlloc_v2 allocated;
  int result =
      vgpu_cuda_call(VGPU_OP_cuMemAlloc_v2, &allocate, sizeof allocate, &allocated, sizeof allocated);
  if (result != CUDA_SUCCESS) return result;
  gates->address = allocated.address;
  const struct vgpu_send_cuStreamCreate make = {
      .context = context, .number = gates->stream, .flags = NON_BLOCKING};
  const struct vgpu_send_cuMemsetD32Async clear = {
      .context = context, .stream = gates->stream, .destination = gates->address, .count = PLACES};
  result = vgpu_cuda_post_uncaptured(VGPU_OP_cuStreamCreate, &make, sizeof make);
  if (result == CUDA_SUCCESS)
    result = vgpu_cuda_post_uncaptured(VGPU_OP_cuMemsetD32Async, &clear, sizeof clear);
  return result == CUDA_SUCCESS ? vgpu_cuda_post_event(context, gates->ready, gates->stream) : result;
}

static int find_gates(struct vgpu_driver *driver, struct vgpu_context *owner, struct vgpu_gates **found) {
  *found = owner->gates;
  if (owner->gates != NULL) return CUDA_SUCCESS;
  if (vgpu_cuda_device_facts(owner->ordinal)->attributes[CAN_WAIT_FOR_VALUES] == 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  struct vgpu_gates *gates = calloc(1, sizeof *gates);
  if (gates == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  gates->stream = vgpu_cuda_next_number(driver);
  gates->ready = vgpu_cuda_next_number(driver);
  int result = make_words(owner->number, gates);
  if (result == CUDA_SUCCESS) *found = owner->gates = gates;
  else free(gates);
  return result;
}

/* PLACES: none is free. */
static uint32_t free_place(const struct vgpu_gates *gates) {
  for (uint32_t i = 0; i < PLACES / BITS; i++) {
    if (gates->taken[i] != UINT64_MAX) return i * BITS + (uint32_t)__builtin_ctzll(~gates->taken[i]);
  }
  return PLACES;
}

static uint64_t word(const struct vgpu_gates *gates, uint32_t place) {
  return gates->address + place * sizeof(uint32_t);
}

/* Records the event that says that a stream has come to the gate. */
static int post_reached(struct vgpu_driver *driver, uint64_t context, uint64_t stream, uint64_t *event) {
  if (*event == 0) {
    *event = vgpu_cuda_next_number(driver);
    return vgpu_cuda_post_event(context, *event, stream);
  }
  const struct vgpu_send_cuEventRecordWithFlags record = {
      .context = context, .event = *event, .stream = stream};
  return vgpu_cuda_post_uncaptured(VGPU_OP_cuEventRecordWithFlags, &record, sizeof record);
}

static int close_one(struct vgpu_driver *driver, uint64_t stream, struct vgpu_gate *gate) {
  struct vgpu_gates *gates;
  bool first = gate->owner->gates == NULL;
  int result = find_gates(driver, gate->owner, &gates);
  if (result != CUDA_SUCCESS) return result;
  gate->place = free_place(gates);
  if (gate->place == PLACES) return CUDA_ERROR_OUT_OF_MEMORY;
  gate->value = ++gates->values[gate->place];
  __atomic_store_n(&driver->holds, true, __ATOMIC_RELEASE);
  const struct vgpu_send_cuStreamWaitEvent zero = {
      .context = gate->context, .stream = stream, .event = gates->ready};
  if (!gates->zero) result = vgpu_cuda_post_uncaptured(VGPU_OP_cuStreamWaitEvent, &zero, sizeof zero);
  uint64_t *event = &gates->events[gate->place];
  gate->calls = 2u + (*event == 0) + !gates->zero + (first ? WORDS_CALLS : 0);
  if (result == CUDA_SUCCESS) result = post_reached(driver, gate->context, stream, event);
  gate->event = *event;
  if (result == CUDA_SUCCESS)
    result = post_operation(gate->context, stream, word(gates, gate->place), WAIT_32, gate->value);
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
    post_operation(gate->context, gates->stream, word(gates, gate->place), WRITE_32, gate->value);
    gates->zero = true;
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
      post_operation(context->number, gates->stream, word(gates, i), WRITE_32, gates->values[i]);
  }
  context->gates = NULL;
  free(gates);
}
