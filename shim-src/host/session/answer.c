#include "host/session/answer.h"

#include <string.h>

#include "cuda_results.h"

/* Result of a call that we cannot carry out at all, in the language of its range. */
static int32_t refusal(uint32_t opcode, bool known) {
  switch (opcode & VGPU_OP_RANGE_MASK) {
    case VGPU_OP_CUDA:
      return known ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    case VGPU_OP_NVML:
      return known ? 2 : 3; /* NVML_ERROR_INVALID_ARGUMENT, NOT_SUPPORTED */
    default:
      return known ? VGPU_STATUS_INVALID : VGPU_STATUS_UNKNOWN;
  }
}

const struct vgpu_dispatch_row *vgpu_find_row(const void *context, uint32_t opcode) {
  const struct vgpu_worker *worker = context;
  switch (opcode & VGPU_OP_RANGE_MASK) {
    case VGPU_OP_CUDA:
      return worker->library == VGPU_LIBRARY_CUDA ? vgpu_dispatch_cuda(opcode) : NULL;
    case VGPU_OP_NVML:
      return worker->library == VGPU_LIBRARY_NVML ? vgpu_dispatch_nvml(opcode) : NULL;
    default:
      return NULL;
  }
}

/*
 * A frame whose bulk is a span: points `bulk` at the data in the shared region, or at where it is to go. Only
 * for calls that look at neither, which no session can have without shared regions.
 */
static bool enter_shared_region(const struct vgpu_worker *worker, const struct vgpu_request *request,
                                struct vgpu_span *span, struct vgpu_bulk *bulk) {
  const struct vgpu_dispatch_row *row = request->row;
  if (!worker->shared_regions_agreed || row == NULL || request->frame.bulk != sizeof *span) return false;
  bool in = row->raw_in, out = row->raw_out && !row->bulk_in;
  memcpy(span, request->bulk, sizeof *span);
  unsigned char *memory = vgpu_shared_regions_at(&worker->shared_regions, span);
  if (memory == NULL || (!in && !out)) return false;
  if (in) {
    bulk->in = memory;
    bulk->shared_region = span->shared_region;
    bulk->in_size = (uint32_t)span->length;
  } else {
    bulk->in_size = 0;
    bulk->out = memory;
    bulk->out_capacity = (uint32_t)span->length;
  }
  return true;
}

void vgpu_carry_out(struct vgpu_worker *worker, const struct vgpu_request *request, unsigned char *out,
                    uint32_t capacity, struct vgpu_answer *answer) {
  const struct vgpu_frame *frame = &request->frame;
  struct vgpu_bulk *bulk = &answer->bulk;
  answer->status = 0;
  answer->flags = 0;
  answer->body_size = 0;
  *bulk =
      (struct vgpu_bulk){.in = request->bulk, .in_size = frame->bulk, .out = out, .out_capacity = capacity};
  const struct vgpu_dispatch_row *row = request->row;
  bool in_shared_region = (frame->flags & VGPU_FLAG_SHARED_REGION) != 0;
  if ((frame->opcode & VGPU_OP_RANGE_MASK) == VGPU_OP_CONTROL && !in_shared_region) {
    answer->status = vgpu_control(worker, frame->opcode, request->body, frame->body, answer->body,
                                  &answer->body_size, bulk);
    return;
  }
  struct vgpu_span span;
  if (row == NULL || row->send_size != frame->body ||
      row->oneway != ((frame->flags & VGPU_FLAG_ONEWAY) != 0) ||
      (in_shared_region ? !enter_shared_region(worker, request, &span, bulk)
                        : !row->bulk_in && frame->bulk != 0)) {
    answer->status = refusal(frame->opcode, row != NULL);
    return;
  }
  unsigned char *into = bulk->out;
  memset(answer->body, 0, row->reply_size);
  answer->status = worker->backend->run(worker, row, request->body, answer->body, bulk);
  answer->body_size = row->reply_size;
  if (!row->bulk_out) bulk->out_size = 0;
  if (!in_shared_region || !row->bulk_out || answer->status != 0) return;
  if (bulk->out != into) memcpy(into, bulk->out, bulk->out_size);
  answer->span = span;
  answer->span.length = bulk->out_size;
  answer->flags = VGPU_FLAG_SHARED_REGION;
  bulk->out = (unsigned char *)&answer->span;
  bulk->out_size = sizeof answer->span;
}
