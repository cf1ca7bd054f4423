#include "host/backend/cuda/slice.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuda_calls.h"
#include "host/backend/cuda/session.h"
#include "wire/clock.h"

#define STREAMS_MOST 32u
#define LOOK_NS 100000u /* between two checks for other sessions during a turn */
#define NAP_NS 200000u  /* sleep of a waiting launch, between two checks for the guest's calls */
#define KEPT_MOST 65536u
#define FIRST_LAUNCHES 8u /* launches of a turn, while the time of one is not known */

/* A call that is queued after a waiting launch. */
struct kept {
  struct kept *next;
  const struct vgpu_dispatch_row *row;
  uint32_t lane;
  uint32_t bulk_size;
  uint64_t sequence;
  uint64_t data[]; /* body, then bulk */
};

/* A worker has one session. */
static struct {
  pthread_mutex_t lock;    /* a host function is called by a thread of the driver */
  uint32_t over;           /* a futex: counts the turns that have ended */
  struct vgpu_turns turns; /* of the turn that is held */
  bool holds;
  uint64_t began, looked; /* nanoseconds; `looked`: the last check for other sessions */
  uint64_t idle;          /* since when its launches are over; 0: they are not */
  bool closing;           /* the turn ends with its launches */
  uint64_t launches;      /* since it began */
  uint64_t launch_ns;     /* time of one launch, from earlier turns; 0: not known */
  uint64_t pending;       /* host functions of the turn that have not run */
  uint32_t count;         /* streams with launches that no host function follows */
  struct {
    uint64_t context;
    struct vgpu_stream *stream;
  } streams[STREAMS_MOST];
  bool with_mps;
  uint32_t depth; /* calls within calls */
  bool taking;    /* requests, while a launch waits */
  struct kept *first, *last;
  const struct kept *runs; /* the queued call that is carried out; NULL: none */
  size_t kept, bytes;
} slice = {.lock = PTHREAD_MUTEX_INITIALIZER};

void vgpu_cuda_slice_of_mps(const struct vgpu_worker *worker) {
  char text[16];
  slice.with_mps = getenv("CUDA_MPS_PIPE_DIRECTORY") != NULL;
  if (!slice.with_mps || worker->limits->share == 0) return;
  snprintf(text, sizeof text, "%u", worker->limits->share);
  setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", text, 1);
}

/* Without the lock: the turn may end at any time. */
static bool holds(void) {
  return __atomic_load_n(&slice.holds, __ATOMIC_ACQUIRE);
}

static void count(uint64_t used) {
  uint64_t *computed = &slice.turns.accounts->slots[slice.turns.slot].computed;
  __atomic_fetch_add(computed, used, __ATOMIC_RELAXED);
}

