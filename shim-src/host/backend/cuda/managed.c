/*
 * Managed variables of modules and libraries. The driver keeps them where it wants, so guest and device
 * cannot have one copy of the bytes. The guest maps shared memory at the variable's address, and bytes move
 * when a program may notice: what the program has written goes to the device before work is queued, and what
 * the device has written comes back when the program has waited for it.
 *
 * While a gate is closed, these copies may wait for it in the hardware. This thread opens the gate, so it
 * must not wait for them: later work waits for the copy on the device, and a call that reads is parked.
 */
#include "host/backend/cuda/managed.h"

#include <stdlib.h>
#include <string.h>

#include "api/structures.h"
#include "cuda_calls.h"
#include "host/backend/common/code.h"
#include "host/backend/cuda/module.h"
#include "host/backend/cuda/session.h"
#include "wire/clock.h"

#define PAGE 4096u
#define IS_MANAGED 8 /* CU_POINTER_ATTRIBUTE_IS_MANAGED */
#define MOST_RUNS 16u
#define NO_TIMING 2u       /* CU_EVENT_DISABLE_TIMING */
#define PIECE (256u << 10) /* bytes that a parked call reads at a time */
#define BRIEF_NS 200000u   /* time for copies, beside 1 ns for each byte */
#define GATE_NS 1000000000u

/* Shared memory that the guest has at the address of one variable or more. */
struct pages {
  struct pages *next;
  uint64_t address, bytes;
  uint32_t region;
};

struct variable {
  struct variable *next;
  uint64_t context, address, bytes;
  /*
   * Pinned: the bytes that guest and device had in common, then the guest's newest bytes. A copy to the
   * device that waits behind a gate reads the latter when it is made, and so may bring even newer bytes.
   */
  unsigned char *last;
  uint64_t number;            /* rising; later variables are earlier in the list */
  uint64_t writes;            /* count of changes that went to the device or came from there */
  struct vgpu_event *written; /* recorded after the newest of them; NULL: not needed so far */
  bool writing;               /* work must wait for `written` */
};

/* The copies of one call that reads while a gate is closed. */
struct reading {
  struct reading *next;
  uint64_t note;   /* of the call; 0: a query, which is not parked */
  uint64_t copy;   /* note of the copy in progress; 0: none */
  uint64_t below;  /* variables with lower numbers are not read yet */
  uint64_t number; /* of the variable that is being read */
  uint64_t offset; /* in it */
  uint64_t writes; /* of it, when the copy began */
  uint64_t
      until; /* when the call returns without the rest: the copies may be behind the gate that it opens */
  uint32_t answer_size, saved;
  unsigned char answer[]; /* of the call, `saved` bytes */
};

struct vgpu_cuda_managed {
  struct pages *pages;
  struct variable *variables;
  uint64_t numbers;
  struct reading *readings;
  struct reading *late; /* that was not done when its query was answered */
  unsigned char piece[PIECE];
};

static bool is_managed(const struct vgpu_cuda *cuda, uint64_t address) {
  uint32_t managed = 0;
  return VGPU_DRIVER(&cuda->api, cuPointerGetAttribute, &managed, IS_MANAGED, address) == CUDA_SUCCESS &&
         managed != 0;
}

int32_t vgpu_cuda_managed_variables(struct vgpu_worker *worker,
                                    const struct vgpu_send_managed_variables *send,
                                    struct vgpu_reply_managed_variables *reply, struct vgpu_bulk *bulk) {
  int32_t result =
      vgpu_cuda_variable(worker, send->context, send->code, bulk, &reply->address, &reply->bytes);
  if (result == CUDA_ERROR_NOT_FOUND) return CUDA_SUCCESS; /* the call that asks for its address fails */
  if (result == CUDA_SUCCESS) reply->any = reply->named = is_managed(cuda_of(worker), reply->address);
  return result;
}

