#include "host/backend/cuda/readback.h"

#include <stdlib.h>
#include <string.h>

#include "api/structures.h"
#include "host/backend/common/reads.h"
#include "host/backend/cuda/session.h"
#include "host/backend/cuda/slice.h"

#define MOST_BYTES (64u << 20)
#define MOST_POSTED                                                                                          \
  (16u << 20) /* twice the 8 MiB that a guest posts in all: each read is rounded up to a power of two */
#define SMALLEST 4096u
#define NO_TIMING 2u /* CU_EVENT_DISABLE_TIMING */

struct vgpu_cuda_read {
  struct vgpu_cuda_read *next;
  uint64_t ticket;   /* the guest's, or the note of the call that waits */
  uint64_t reserved; /* of a room: the sequence of the call that reserved it */
  uint64_t context;
  uint64_t size;
  uint64_t capacity;
  void *memory;
  struct vgpu_event *event; /* recorded after the copy */
  struct vgpu_cuda_buffers *of;
};

static uint64_t capacity_for(uint64_t bytes) {
  uint64_t capacity = SMALLEST;
  while (capacity < bytes) capacity *= 2;
  return capacity;
}

/* Takes one out of a list that has a capacity of at least `least` and at most `most` bytes. 0: any ticket. */
static struct vgpu_cuda_read *take(struct vgpu_cuda_read **link, uint64_t context, uint64_t least,
                                   uint64_t most, uint64_t ticket) {
  for (; *link != NULL; link = &(*link)->next) {
    struct vgpu_cuda_read *read = *link;
    if (read->context != context || read->capacity < least || read->capacity > most ||
        (ticket != 0 && read->ticket != ticket))
      continue;
    *link = read->next;
    return read;
  }
  return NULL;
}

static void put(struct vgpu_cuda_read **list, struct vgpu_cuda_read *read) {
  read->next = *list;
  *list = read;
}

/* Uploads arrive in the order in which their rooms were requested. */
static void put_last(struct vgpu_cuda_read **list, struct vgpu_cuda_read *read) {
  while (*list != NULL) list = &(*list)->next;
  read->next = NULL;
  *list = read;
}

static void make_spare(struct vgpu_cuda_read *read) {
  put(&read->of->spare, read);
}

static int32_t free_host_memory(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuMemFreeHost, ending->object);
}

/* Frees a read. A context is current. */
static void dispose(struct vgpu_worker *worker, struct vgpu_cuda_read *read) {
  if (read->event != NULL) VGPU_DRIVER(&cuda_of(worker)->api, cuEventDestroy_v2, read->event);
  if (read->memory != NULL)
    (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){
                                    .end = free_host_memory,
                                    .context = vgpu_cuda_object(worker, read->context, VGPU_HANDLE_CONTEXT),
                                    .object = read->memory});
  free(read);
}

/* Frees a read that is in no list. The driver frees its memory when the device no longer uses it. */
static void discard(struct vgpu_worker *worker, struct vgpu_cuda_read *read) {
  read->of->bytes -= read->capacity;
  dispose(worker, read);
}

/* Drops the reads of a context; 0: of all. */
static void drop_list(struct vgpu_worker *worker, struct vgpu_cuda_read **link, uint64_t context) {
  while (*link != NULL) {
    struct vgpu_cuda_read *read = *link;
    if (context == 0 || read->context == context) {
      *link = read->next;
      discard(worker, read);
    } else {
      link = &read->next;
    }
  }
}

/* Bytes. A quarter of what the session may keep waiting is for posted reads. */
static uint64_t limit_of(const struct vgpu_worker *worker, const struct vgpu_cuda_buffers *buffers) {
  const uint64_t all = worker->limits->outstanding, posted = all / 4, others = all - posted;
  if (buffers == &cuda_of(worker)->reads.posted) return posted < MOST_POSTED ? posted : MOST_POSTED;
  return others < MOST_BYTES ? others : MOST_BYTES;
}

