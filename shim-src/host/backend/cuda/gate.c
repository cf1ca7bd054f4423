/*
 * Words for which streams wait until a host function of the guest has run. They lie in memory of this
 * process, and this thread stores into them without a call of the driver. Streams share hardware channels:
 * a write of another stream could wait behind the stream that waits for it (CUDA driver API, "Stream Memory
 * Operations": a deadlock by a false dependency).
 */
#include <stdlib.h>
#include <string.h>

#include "host/backend/cuda/session.h"

#define MOST_WORDS 4096u
#define PORTABLE 1u  /* CU_MEMHOSTALLOC_PORTABLE: for all contexts */
#define DEVICEMAP 2u /* CU_MEMHOSTALLOC_DEVICEMAP */
#define NON_BLOCKING 1u

struct vgpu_cuda_gates {
  struct vgpu_cuda_gates *next;
  uint64_t context;
  uint64_t address; /* for the device */
  uint64_t size;
  uint32_t *words;            /* NULL: the driver maps no memory, and `stream` writes them */
  struct vgpu_stream *stream; /* else NULL */
  uint32_t closed;            /* count of words that a stream may be waiting for */
  uint32_t awaited[];         /* the value that it waits for; 0: none */
};

/*
 * For a driver that is this project's own library, whose device cannot wait for memory of this process: words
 * of device memory, and a stream that writes them. Its streams share nothing.
 */
static int32_t make_device_words(const struct vgpu_driver_api *api, struct vgpu_cuda_gates *gates) {
  int32_t result = VGPU_DRIVER(api, cuMemAlloc_v2, &gates->address, gates->size);
  if (result != CUDA_SUCCESS) return result;
  result = VGPU_DRIVER(api, cuStreamCreateWithPriority, &gates->stream, NON_BLOCKING, 0);
  if (result == CUDA_SUCCESS)
    result =
        VGPU_DRIVER(api, cuMemsetD32Async, gates->address, 0, gates->size / sizeof(uint32_t), gates->stream);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuStreamSynchronize, gates->stream);
  if (result == CUDA_SUCCESS) return result;
  if (gates->stream != NULL) VGPU_DRIVER(api, cuStreamDestroy_v2, gates->stream);
  VGPU_DRIVER(api, cuMemFree_v2, gates->address);
  return result;
}

static int32_t make_words(const struct vgpu_driver_api *api, struct vgpu_cuda_gates *gates) {
  void *memory = NULL;
  int32_t result = VGPU_DRIVER(api, cuMemHostAlloc, &memory, gates->size, PORTABLE | DEVICEMAP);
  if (result != CUDA_SUCCESS) return result;
  result = VGPU_DRIVER(api, cuMemHostGetDevicePointer_v2, &gates->address, memory, 0);
  if (result == CUDA_SUCCESS) {
    gates->words = memset(memory, 0, gates->size);
    return result;
  }
  VGPU_DRIVER(api, cuMemFreeHost, memory);
  return make_device_words(api, gates);
}

int32_t vgpu_cuda_gate_words(struct vgpu_worker *worker, const struct vgpu_send_gate_words *send,
                             struct vgpu_reply_gate_words *reply) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (send->words == 0 || send->words > MOST_WORDS) return CUDA_ERROR_INVALID_VALUE;
  if (cuda->ranges.count + worker->handles.count >= worker->limits->session_handles)
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_cuda_gates *gates = calloc(1, sizeof *gates + send->words * sizeof gates->awaited[0]);
  if (gates == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  gates->context = send->context;
  gates->size = send->words * sizeof(uint32_t);
  result = make_words(&cuda->api, gates);
  const struct vgpu_range range = {
      .address = gates->address, .size = gates->size, .context = send->context, .kind = VGPU_RANGE_GATES};
  if (result != CUDA_SUCCESS) {
    free(gates);
    return result;
  }
  gates->next = cuda->gates;
  cuda->gates = gates;
  /* If this fails, the words stay until their context ends. */
  if (!vgpu_ranges_add(&cuda->ranges, &range)) return CUDA_ERROR_OUT_OF_MEMORY;
  reply->address = gates->address;
  return CUDA_SUCCESS;
}

static struct vgpu_cuda_gates *find(const struct vgpu_cuda *cuda, uint64_t address) {
  struct vgpu_cuda_gates *gates = cuda == NULL ? NULL : cuda->gates;
  while (gates != NULL && (address < gates->address || address - gates->address >= gates->size))
    gates = gates->next;
  return gates;
}

void vgpu_cuda_gate_closes(struct vgpu_worker *worker, uint64_t context, uint64_t address, uint32_t value) {
  struct vgpu_cuda_gates *gates = find(cuda_of(worker), address);
  if (gates == NULL) {
    struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, context, VGPU_HANDLE_CONTEXT);
    if (handle == NULL || handle->waits) return;
    handle->waits = true;
    cuda_of(worker)->waits_itself++;
    return;
  }
  uint32_t *awaited = &gates->awaited[(address - gates->address) / sizeof(uint32_t)];
  gates->closed += *awaited == 0;
  *awaited = value;
}

void vgpu_cuda_no_wait(struct vgpu_worker *worker, uint64_t context) {
  struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, context, VGPU_HANDLE_CONTEXT);
  if (handle == NULL || !handle->waits) return;
  handle->waits = false;
  cuda_of(worker)->waits_itself--;
}

bool vgpu_cuda_is_held(const struct vgpu_cuda *cuda) {
  const struct vgpu_cuda_gates *gates = cuda->gates;
  while (gates != NULL && gates->closed == 0) gates = gates->next;
  return gates != NULL || cuda->waits_itself != 0;
}

int32_t vgpu_cuda_gate_open(struct vgpu_worker *worker, const struct vgpu_send_gate_open *send) {
  struct vgpu_cuda_gates *gates = find(cuda_of(worker), send->address);
  if (gates == NULL || send->address % sizeof(uint32_t) != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t place = (send->address - gates->address) / sizeof(uint32_t);
  if (gates->awaited[place] != 0 && (int32_t)(send->value - gates->awaited[place]) >= 0) {
    gates->awaited[place] = 0;
    gates->closed--;
  }
  if (gates->words == NULL)
    return VGPU_DRIVER(&cuda_of(worker)->api, cuStreamWriteValue32_v2, gates->stream, send->address,
                       send->value, 0);
  __atomic_store_n(&gates->words[place], send->value, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

static int32_t free_words(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuMemFreeHost, ending->object);
}

void vgpu_cuda_drop_gates(struct vgpu_worker *worker, uint64_t context) {
  struct vgpu_cuda *cuda;
  if (vgpu_cuda_enter(worker, context, &cuda) != CUDA_SUCCESS) return;
  for (struct vgpu_cuda_gates **link = &cuda->gates; *link != NULL;) {
    struct vgpu_cuda_gates *gates = *link;
    if (gates->context != context) {
      link = &gates->next;
      continue;
    }
    *link = gates->next;
    if (gates->words != NULL)
      (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){
                                      .end = free_words,
                                      .context = vgpu_cuda_object(worker, context, VGPU_HANDLE_CONTEXT),
                                      .object = gates->words});
    else VGPU_DRIVER(&cuda->api, cuStreamDestroy_v2, gates->stream);
    free(gates);
  }
}