int32_t vgpu_cuda_managed_place(struct vgpu_worker *worker, const struct vgpu_send_managed_place *send) {
  (void)worker, (void)send;
  return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- the guest's memory ---------------------------------------------------- */

/* Returns the guest's memory for an address, and how many bytes follow there. NULL: there is none. */
static unsigned char *shadow(struct vgpu_worker *worker, uint64_t address, uint64_t *bytes) {
  const struct pages *pages = cuda_of(worker)->managed->pages;
  while (pages != NULL && (address < pages->address || address - pages->address >= pages->bytes))
    pages = pages->next;
  if (pages == NULL) return NULL;
  struct vgpu_shared_region *region = vgpu_shared_regions_find(&worker->shared_regions, pages->region);
  if (region == NULL || region->bytes != pages->bytes) return NULL;
  *bytes = pages->bytes - (address - pages->address);
  return region->memory + (address - pages->address);
}

static bool is_whole(struct vgpu_worker *worker, uint64_t address, uint64_t bytes) {
  for (uint64_t at = 0, there; at < bytes; at += there)
    if (shadow(worker, address + at, &there) == NULL) return false;
  return true;
}

/* Writes the bytes that differ from `last` to the guest. */
static void bring(unsigned char *guest, const unsigned char *own, const unsigned char *last, uint64_t bytes) {
  for (uint64_t at = 0, end; at < bytes; at = end) {
    end = bytes - at < PAGE ? bytes : at + PAGE;
    if (memcmp(own + at, last + at, end - at) == 0) continue;
    for (uint64_t i = at; i < end; i++)
      if (own[i] != last[i]) guest[i] = own[i];
  }
}

/* Copies a part between the guest's memory and `own`. False: the guest has no memory there any more. */
static bool exchange(struct vgpu_worker *worker, const struct variable *variable, uint64_t offset,
                     uint64_t bytes, unsigned char *own, bool to_guest) {
  const unsigned char *last = variable->last + offset;
  for (uint64_t at = 0, there; at < bytes; at += there) {
    unsigned char *guest = shadow(worker, variable->address + offset + at, &there);
    if (guest == NULL) return false;
    if (there > bytes - at) there = bytes - at;
    if (to_guest) bring(guest, own + at, last + at, there);
    else memcpy(own + at, guest, there);
  }
  return true;
}

/* ---- moving bytes ---------------------------------------------------------- */

/* True if this thread must not wait for the device. */
static bool is_held(struct vgpu_worker *worker) {
  return worker->request->frame.lane != 0 && vgpu_cuda_is_held(cuda_of(worker));
}

/* Finds the next run of bytes that differ, from *begin on. False: there is none. */
static bool next_run(const struct variable *variable, const unsigned char *now, uint64_t *begin,
                     uint64_t *end) {
  const unsigned char *last = variable->last;
  while (variable->bytes - *begin >= PAGE && memcmp(now + *begin, last + *begin, PAGE) == 0) *begin += PAGE;
  while (*begin < variable->bytes && now[*begin] == last[*begin]) ++*begin;
  for (*end = *begin; *end < variable->bytes && now[*end] != last[*end];) ++*end;
  return *begin < variable->bytes;
}

/* Work that is queued later waits for the copies in `stream`. */
static int32_t mark(struct vgpu_worker *worker, struct variable *variable, struct vgpu_stream *stream) {
  const struct vgpu_driver_api *api = &cuda_of(worker)->api;
  int32_t result = CUDA_SUCCESS;
  if (variable->written == NULL) result = VGPU_DRIVER(api, cuEventCreate, &variable->written, NO_TIMING);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuEventRecord, variable->written, stream);
  if (result == CUDA_SUCCESS) variable->writing = true;
  return result;
}

/*
 * Writes only the bytes that the program has changed: the device may be changing the others. The last of
 * MOST_RUNS runs extends to the end of the variable.
 */
static int32_t write_changes(struct vgpu_worker *worker, struct variable *variable) {
  unsigned char *now = variable->last + variable->bytes;
  if (!exchange(worker, variable, 0, variable->bytes, now, false)) return CUDA_SUCCESS;
  int32_t result = CUDA_SUCCESS;
  uint64_t begin = 0, end, runs = 0;
  if (!next_run(variable, now, &begin, &end)) return CUDA_SUCCESS;
  struct vgpu_stream *stream = vgpu_cuda_reader(worker, variable->context, &result);
  for (; result == CUDA_SUCCESS && next_run(variable, now, &begin, &end); begin = end) {
    if (++runs == MOST_RUNS) end = variable->bytes;
    result = VGPU_DRIVER(&cuda_of(worker)->api, cuMemcpyHtoDAsync_v2, variable->address + begin, now + begin,
                         end - begin, stream);
  }
  variable->writes++;
  if (result == CUDA_SUCCESS)
    result = is_held(worker) ? mark(worker, variable, stream)
                             : VGPU_DRIVER(&cuda_of(worker)->api, cuStreamSynchronize, stream);
  /* Otherwise the next call finds these changes again. */
  if (result == CUDA_SUCCESS) memcpy(variable->last, now, variable->bytes);
  return result;
}