/* The caller holds the lock. */
static void end_turn(void) {
  const uint64_t used = (slice.idle != 0 ? slice.idle : vgpu_now_ns()) - slice.began;
  if (slice.launches > 0) slice.launch_ns = used / slice.launches;
  slice.closing = false;
  __atomic_store_n(&slice.holds, false, __ATOMIC_RELEASE);
  slice.idle = 0;
  slice.pending = slice.count = 0;
  count(used);
  vgpu_share_leave(&slice.turns, used);
  __atomic_add_fetch(&slice.over, 1, __ATOMIC_RELEASE);
  syscall(SYS_futex, &slice.over, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* A host function of a turn: all launches before it in its stream are over. */
static void done(void *turn) {
  pthread_mutex_lock(&slice.lock);
  if (slice.holds && slice.over == (uint32_t)(uintptr_t)turn) {
    slice.pending--;
    if (slice.pending == 0 && slice.count == 0) {
      slice.idle = vgpu_now_ns();
      if (slice.closing) end_turn();
      else vgpu_share_idle(&slice.turns);
    }
  }
  pthread_mutex_unlock(&slice.lock);
}

void vgpu_cuda_slice_close(struct vgpu_worker *worker) {
  pthread_mutex_lock(&slice.lock);
  const uint32_t count = slice.holds ? slice.count : 0;
  void *const turn = (void *)(uintptr_t)slice.over;
  slice.pending += count;
  if (count > 0) slice.count = 0;
  pthread_mutex_unlock(&slice.lock);
  for (uint32_t i = 0; i < count; i++) {
    struct vgpu_cuda *cuda;
    int32_t result = vgpu_cuda_enter(worker, slice.streams[i].context, &cuda);
    if (result == CUDA_SUCCESS)
      result = VGPU_DRIVER(&cuda->api, cuLaunchHostFunc, slice.streams[i].stream, (void *)done, turn);
    if (result != CUDA_SUCCESS) done(turn); /* the driver has none, or a fault has ended the context */
  }
}

void vgpu_cuda_slice_end(void) {
  pthread_mutex_lock(&slice.lock);
  if (slice.holds) end_turn();
  pthread_mutex_unlock(&slice.lock);
}

/* ---- calls while a launch waits ------------------------------------------------ */

enum kind {
  NOW,     /* needs no device, and no work before it */
  LATER,   /* queued after the launch */
  WAITS,   /* waits for work of the device */
  ASKS,    /* whether work is over: it is not */
  BLOCKED, /* must wait, and so must the calls after it */
};

static enum kind kind_of(const struct vgpu_dispatch_row *row) {
  switch (row->opcode) {
    case VGPU_OP_image_piece:
    case VGPU_OP_graph_nodes:
    case VGPU_OP_gate_open:
    case VGPU_OP_cuEventCreate:
    case VGPU_OP_cuStreamCreate:
    case VGPU_OP_cuKernelGetAttribute:
    case VGPU_OP_cuLibraryEnumerateKernels:
    case VGPU_OP_cuLibraryGetGlobal:
    case VGPU_OP_cuLibraryGetKernel:
    case VGPU_OP_cuLibraryGetModule:
    case VGPU_OP_cuLibraryLoadData:
    case VGPU_OP_cuMemAddressReserve:
    case VGPU_OP_cuMemAlloc_v2:
    case VGPU_OP_cuMemCreate:
    case VGPU_OP_cuMemGetInfo_v2:
    case VGPU_OP_cuMemPoolGetAttribute:
    case VGPU_OP_cuModuleEnumerateFunctions:
    case VGPU_OP_cuModuleGetFunction:
    case VGPU_OP_cuModuleGetGlobal_v2:
    case VGPU_OP_cuModuleLoadDataEx:
    case VGPU_OP_function_load:
    case VGPU_OP_read_fetch:
    case VGPU_OP_upload_room:
      return NOW;
    case VGPU_OP_cuEventQuery:
    case VGPU_OP_cuStreamQuery:
      return ASKS;
    case VGPU_OP_cuCtxSynchronize:
    case VGPU_OP_cuEventSynchronize:
    case VGPU_OP_cuMemcpyDtoHAsync_v2:
    case VGPU_OP_cuMemcpyDtoH_v2:
    case VGPU_OP_cuStreamSynchronize:
    case VGPU_OP_gate_reached:
    case VGPU_OP_read_rows:
      return WAITS;
    default:
      return row->oneway ? LATER : BLOCKED;
  }
}

static bool accepts(struct vgpu_worker *worker, const struct vgpu_request *request) {
  const struct vgpu_dispatch_row *row = request->row;
  if (row == NULL || row->send_size != request->frame.body) return false;
  switch (kind_of(row)) {
    case NOW:
    case ASKS:
    case WAITS:
      return true;
    case LATER:
      /* Bytes in memory that the guest shares are not read before their time. */
      return (request->frame.flags & VGPU_FLAG_SHARED_REGION) == 0 && slice.kept < KEPT_MOST &&
             slice.bytes + request->frame.length <= worker->limits->outstanding;
    case BLOCKED:
      break;
  }
  return false;
}

uint32_t vgpu_cuda_slice_lane(const struct vgpu_worker *worker) {
  return slice.runs != NULL ? slice.runs->lane : worker->request->frame.lane;
}

uint64_t vgpu_cuda_slice_sequence(const struct vgpu_worker *worker) {
  return slice.runs != NULL ? slice.runs->sequence : worker->request->frame.sequence;
}

bool vgpu_cuda_slice_keeps(uint32_t lane) {
  const struct kept *kept = slice.first;
  while (kept != NULL && kept->lane != lane) kept = kept->next;
  return kept != NULL;
}

static int32_t keep(const struct vgpu_frame *frame, const struct vgpu_dispatch_row *row, const void *body,
                    const struct vgpu_bulk *bulk) {
  const uint32_t bulk_size = row->bulk_in ? bulk->in_size : 0;
  struct kept *kept = malloc(sizeof *kept + row->send_size + bulk_size);
  if (kept == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *kept = (struct kept){.row = row, .lane = frame->lane, .bulk_size = bulk_size, .sequence = frame->sequence};
  memcpy(kept->data, body, row->send_size);
  if (bulk_size > 0) memcpy((unsigned char *)kept->data + row->send_size, bulk->in, bulk_size);
  if (slice.last == NULL) slice.first = kept;
  else slice.last->next = kept;
  slice.last = kept;
  slice.kept++;
  slice.bytes += row->send_size + bulk_size;
  return CUDA_SUCCESS;
}

static void carry_out_kept(struct vgpu_worker *worker, vgpu_cuda_carry_out *carry_out) {
  while (slice.first != NULL) {
    struct kept *kept = slice.first;
    slice.first = kept->next;
    if (slice.first == NULL) slice.last = NULL;
    slice.kept--;
    slice.bytes -= kept->row->send_size + kept->bulk_size;
    struct vgpu_bulk bulk = {.in = (const unsigned char *)kept->data + kept->row->send_size,
                             .in_size = kept->bulk_size};
    slice.runs = kept;
    const int32_t status = carry_out(worker, kept->row, kept->data, NULL, &bulk);
    slice.runs = NULL;
    if (status != CUDA_SUCCESS) vgpu_worker_failed(worker, status);
    if (status != CUDA_SUCCESS && worker->deferred == 0) worker->deferred = status;
    free(kept);
  }
}

int32_t vgpu_cuda_slice_run(struct vgpu_worker *worker, vgpu_cuda_carry_out *carry_out,
                            const struct vgpu_dispatch_row *row, const void *body, void *reply,
                            struct vgpu_bulk *bulk) {
  if (slice.taking) {
    const enum kind kind = kind_of(row);
    if (kind == LATER) return keep(&worker->request->frame, row, body, bulk);
    if (kind != NOW) return kind == ASKS ? CUDA_ERROR_NOT_READY : VGPU_WAITS;
  }
  const bool taking = slice.taking;
  const struct kept *runs = slice.runs; /* a launch that waits */
  slice.taking = false;
  slice.runs = NULL;
  slice.depth++;
  const int32_t status = carry_out(worker, row, body, reply, bulk);
  slice.depth--;
  slice.taking = taking;
  slice.runs = runs;
  if (slice.depth > 0 || slice.first == NULL) return status;
  /* The error of this call comes before errors of queued calls. */
  if (row->oneway && status != CUDA_SUCCESS && worker->deferred == 0) worker->deferred = status;
  slice.depth++;
  carry_out_kept(worker, carry_out);
  slice.depth--;
  return status;
}

/* False: the guest is gone. */
static bool serve_others(struct vgpu_worker *worker) {
  if (worker->serve_nested == NULL || worker->request == NULL || worker->request->row == NULL ||
      !worker->request->row->oneway)
    return true;
  slice.taking = true;
  worker->serve_nested(worker, accepts);
  slice.taking = false;
  return !worker->nested.over;
}

/* ---- turns --------------------------------------------------------------------- */

/* Waits until the launches of the turn are over. */
static void finish_turn(struct vgpu_worker *worker) {
  bool there = true;
  pthread_mutex_lock(&slice.lock);
  slice.closing = true;
  pthread_mutex_unlock(&slice.lock);
  vgpu_cuda_slice_close(worker);
  pthread_mutex_lock(&slice.lock);
  if (slice.holds && slice.pending == 0) end_turn(); /* its launches were over before */
  while (slice.holds && there) {
    const uint32_t over = slice.over;
    pthread_mutex_unlock(&slice.lock);
    const struct timespec limit = {.tv_nsec = NAP_NS};
    syscall(SYS_futex, &slice.over, FUTEX_WAIT_PRIVATE, over, &limit, NULL, 0);
    there = serve_others(worker);
    pthread_mutex_lock(&slice.lock);
  }
  if (slice.holds) end_turn();
  pthread_mutex_unlock(&slice.lock);
}

/* True if the turn goes on with one more launch. */
static bool goes_on(const struct vgpu_turns *turns) {
  const uint64_t now = vgpu_now_ns(), turn_ns = turns->accounts->share.turn_ns;
  pthread_mutex_lock(&slice.lock);
  bool on = slice.holds && slice.turns.device == turns->device && slice.count < STREAMS_MOST &&
            (slice.idle == 0 || !vgpu_share_lost(turns));
  if (on) {
    const uint64_t most = slice.launch_ns == 0 ? FIRST_LAUNCHES : turn_ns / slice.launch_ns + 1;
    const bool full = now - slice.began >= turn_ns || slice.launches >= most;
    const bool looks = full || now - slice.looked >= LOOK_NS;
    if (looks) slice.looked = now;
    const bool wanted = looks && vgpu_share_wanted(turns);
    on = !full || !wanted;
    if (full && !wanted) {
      count(now - slice.began);
      slice.began = now;
      slice.launches = 0;
    }
  }
  pthread_mutex_unlock(&slice.lock);
  return on;
}

bool vgpu_cuda_slice_begin(struct vgpu_worker *worker, uint64_t context) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, context, VGPU_HANDLE_CONTEXT);
  if (slice.with_mps || handle == NULL) return false;
  const struct vgpu_turns turns = {.accounts = worker->accounts,
                                   .slot = worker->slot,
                                   .device =
                                       vgpu_accounts_device(worker->accounts, worker->slot, handle->device)};
  if (!holds() && !vgpu_share_has_others(&turns)) return false;
  if (goes_on(&turns)) return false;
  const uint64_t since = vgpu_now_ns();
  bool taken = !holds() && vgpu_share_try(&turns), there = true;
  if (!taken) vgpu_share_want(&turns);
  if (holds()) finish_turn(worker);
  while (!taken && there) {
    taken = vgpu_share_await(&turns, since, NAP_NS);
    if (!taken) there = serve_others(worker);
  }
  if (!taken) {
    vgpu_share_give_up(&turns);
    return true;
  }
  pthread_mutex_lock(&slice.lock);
  slice.turns = turns;
  __atomic_store_n(&slice.holds, true, __ATOMIC_RELEASE);
  slice.began = slice.looked = vgpu_now_ns();
  slice.idle = slice.launches = 0;
  slice.closing = false;
  pthread_mutex_unlock(&slice.lock);
  return true;
}

void vgpu_cuda_slice_launch(uint64_t context, struct vgpu_stream *stream) {
  if (!holds()) return;
  pthread_mutex_lock(&slice.lock);
  uint32_t i = 0;
  while (i < slice.count && (slice.streams[i].stream != stream || slice.streams[i].context != context)) i++;
  if (slice.holds && i < STREAMS_MOST) {
    if (slice.idle != 0) vgpu_share_busy(&slice.turns);
    slice.idle = 0;
    slice.launches++;
    slice.streams[i].context = context;
    slice.streams[i].stream = stream;
    if (i == slice.count) slice.count++;
  }
  pthread_mutex_unlock(&slice.lock);
}
