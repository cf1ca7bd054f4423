#include "host/backend/common/made_images.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_handlers.h"
#include "cuda_results.h"
#include "host/backend/common/code.h"
#include "host/session/worker.h"

struct vgpu_result {
  struct vgpu_result *next;
  uint64_t number;
  uint64_t size;
  unsigned char *bytes;
};

static uint64_t memory_of(uint64_t size) {
  return size + sizeof(struct vgpu_result);
}

int32_t vgpu_made_images_keep(struct vgpu_worker *worker, unsigned char *bytes, uint64_t size,
                              uint64_t *number) {
  struct vgpu_result *result = malloc(sizeof *result);
  if (result == NULL || !vgpu_code_take(worker, memory_of(size))) {
    free(result);
    free(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *number = ++worker->code.last_result;
  *result =
      (struct vgpu_result){.next = worker->code.results, .number = *number, .size = size, .bytes = bytes};
  worker->code.results = result;
  return CUDA_SUCCESS;
}

int32_t vgpu_common_image_read(struct vgpu_worker *worker, const struct vgpu_send_image_read *send,
                               struct vgpu_bulk *bulk) {
  struct vgpu_result **link = &worker->code.results;
  while (*link != NULL && (*link)->number != send->number) link = &(*link)->next;
  struct vgpu_result *result = *link;
  if (result == NULL || send->offset >= result->size) return CUDA_ERROR_INVALID_VALUE;
  uint64_t left = result->size - send->offset;
  bulk->out_size = left < bulk->out_capacity ? (uint32_t)left : bulk->out_capacity;
  if (bulk->out_size > 0) memcpy(bulk->out, result->bytes + send->offset, bulk->out_size);
  if (bulk->out_size < left) return CUDA_SUCCESS;
  *link = result->next;
  vgpu_code_give(worker, memory_of(result->size));
  free(result->bytes);
  free(result);
  return CUDA_SUCCESS;
}