static int32_t read_changes(struct vgpu_worker *worker, struct variable *variable) {
  unsigned char *now = variable->last + variable->bytes;
  int32_t result;
  struct vgpu_stream *stream = vgpu_cuda_reader(worker, variable->context, &result);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_driver_api *api = &cuda_of(worker)->api;
  result = VGPU_DRIVER(api, cuMemcpyDtoHAsync_v2, now, variable->address, variable->bytes, stream);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuStreamSynchronize, stream);
  if (result != CUDA_SUCCESS || !exchange(worker, variable, 0, variable->bytes, now, true)) return result;
  /* Bytes that the program has changed meanwhile differ from these, and go to the device later. */
  memcpy(variable->last, now, variable->bytes);
  variable->writes++;
  return result;
}

static bool is_live(const struct vgpu_cuda *cuda, const struct variable *variable) {
  const struct vgpu_range *range = vgpu_ranges_find(&cuda->ranges, variable->address);
  return range != NULL && range->kind == VGPU_RANGE_VARIABLE && range->address == variable->address &&
         range->size == variable->bytes;
}

static int32_t free_bytes(const struct vgpu_driver_api *api, const struct vgpu_cuda_ending *ending) {
  return VGPU_DRIVER(api, cuMemFreeHost, ending->object);
}

/* The driver frees the pinned bytes when no copy uses them any more. */
static void drop(struct vgpu_worker *worker, struct variable **link) {
  struct vgpu_cuda *cuda;
  struct variable *variable = *link;
  *link = variable->next;
  vgpu_code_give(worker, 2 * variable->bytes);
  (void)vgpu_cuda_enter(worker, variable->context, &cuda);
  if (variable->written != NULL) VGPU_DRIVER(&cuda_of(worker)->api, cuEventDestroy_v2, variable->written);
  (void)vgpu_cuda_end(worker, &(struct vgpu_cuda_ending){
                                  .end = free_bytes,
                                  .context = vgpu_cuda_object(worker, variable->context, VGPU_HANDLE_CONTEXT),
                                  .object = variable->last});
  free(variable);
}

/* Returns the first error of the variables of `context`; an error of another context is that context's own.
 */
static int32_t move_all(struct vgpu_worker *worker, uint64_t context,
                        int32_t (*move)(struct vgpu_worker *, struct variable *)) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  int32_t first = CUDA_SUCCESS;
  for (struct variable **link = &cuda->managed->variables; *link != NULL;) {
    struct variable *variable = *link;
    if (is_live(cuda, variable) && vgpu_cuda_enter(worker, variable->context, &cuda) == CUDA_SUCCESS) {
      const int32_t result = move(worker, variable);
      if (first == CUDA_SUCCESS && variable->context == context) first = result;
      link = &variable->next;
    } else drop(worker, link);
  }
  return first;
}

/*
 * The work that a call queues comes after the copies to the device that are in progress. Returns an error if
 * the call must not be carried out, because its work could find old bytes. An error of another context is
 * that context's own.
 */
static int32_t order_work(struct vgpu_worker *worker, uint64_t context, uint64_t number) {
  struct vgpu_cuda *cuda;
  struct vgpu_stream *stream;
  int32_t result = CUDA_SUCCESS;
  for (struct variable *variable = cuda_of(worker)->managed->variables;
       result == CUDA_SUCCESS && variable != NULL; variable = variable->next) {
    if (!variable->writing) continue;
    const int written = vgpu_cuda_query_event(worker, variable->written);
    variable->writing = written == CUDA_ERROR_NOT_READY;
    if (!variable->writing) {
      if (variable->context == context) result = written;
      continue;
    }
    result = vgpu_cuda_enter_stream(worker, context, number, &cuda, &stream);
    if (result == CUDA_SUCCESS)
      result = VGPU_DRIVER(&cuda->api, cuStreamWaitEvent, stream, variable->written, 0);
  }
  return result;
}