/* Takes a spare buffer or makes one. */
static int32_t take_buffer(struct vgpu_worker *worker, struct vgpu_cuda_buffers *of, uint64_t context,
                           uint64_t bytes, struct vgpu_cuda_read **made) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  const uint64_t capacity = capacity_for(bytes), most = limit_of(worker, of);
  /* Of this size only: short reads must not occupy large buffers. */
  *made = take(&of->spare, context, capacity, capacity, 0);
  if (*made != NULL) return CUDA_SUCCESS;
  /* Spare buffers of other sizes and contexts are freed to make room. */
  if (of->bytes + capacity > most) drop_list(worker, &of->spare, 0);
  if (of->bytes + capacity > most) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_cuda_read *read = calloc(1, sizeof *read);
  if (read == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  read->of = of;
  read->context = context;
  read->capacity = capacity;
  int32_t result = VGPU_DRIVER(&cuda->api, cuMemHostAlloc, &read->memory, capacity, 0);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(&cuda->api, cuEventCreate, &read->event, NO_TIMING);
  if (result != CUDA_SUCCESS) {
    dispose(worker, read);
    return result;
  }
  of->bytes += capacity;
  *made = read;
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_read_later(struct vgpu_worker *worker, const struct vgpu_send_read_later *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = vgpu_cuda_enter_stream(worker, send->context, send->stream, &cuda, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (send->bytes > VGPU_BULK_MAX - sizeof(uint64_t) ||
      !vgpu_ranges_hold(&cuda->ranges, send->source, send->bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct vgpu_cuda_read *read;
  result = take_buffer(worker, &cuda->reads.posted, send->context, send->bytes, &read);
  if (result != CUDA_SUCCESS) return result;
  result = VGPU_DRIVER(&cuda->api, cuMemcpyDtoHAsync_v2, read->memory, send->source, send->bytes, stream);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(&cuda->api, cuEventRecord, read->event, stream);
  if (result != CUDA_SUCCESS) {
    discard(worker, read);
    return result;
  }
  read->ticket = send->ticket;
  read->size = send->bytes;
  read->next = cuda->reads.first;
  cuda->reads.first = read;
  return result;
}

int32_t vgpu_cuda_hand_out(struct vgpu_worker *worker, struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_open(worker, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (bulk->in_size % sizeof(uint64_t) != 0) return CUDA_ERROR_INVALID_VALUE;
  uint32_t at = 0;
  for (uint32_t i = 0; i < bulk->in_size; i += (uint32_t)sizeof(uint64_t)) {
    uint64_t ticket, size = NOT_READ;
    memcpy(&ticket, bulk->in + i, sizeof ticket);
    struct vgpu_cuda_read **link = &cuda->reads.first;
    while (*link != NULL && (*link)->ticket != ticket) link = &(*link)->next;
    struct vgpu_cuda_read *read = *link;
    if (read != NULL) {
      result = VGPU_DRIVER(&cuda->api, cuEventQuery, read->event);
      if (result == CUDA_SUCCESS) size = read->size;
      else if (result != CUDA_ERROR_NOT_READY) return result;
    }
    if (!vgpu_reads_pack(bulk, &at, size, size == NOT_READ ? NULL : read->memory))
      return CUDA_ERROR_INVALID_VALUE;
    if (size == NOT_READ) continue;
    *link = read->next;
    make_spare(read);
  }
  bulk->out_size = at;
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_read_fetch(struct vgpu_worker *worker, const struct vgpu_send_read_fetch *send,
                             struct vgpu_bulk *bulk) {
  (void)send;
  return vgpu_cuda_hand_out(worker, bulk);
}

/* Collects the writes that the device has finished, for use by later ones. */
static void collect_writes(struct vgpu_cuda *cuda) {
  struct vgpu_cuda_reads *reads = &cuda->reads;
  for (struct vgpu_cuda_read **link = &reads->writes; *link != NULL;) {
    struct vgpu_cuda_read *write = *link;
    if (VGPU_DRIVER(&cuda->api, cuEventQuery, write->event) == CUDA_ERROR_NOT_READY) {
      link = &write->next;
      continue;
    }
    *link = write->next;
    make_spare(write);
  }
}

/* Takes memory for a copy, or makes it. NULL: there is no room. */
static struct vgpu_cuda_read *find_room(struct vgpu_worker *worker, uint64_t context, uint64_t bytes) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  collect_writes(cuda);
  struct vgpu_cuda_read *read = NULL;
  (void)take_buffer(worker, &cuda->reads.others, context, bytes, &read);
  return read;
}

/* Copies in progress, and uploads that will arrive, make room when they end. */
static bool will_have_room(const struct vgpu_cuda_reads *reads) {
  return reads->writes != NULL || reads->waiting != NULL || reads->room != NULL;
}

static struct vgpu_cuda_read *take_room(struct vgpu_worker *worker, uint64_t context, uint64_t bytes) {
  const uint32_t lane = vgpu_cuda_slice_lane(worker);
  return lane == 0 ? NULL : take(&cuda_of(worker)->reads.room, context, bytes, UINT64_MAX, lane);
}

void vgpu_cuda_give_room(struct vgpu_worker *worker) {
  struct vgpu_cuda_reads *reads = &cuda_of(worker)->reads;
  if (reads->room == NULL || vgpu_cuda_slice_keeps(vgpu_cuda_slice_lane(worker))) return;
  const uint32_t lane = vgpu_cuda_slice_lane(worker);
  const uint64_t sequence = vgpu_cuda_slice_sequence(worker);
  for (struct vgpu_cuda_read **link = &reads->room; *link != NULL;) {
    struct vgpu_cuda_read *read = *link;
    if (read->ticket != lane || read->reserved >= sequence) {
      link = &read->next;
      continue;
    }
    *link = read->next;
    make_spare(read);
  }
}

static int query_room(struct vgpu_worker *worker, void *what) {
  const struct vgpu_send_upload_room *send = what;
  struct vgpu_cuda_reads *reads = &cuda_of(worker)->reads;
  vgpu_cuda_give_room(worker); /* its upload never arrived */
  struct vgpu_cuda_read *read = find_room(worker, send->context, send->bytes);
  if (read == NULL) return will_have_room(reads) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  read->ticket = worker->request->frame.lane;
  read->reserved = worker->request->frame.sequence;
  put_last(&reads->room, read);
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_upload_room(struct vgpu_worker *worker, const struct vgpu_send_upload_room *send) {
  struct vgpu_cuda *cuda;
  struct vgpu_send_upload_room wanted = *send;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (send->bytes > VGPU_BULK_MAX) return CUDA_ERROR_INVALID_VALUE;
  /* Also while no gate is closed: one may close before the upload arrives. */
  return worker->request->frame.lane == 0 ? CUDA_SUCCESS : vgpu_cuda_wait(worker, query_room, &wanted);
}

static int32_t copy(const struct vgpu_driver_api *api, const struct vgpu_box *box, void *to,
                    struct vgpu_stream *stream) {
  struct vgpu_box whole = *box;
  if (box->source.type == VGPU_MEMORY_DEVICE && box->height == 1 && box->depth == 1)
    return VGPU_DRIVER(api, cuMemcpyDtoHAsync_v2, to, box->source.device, box->width, stream);
  whole.destination = (struct vgpu_box_side){
      .type = VGPU_MEMORY_HOST, .host = to, .pitch = box->width, .height = box->height};
  return VGPU_DRIVER(api, cuMemcpy3DAsync_v2, &whole, stream);
}

/*
 * For a stream whose work, or that of another stream before it in the hardware, may wait for a later call of
 * the guest. NULL: there is no room, or *result has the error.
 */
static struct vgpu_cuda_read *begin_copy(struct vgpu_worker *worker, uint64_t context,
                                         struct vgpu_stream *stream, const struct vgpu_box *box,
                                         uint64_t bytes, int32_t *result) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_cuda_read *read = find_room(worker, context, bytes);
  if (read == NULL) {
    if (will_have_room(&cuda->reads)) *result = VGPU_WAITS;
    return NULL;
  }
  *result = copy(&cuda->api, box, read->memory, stream);
  if (*result == CUDA_SUCCESS) *result = VGPU_DRIVER(&cuda->api, cuEventRecord, read->event, stream);
  if (*result != CUDA_SUCCESS) {
    discard(worker, read);
    return NULL;
  }
  vgpu_parking_end(worker);
  worker->note = read->ticket = vgpu_cuda_note(cuda);
  read->next = cuda->reads.waiting;
  cuda->reads.waiting = read;
  return read;
}

void vgpu_cuda_copy_over(struct vgpu_worker *worker, uint64_t note) {
  struct vgpu_cuda_reads *reads = &cuda_of(worker)->reads;
  struct vgpu_cuda_read **link = &reads->waiting;
  while (*link != NULL && (*link)->ticket != note) link = &(*link)->next;
  struct vgpu_cuda_read *read = *link;
  if (read == NULL) return;
  *link = read->next;
  read->next = reads->writes;
  reads->writes = read;
}

int32_t vgpu_cuda_copy_out(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream,
                           const struct vgpu_box *box, struct vgpu_bulk *bulk) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  const uint64_t bytes = box->width * box->height * box->depth;
  int32_t result = CUDA_SUCCESS;
  struct vgpu_cuda_read *read = worker->note == 0 ? NULL : cuda->reads.waiting;
  while (read != NULL && read->ticket != worker->note) read = read->next;
  if (read == NULL && worker->request->frame.lane != 0 && cuda->recording == NULL && vgpu_cuda_is_held(cuda))
    read = begin_copy(worker, context, stream, box, bytes, &result);
  if (result != CUDA_SUCCESS) return result;
  bulk->out_size = (uint32_t)bytes;
  if (read == NULL) {
    result = vgpu_cuda_await_turn(worker, context, stream);
    struct vgpu_stream *reader = result == CUDA_SUCCESS ? vgpu_cuda_reader(worker, context, &result) : NULL;
    if (result == CUDA_SUCCESS) result = copy(&cuda->api, box, bulk->out, reader);
    return result == CUDA_SUCCESS ? VGPU_DRIVER(&cuda->api, cuStreamSynchronize, reader) : result;
  }
  result = vgpu_cuda_wait(worker, vgpu_cuda_query_event, read->event);
  if (result == CUDA_SUCCESS) memcpy(bulk->out, read->memory, bytes);
  return result;
}

const void *vgpu_cuda_stage(struct vgpu_worker *worker, uint64_t context, struct vgpu_stream *stream,
                            const void *bytes, uint64_t size) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_cuda_reads *reads = &cuda->reads;
  /* While a graph is recorded, the driver allows no query, and no copy is made. */
  if (cuda->recording != NULL) return bytes;
  struct vgpu_cuda_read *write = take_room(worker, context, size);
  if (!vgpu_cuda_is_held(cuda) && vgpu_cuda_query_stream(worker, context, stream) != CUDA_ERROR_NOT_READY) {
    if (write != NULL) make_spare(write);
    return bytes;
  }
  if (write == NULL) write = find_room(worker, context, size);
  if (write == NULL) return bytes;
  memcpy(write->memory, bytes, size);
  put(&reads->writes, write);
  return write->memory;
}

int32_t vgpu_cuda_staged(struct vgpu_worker *worker, struct vgpu_stream *stream, const void *bytes,
                         int32_t result) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  struct vgpu_cuda_read *write = cuda->reads.writes;
  if (write == NULL || write->memory != bytes) return result;
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(&cuda->api, cuEventRecord, write->event, stream);
  if (result == CUDA_SUCCESS) return result;
  /* The copy may have begun, and no event says when the device has read the memory. */
  cuda->reads.writes = write->next;
  discard(worker, write);
  return result;
}

void vgpu_cuda_drop_reads(struct vgpu_worker *worker, uint64_t context) {
  struct vgpu_cuda *cuda;
  if (vgpu_cuda_enter(worker, context, &cuda) != CUDA_SUCCESS) return;
  drop_list(worker, &cuda->reads.first, context);
  drop_list(worker, &cuda->reads.writes, context);
  drop_list(worker, &cuda->reads.waiting, context);
  drop_list(worker, &cuda->reads.room, context);
  drop_list(worker, &cuda->reads.posted.spare, context);
  drop_list(worker, &cuda->reads.others.spare, context);
}
