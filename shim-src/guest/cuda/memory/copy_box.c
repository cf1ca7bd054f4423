/* Rows that are not adjacent are packed before sending and unpacked at the other end. */
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/memory/box.h"
#include "guest/cuda/memory/transfer.h"
#include "guest/cuda/stream/capture.h"
#include "guest/cuda/texture/array.h"

static bool multiply(size_t a, size_t b, uint64_t *sum) {
  uint64_t product;
  return !__builtin_mul_overflow((uint64_t)a, (uint64_t)b, &product) &&
         !__builtin_add_overflow(*sum, product, sum);
}

static int make_plain(const struct vgpu_transfer *transfer, const struct vgpu_box_side *side,
                      const struct vgpu_box *copy, struct vgpu_box_plain *plain) {
  uint64_t base;
  switch (side->type) {
    case VGPU_MEMORY_HOST:
      base = (uint64_t)(uintptr_t)side->host;
      plain->device = false;
      break;
    case VGPU_MEMORY_DEVICE:
      base = side->device;
      plain->device = true;
      break;
    case VGPU_MEMORY_UNIFIED: {
      struct vgpu_region region;
      base = side->device;
      plain->device =
          vgpu_regions_find(&transfer->driver->regions, base, &region) && vgpu_region_on_device(&region);
      break;
    }
    case VGPU_MEMORY_ARRAY:
      return vgpu_array_plain(transfer, side, copy, plain);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  size_t reach;
  bool rows = copy->height > 1 || copy->depth > 1 || side->y > 0 || side->z > 0;
  bool slices = copy->depth > 1 || side->z > 0;
  if (__builtin_add_overflow(side->x, copy->width, &reach) || (rows && side->pitch < reach) ||
      __builtin_add_overflow(side->y, copy->height, &reach) || (slices && side->height < reach) ||
      side->level != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t slice = 0;
  plain->row = side->pitch;
  plain->start = base;
  if (!multiply(side->pitch, side->height, &slice) || !multiply((size_t)slice, side->z, &plain->start) ||
      !multiply(side->pitch, side->y, &plain->start) || !multiply(1, side->x, &plain->start)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  plain->slice = (size_t)slice;
  uint64_t span = copy->width;
  if (!multiply(plain->slice, copy->depth - 1, &span) || !multiply(plain->row, copy->height - 1, &span) ||
      plain->start + span < plain->start) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  plain->span = span;
  if (plain->device ? !vgpu_regions_is_device(&transfer->driver->regions, plain->start, span) : base == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return plain->device ? CUDA_SUCCESS
                       : vgpu_readback_flush(transfer->driver, vgpu_host_pointer(plain->start), span);
}

static int ask_rows(const struct vgpu_send_read_rows *send, unsigned char *packed, uint32_t bytes) {
  return vgpu_cuda_call_bulk(VGPU_OP_read_rows, send, sizeof *send, packed, bytes);
}

/*
 * Copies rows of one slice between host and device, as many at a time as fit in a frame. `packed` has room
 * for a frame's bulk.
 */
static int carry_rows(const struct vgpu_transfer *transfer, uint64_t destination, size_t destination_row,
                      uint64_t source, size_t source_row, bool to_device, size_t width, size_t height,
                      unsigned char *packed) {
  size_t most = VGPU_BULK_MAX / width;
  while (height > 0) {
    size_t rows = height < most ? height : most;
    uint32_t bytes = (uint32_t)(rows * width);
    int result;
    if (to_device) {
      for (size_t i = 0; i < rows; i++) {
        memcpy(packed + i * width, vgpu_host_pointer(source + i * source_row), width);
      }
      struct vgpu_send_write_rows send = {.context = transfer->context,
                                          .stream = transfer->stream,
                                          .destination = destination,
                                          .pitch = destination_row,
                                          .width = width,
                                          .rows = rows};
      result = vgpu_transfer_keep_pace(transfer, bytes);
      if (result == CUDA_SUCCESS)
        result = vgpu_cuda_post(VGPU_OP_write_rows, &send, sizeof send, packed, bytes);
    } else {
      struct vgpu_send_read_rows send = {.context = transfer->context,
                                         .stream = transfer->stream,
                                         .source = source,
                                         .pitch = source_row,
                                         .width = width,
                                         .rows = rows};
      result = ask_rows(&send, packed, bytes);
      for (size_t i = 0; result == CUDA_SUCCESS && i < rows; i++) {
        memcpy(vgpu_host_pointer(destination + i * destination_row), packed + i * width, width);
      }
    }
    if (result != CUDA_SUCCESS) return result;
    destination += rows * destination_row;
    source += rows * source_row;
    height -= rows;
  }
  return CUDA_SUCCESS;
}

static int carry_long_rows(const struct vgpu_transfer *transfer, uint64_t destination, size_t destination_row,
                           uint64_t source, size_t source_row, bool to_device, size_t width, size_t height) {
  int result = CUDA_SUCCESS;
  for (size_t i = 0; i < height && result == CUDA_SUCCESS; i++) {
    result = to_device ? vgpu_transfer_to_device(transfer, destination, vgpu_host_pointer(source), width)
                       : vgpu_transfer_from_device(transfer, vgpu_host_pointer(destination), source, width);
    destination += destination_row;
    source += source_row;
  }
  return result;
}

static int carry(const struct vgpu_transfer *transfer, const struct vgpu_box_plain *destination,
                 const struct vgpu_box_plain *source, const struct vgpu_box *copy) {
  bool to_device = destination->device;
  unsigned char *packed = NULL;
  if (copy->width <= VGPU_BULK_MAX) {
    size_t all = VGPU_BULK_MAX / copy->width * copy->width;
    if (copy->height < VGPU_BULK_MAX / copy->width) all = copy->height * copy->width;
    packed = malloc(all);
    if (packed == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  int result = CUDA_SUCCESS;
  for (size_t z = 0; z < copy->depth && result == CUDA_SUCCESS; z++) {
    uint64_t to = destination->start + z * destination->slice;
    uint64_t from = source->start + z * source->slice;
    result = packed == NULL ? carry_long_rows(transfer, to, destination->row, from, source->row, to_device,
                                              copy->width, copy->height)
                            : carry_rows(transfer, to, destination->row, from, source->row, to_device,
                                         copy->width, copy->height, packed);
  }
  free(packed);
  return result;
}

static int between_hosts(const struct vgpu_transfer *transfer, const struct vgpu_box_plain *destination,
                         const struct vgpu_box_plain *source, const struct vgpu_box *copy) {
  int result = vgpu_transfer_catch_up(transfer);
  for (size_t z = 0; result == CUDA_SUCCESS && z < copy->depth; z++) {
    for (size_t y = 0; y < copy->height; y++) {
      memmove(vgpu_host_pointer(destination->start + z * destination->slice + y * destination->row),
              vgpu_host_pointer(source->start + z * source->slice + y * source->row), copy->width);
    }
  }
  return result;
}

static int copy_on_device(const struct vgpu_transfer *transfer, const struct vgpu_box_plain *destination,
                          const struct vgpu_box_plain *source, const struct vgpu_box *copy) {
  const struct vgpu_send_copy_box send = {.context = transfer->context,
                                          .stream = transfer->stream,
                                          .destination = destination->start,
                                          .destination_row = destination->row,
                                          .destination_slice = destination->slice,
                                          .source = source->start,
                                          .source_row = source->row,
                                          .source_slice = source->slice,
                                          .width = copy->width,
                                          .height = copy->height,
                                          .depth = copy->depth};
  return vgpu_cuda_post(VGPU_OP_copy_box, &send, sizeof send, NULL, 0);
}

int vgpu_copy_box(const struct vgpu_box *copy, struct vgpu_stream *stream, bool async) {
  struct vgpu_transfer transfer;
  int result = vgpu_transfer_begin(&transfer, stream, async);
  if (result != CUDA_SUCCESS) return result;
  if (copy->width == 0 || copy->height == 0 || copy->depth == 0) return CUDA_SUCCESS;
  struct vgpu_box_plain source = {0}, destination = {0};
  result = make_plain(&transfer, &copy->source, copy, &source);
  if (result == CUDA_SUCCESS) result = make_plain(&transfer, &copy->destination, copy, &destination);
  if (result != CUDA_SUCCESS) return result;
  if (async && !(source.device && destination.device)) {
    /* Rows in this process are packed when the graph is launched, not now. */
    struct vgpu_node_params node = {.type = VGPU_NODE_MEMCPY};
    memcpy(&node.of.copy.copy, copy, sizeof *copy);
    if (vgpu_capture_node(transfer.driver, stream, &node, &result)) return result;
  }
  /* Pinned memory that is also device memory is checked, too: work before the copy may write to it. */
  struct vgpu_host_memory from = {0}, to = {0};
  if (!source.device) from = vgpu_transfer_classify(&transfer, source.start, source.span);
  if (!destination.device) to = vgpu_transfer_classify(&transfer, destination.start, destination.span);
  source.device |= from.lent;
  destination.device |= to.lent;
  if (!source.device && !source.array) result = vgpu_transfer_await_functions(&transfer, &from);
  if (result != CUDA_SUCCESS) return result;
  if (source.array || destination.array) result = vgpu_array_box(&transfer, &destination, &source, copy);
  else if (source.device && destination.device)
    result = copy_on_device(&transfer, &destination, &source, copy);
  else if (!source.device && !destination.device)
    result = between_hosts(&transfer, &destination, &source, copy);
  else result = carry(&transfer, &destination, &source, copy);
  if (result == CUDA_SUCCESS && source.device && !destination.device)
    result = vgpu_transfer_settle(&transfer);
  if (result == CUDA_SUCCESS && !source.device && !source.array)
    result = vgpu_transfer_done(&transfer, &from);
  if (result != CUDA_SUCCESS || async) return result;
  if (from.lent) return vgpu_cuda_wait_stream(transfer.driver, transfer.context, 0);
  return destination.array ? CUDA_SUCCESS : vgpu_transfer_arrive(&transfer, destination.start);
}

static struct vgpu_box_side deepen(const struct vgpu_flat_side *side, size_t height) {
  return (struct vgpu_box_side){.x = side->x,
                                .y = side->y,
                                .type = side->type,
                                .host = side->host,
                                .device = side->device,
                                .array = side->array,
                                .pitch = side->pitch,
                                .height = side->y + height};
}

static int copy2(const void *pCopy, struct vgpu_stream *stream, bool async) {
  if (pCopy == NULL) return vgpu_cuda_ready() != CUDA_SUCCESS ? vgpu_cuda_ready() : CUDA_ERROR_INVALID_VALUE;
  struct vgpu_flat_box flat;
  memcpy(&flat, pCopy, sizeof flat);
  struct vgpu_box copy = {.source = deepen(&flat.source, flat.height),
                          .destination = deepen(&flat.destination, flat.height),
                          .width = flat.width,
                          .height = flat.height,
                          .depth = 1};
  return vgpu_copy_box(&copy, stream, async);
}

static int copy3(const void *pCopy, struct vgpu_stream *stream, bool async, bool peer) {
  if (pCopy == NULL) return vgpu_cuda_ready() != CUDA_SUCCESS ? vgpu_cuda_ready() : CUDA_ERROR_INVALID_VALUE;
  struct vgpu_box copy;
  memcpy(&copy, pCopy, sizeof copy);
  if (peer &&
      ((copy.source.type == VGPU_MEMORY_DEVICE && !vgpu_cuda_context_live(copy.source.owner)) ||
       (copy.destination.type == VGPU_MEMORY_DEVICE && !vgpu_cuda_context_live(copy.destination.owner)))) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return vgpu_copy_box(&copy, stream, async);
}

int cuMemcpy2D_v2(const void *pCopy) {
  return copy2(pCopy, NULL, false);
}

int cuMemcpy2DUnaligned_v2(const void *pCopy) {
  return copy2(pCopy, NULL, false);
}

int cuMemcpy2DAsync_v2(const void *pCopy, struct vgpu_stream *hStream) {
  return copy2(pCopy, hStream, true);
}

int cuMemcpy3D_v2(const void *pCopy) {
  return copy3(pCopy, NULL, false, false);
}

int cuMemcpy3DAsync_v2(const void *pCopy, struct vgpu_stream *hStream) {
  return copy3(pCopy, hStream, true, false);
}

int cuMemcpy3DPeer(const void *pCopy) {
  return copy3(pCopy, NULL, false, true);
}

int cuMemcpy3DPeerAsync(const void *pCopy, struct vgpu_stream *hStream) {
  return copy3(pCopy, hStream, true, true);
}

/* The attributes only say when the source may be read, and the copies are made in order anyway. */
int cuMemcpyBatchAsync_v2(uint64_t *dsts, uint64_t *srcs, size_t *sizes, size_t count, void *attrs,
                          size_t *attrsIdxs, size_t numAttrs, struct vgpu_stream *hStream) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (dsts == NULL || srcs == NULL || sizes == NULL || count == 0 || attrs == NULL || attrsIdxs == NULL ||
      numAttrs == 0 || numAttrs > count || hStream == NULL || hStream == VGPU_STREAM_LEGACY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    result = cuMemcpyAsync(dsts[i], srcs[i], sizes[i], hStream);
  }
  return result;
}

int cuMemcpyWithAttributesAsync(uint64_t dst, uint64_t src, size_t size, void *attr,
                                struct vgpu_stream *hStream) {
  int result = vgpu_cuda_ready();
  if (result == CUDA_SUCCESS && attr == NULL) result = CUDA_ERROR_INVALID_VALUE;
  return result == CUDA_SUCCESS ? cuMemcpyAsync(dst, src, size, hStream) : result;
}

int cuMemcpyBatchAsync(uint64_t *dsts, uint64_t *srcs, size_t *sizes, size_t count, void *attrs,
                       size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, struct vgpu_stream *hStream) {
  int result = cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
  if (result != CUDA_SUCCESS && failIdx != NULL) *failIdx = SIZE_MAX; /* not the error of one copy */
  return result;
}

/*
 * CUmemcpy3DOperand and CUDA_MEMCPY3D_BATCH_OP. A side is memory (1) or an array (2). A place in an array
 * counts elements.
 */
struct batch_side {
  int32_t type;
  union {
    struct {
      uint64_t start;
      size_t row, height; /* in elements; 0: the same as the copy's */
      int32_t hint[2];
    };
    struct {
      void *array;
      size_t place[3];
    };
  };
};
struct batch_box {
  struct batch_side source, destination;
  size_t width, height, depth;
  int32_t order; /* CUmemcpySrcAccessOrder */
  uint32_t flags;
};
_Static_assert(sizeof(struct batch_side) == 40 && sizeof(struct batch_box) == 112, "CUDA_MEMCPY3D_BATCH_OP");

static bool take_array(const struct batch_side *side, struct vgpu_array *array) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  return side->type == 2 && driver != NULL && vgpu_array_take(driver, side->array, VGPU_OBJECT_ARRAY, array);
}

/* Returns the bytes of an element: 1, unless an array is involved. */
static size_t element_of(const struct batch_box *box) {
  struct vgpu_array array;
  if (!take_array(&box->source, &array) && !take_array(&box->destination, &array)) return 1;
  size_t bytes = (size_t)vgpu_format_bytes(array.as.format) * array.as.channels;
  return bytes == 0 ? 1 : bytes;
}

static int check_side(const struct batch_side *side, const struct batch_box *box) {
  struct vgpu_array array;
  if (side->type == 2) return take_array(side, &array) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  bool fits =
      (side->row == 0 || side->row >= box->width) && (side->height == 0 || side->height >= box->height);
  return side->type == 1 && fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct vgpu_box_side plain_side(const struct batch_side *side, const struct batch_box *box,
                                       size_t element) {
  if (side->type == 2) {
    return (struct vgpu_box_side){.type = VGPU_MEMORY_ARRAY,
                                  .array = side->array,
                                  .x = side->place[0] * element,
                                  .y = side->place[1],
                                  .z = side->place[2]};
  }
  return (struct vgpu_box_side){.type = VGPU_MEMORY_UNIFIED,
                                .device = side->start,
                                .pitch = (side->row == 0 ? box->width : side->row) * element,
                                .height = side->height == 0 ? box->height : side->height};
}

static int copy_boxes(size_t count, const struct batch_box *boxes, size_t *failed, uint64_t flags,
                      struct vgpu_stream *stream) {
  int result = vgpu_cuda_ready();
  if (failed != NULL) *failed = SIZE_MAX; /* not the error of one copy */
  if (result != CUDA_SUCCESS) return result;
  if (count == 0 || boxes == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    const struct batch_box *box = &boxes[i];
    bool sound = box->width > 0 && box->height > 0 && box->depth > 0 && box->order >= 1 && box->order <= 3 &&
                 box->flags <= 1;
    result = sound ? check_side(&box->source, box) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) result = check_side(&box->destination, box);
    if (result == CUDA_SUCCESS) continue;
    if (failed != NULL) *failed = i;
    return result;
  }
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    size_t element = element_of(&boxes[i]);
    const struct vgpu_box copy = {.source = plain_side(&boxes[i].source, &boxes[i], element),
                                  .destination = plain_side(&boxes[i].destination, &boxes[i], element),
                                  .width = boxes[i].width * element,
                                  .height = boxes[i].height,
                                  .depth = boxes[i].depth};
    result = cuMemcpy3DAsync_v2(&copy, stream);
    if (result != CUDA_SUCCESS && failed != NULL) *failed = i;
  }
  return result;
}

/* A batch needs a stream of its own. */
static int batch_boxes(size_t count, const struct batch_box *boxes, size_t *failed, uint64_t flags,
                       struct vgpu_stream *stream) {
  bool named = stream != NULL && stream != VGPU_STREAM_LEGACY;
  return copy_boxes(named ? count : 0, boxes, failed, flags, stream);
}

int cuMemcpy3DBatchAsync_v2(size_t numOps, void *opList, uint64_t flags, struct vgpu_stream *hStream) {
  return batch_boxes(numOps, opList, NULL, flags, hStream);
}

int cuMemcpy3DBatchAsync(size_t numOps, void *opList, size_t *failIdx, uint64_t flags,
                         struct vgpu_stream *hStream) {
  return batch_boxes(numOps, opList, failIdx, flags, hStream);
}

int cuMemcpy3DWithAttributesAsync(void *op, uint64_t flags, struct vgpu_stream *hStream) {
  return copy_boxes(1, op, NULL, flags, hStream);
}