int32_t vgpu_cuda_managed_before(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row,
                                 const void *body) {
  if (!row->oneway || row->stream < 0 || cuda_of(worker)->recording != NULL) return CUDA_SUCCESS;
  uint64_t context, stream;
  memcpy(&context, body, sizeof context);
  memcpy(&stream, (const unsigned char *)body + row->stream, sizeof stream);
  const int32_t result = move_all(worker, context, write_changes);
  return result == CUDA_SUCCESS ? order_work(worker, context, stream) : result;
}

/* ---- reading while a gate is closed ------------------------------------------ */

static struct reading *find_reading(const struct vgpu_worker *worker, uint64_t note) {
  struct reading *reading = note == 0 ? NULL : cuda_of(worker)->managed->readings;
  while (reading != NULL && reading->note != note) reading = reading->next;
  return reading;
}

/* `answer`: of a call that is parked; NULL: it is not. */
static struct reading *begin_reading(struct vgpu_worker *worker, const struct vgpu_bulk *answer) {
  struct vgpu_cuda_managed *managed = cuda_of(worker)->managed;
  /* In shared memory the answer stays where it is. */
  const bool stays = answer == NULL || (worker->request->frame.flags & VGPU_FLAG_SHARED_REGION) != 0;
  const uint32_t saved = stays ? 0 : answer->out_size;
  if (!vgpu_code_take(worker, saved)) return NULL;
  struct reading *reading = malloc(sizeof *reading + saved);
  if (reading == NULL) {
    vgpu_code_give(worker, saved);
    return NULL;
  }
  *reading = (struct reading){.next = managed->readings, .below = UINT64_MAX, .saved = saved};
  if (answer != NULL) reading->answer_size = answer->out_size;
  if (saved > 0) memcpy(reading->answer, answer->out, saved);
  managed->readings = reading;
  return reading;
}

static void end_reading(struct vgpu_worker *worker, struct reading *reading) {
  struct reading **link = &cuda_of(worker)->managed->readings;
  while (*link != reading) link = &(*link)->next;
  *link = reading->next;
  if (reading->copy != 0) vgpu_cuda_copy_over(worker, reading->copy);
  vgpu_code_give(worker, reading->saved);
  free(reading);
}

/* Reads the next piece of a variable. worker->note is that of the piece's copy. */
static int32_t read_piece(struct vgpu_worker *worker, struct reading *reading, struct variable *variable) {
  struct vgpu_cuda *cuda;
  const uint64_t left = variable->bytes - reading->offset, bytes = left < PIECE ? left : PIECE;
  int32_t result = vgpu_cuda_enter(worker, variable->context, &cuda);
  struct vgpu_stream *stream =
      result == CUDA_SUCCESS ? vgpu_cuda_reader(worker, variable->context, &result) : NULL;
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_box box = {
      .source = {.type = VGPU_MEMORY_DEVICE, .device = variable->address + reading->offset},
      .width = bytes,
      .height = 1,
      .depth = 1};
  struct vgpu_bulk piece = {.out = cuda->managed->piece, .out_capacity = PIECE};
  if (worker->note == 0) reading->writes = variable->writes;
  result = vgpu_cuda_copy_out(worker, variable->context, stream, &box, &piece);
  if (result != CUDA_SUCCESS) return result;
  vgpu_parking_end(worker);
  if (reading->writes != variable->writes)
    return result; /* the bytes changed after the copy began: read the piece again */
  if (!exchange(worker, variable, reading->offset, bytes, piece.out, true)) return CUDA_ERROR_INVALID_VALUE;
  memcpy(variable->last + reading->offset, piece.out, bytes);
  variable->writes++;
  reading->offset += bytes;
  return result;
}

/* Reads the variables that are left. Returns VGPU_WAITS until that is done. */
static int32_t read_on(struct vgpu_worker *worker, struct reading *reading) {
  const struct vgpu_cuda *cuda = cuda_of(worker);
  const uint64_t note = worker->note;
  int32_t result = CUDA_SUCCESS;
  worker->note = reading->copy;
  for (struct variable *variable = cuda->managed->variables; variable != NULL;) {
    if (variable->number >= reading->below || !is_live(cuda, variable)) {
      variable = variable->next;
      continue;
    }
    if (reading->number != variable->number) {
      vgpu_parking_end(worker);
      reading->number = variable->number;
      reading->offset = 0;
    }
    result = read_piece(worker, reading, variable);
    if (result == VGPU_WAITS) break;
    /* An error of the device is sticky: the program's own call reports it. */
    if (result != CUDA_SUCCESS || reading->offset == variable->bytes) reading->below = variable->number;
  }
  reading->copy = worker->note;
  worker->note = note;
  return result == VGPU_WAITS ? result : CUDA_SUCCESS;
}

/*
 * For a call after which the program may release the stream, so it is not parked. Returns NOT_READY if the
 * copies do not end soon; the next such call finishes these copies before it starts new ones.
 */
static int32_t read_briefly(struct vgpu_worker *worker) {
  struct vgpu_cuda_managed *managed = cuda_of(worker)->managed;
  if (managed->late != NULL) {
    if (read_on(worker, managed->late) == VGPU_WAITS) return CUDA_ERROR_NOT_READY;
    end_reading(worker, managed->late);
    managed->late = NULL;
  }
  struct reading *reading = begin_reading(worker, NULL);
  if (reading == NULL) return CUDA_ERROR_NOT_READY;
  uint64_t until = vgpu_now_ns() + BRIEF_NS;
  for (const struct variable *variable = managed->variables; variable != NULL; variable = variable->next)
    until += variable->bytes;
  int32_t result;
  do result = read_on(worker, reading);
  while (result == VGPU_WAITS && vgpu_now_ns() < until);
  if (result != VGPU_WAITS) end_reading(worker, reading);
  else managed->late = reading;
  return result == VGPU_WAITS ? CUDA_ERROR_NOT_READY : result;
}

bool vgpu_cuda_managed_reads(const struct vgpu_worker *worker) {
  return find_reading(worker, worker->note) != NULL;
}

int32_t vgpu_cuda_managed_after(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row,
                                struct vgpu_bulk *bulk) {
  struct reading *reading = find_reading(worker, worker->note);
  switch (row->opcode) {
    case VGPU_OP_cuEventQuery:
    case VGPU_OP_cuStreamQuery:
      if (is_held(worker)) return read_briefly(worker);
      break;
    case VGPU_OP_cuCtxSynchronize:
    case VGPU_OP_cuEventSynchronize:
    case VGPU_OP_cuMemcpyDtoHAsync_v2:
    case VGPU_OP_cuMemcpyDtoH_v2:
    case VGPU_OP_cuStreamSynchronize:
    case VGPU_OP_gate_reached:
    case VGPU_OP_managed_mirror:
    case VGPU_OP_read_fetch:
    case VGPU_OP_read_rows:
      if (reading == NULL && is_held(worker)) {
        reading = begin_reading(worker, bulk);
        if (reading == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
      }
      break;
    default:
      return CUDA_SUCCESS;
  }
  if (reading == NULL) {
    (void)move_all(worker, 0, read_changes); /* an error of the device is sticky: the next call returns it */
    return CUDA_SUCCESS;
  }
  if (reading->note == 0) {
    vgpu_parking_end(worker);
    worker->note = reading->note = vgpu_cuda_note(cuda_of(worker));
    reading->until = row->opcode == VGPU_OP_gate_reached ? vgpu_now_ns() + GATE_NS : UINT64_MAX;
  }
  if (read_on(worker, reading) == VGPU_WAITS && vgpu_now_ns() < reading->until) return VGPU_WAITS;
  /* A guest may repeat the call with less room for the answer. */
  const bool fits = reading->answer_size <= bulk->out_capacity;
  if (fits) bulk->out_size = reading->answer_size;
  if (fits && reading->saved > 0) memcpy(bulk->out, reading->answer, reading->saved);
  end_reading(worker, reading);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void vgpu_cuda_managed_over(struct vgpu_worker *worker, uint64_t note) {
  if (cuda_of(worker)->managed == NULL) return;
  struct reading *reading = find_reading(worker, note);
  if (reading != NULL) end_reading(worker, reading);
}

/* ---- the beginning and the end ----------------------------------------------- */

static bool make(struct vgpu_cuda *cuda) {
  if (cuda->managed == NULL) cuda->managed = calloc(1, sizeof *cuda->managed);
  return cuda->managed != NULL;
}

static bool overlaps(const struct pages *pages, uint64_t address, uint64_t bytes) {
  while (pages != NULL && (pages->address >= address + bytes || address >= pages->address + pages->bytes))
    pages = pages->next;
  return pages != NULL;
}

static int32_t add_pages(struct vgpu_worker *worker, const struct vgpu_send_managed_mirror *send) {
  struct vgpu_cuda_managed *managed = cuda_of(worker)->managed;
  const struct vgpu_shared_region *region =
      vgpu_shared_regions_find(&worker->shared_regions, send->shared_region);
  if (region == NULL || send->page % PAGE != 0 || send->page + region->bytes < send->page ||
      overlaps(managed->pages, send->page, region->bytes))
    return CUDA_ERROR_INVALID_VALUE;
  struct pages *made = malloc(sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct pages){
      .next = managed->pages, .address = send->page, .bytes = region->bytes, .region = send->shared_region};
  managed->pages = made;
  return CUDA_SUCCESS;
}

static struct variable **find(struct vgpu_cuda_managed *managed, uint64_t address) {
  struct variable **link = &managed->variables;
  while (*link != NULL && (*link)->address != address) link = &(*link)->next;
  return link;
}

static int32_t add_variable(struct vgpu_worker *worker, uint64_t context, const struct vgpu_range *range) {
  struct vgpu_cuda_managed *managed = cuda_of(worker)->managed;
  struct variable **there = find(managed, range->address);
  if (*there != NULL) drop(worker, there);
  struct vgpu_cuda *cuda; /* drop() enters the context of the old variable */
  const int32_t result = vgpu_cuda_enter(worker, context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (!vgpu_code_take(worker, 2 * range->size)) return CUDA_ERROR_OUT_OF_MEMORY;
  struct variable *made = malloc(sizeof *made);
  void *last = NULL;
  if (made == NULL || VGPU_DRIVER(&cuda->api, cuMemHostAlloc, &last, 2 * range->size, 0) != CUDA_SUCCESS) {
    free(made);
    vgpu_code_give(worker, 2 * range->size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memset(last, 0, 2 * range->size);
  *made = (struct variable){.next = managed->variables,
                            .context = context,
                            .address = range->address,
                            .bytes = range->size,
                            .last = last,
                            .number = ++managed->numbers};
  managed->variables = made;
  /* The guest's memory is new and has zeros, or has the bytes of an earlier variable. The call reads it. */
  return exchange(worker, made, 0, made->bytes, last, false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int32_t vgpu_cuda_managed_mirror(struct vgpu_worker *worker, const struct vgpu_send_managed_mirror *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (!make(cuda)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (send->shared_region != 0) result = add_pages(worker, send);
  if (result != CUDA_SUCCESS || send->address == 0) return result;
  const struct vgpu_range *range = vgpu_ranges_find(&cuda->ranges, send->address);
  if (range == NULL || range->kind != VGPU_RANGE_VARIABLE || range->address != send->address ||
      !is_managed(cuda, send->address) || !is_whole(worker, range->address, range->size))
    return CUDA_ERROR_INVALID_VALUE;
  return add_variable(worker, send->context, range);
}

void vgpu_cuda_managed_drop(struct vgpu_worker *worker, uint64_t context) {
  if (cuda_of(worker)->managed == NULL) return;
  for (struct variable **link = &cuda_of(worker)->managed->variables; *link != NULL;) {
    if ((*link)->context == context) drop(worker, link);
    else link = &(*link)->next;
  }
}

void vgpu_cuda_managed_forget(struct vgpu_worker *worker, const struct vgpu_shared_region *region) {
  if (cuda_of(worker)->managed == NULL) return;
  for (struct pages **link = &cuda_of(worker)->managed->pages; *link != NULL;) {
    struct pages *pages = *link;
    if (vgpu_shared_regions_find(&worker->shared_regions, pages->region) != region) {
      link = &pages->next;
      continue;
    }
    *link = pages->next;
    free(pages);
  }
}
