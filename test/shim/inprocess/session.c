/*
 * Sessions (guest/session.h) without a transport: the guest's libcuda and a worker with the software device
 * are in one process, and the thread that makes a call also carries it out. Tests use it to compare a
 * program's results here with those over each transport, and benchmarks use it, too. There is no shared
 * memory, and the only limits are the device's. VGPU_INPROCESS_PROFILE names the file of the simulated
 * device. With VGPU_INPROCESS_MAPS pinned, registered and managed memory is device memory, too, whatever
 * memory of the process is registered, as with a real driver. With VGPU_INPROCESS_SKIP no kernel runs.
 */
#include "guest/session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda_calls.h"
#include "guest/cuda/internal.h"
#include "guest/cuda/memory/registered.h"
#include "host/session/answer.h"
#include "host/options.h"

struct vgpu_session {
  pthread_mutex_t lock; /* a worker has one thread */
  struct vgpu_options options;
  struct vgpu_inventory inventory;
  struct vgpu_limits limits;
  struct vgpu_code_options code;
  struct vgpu_worker worker;
  struct vgpu_welcome welcome;
  struct vgpu_answer answer;
  int32_t deferred;
  bool maps;
};

enum vgpu_outcome vgpu_session_open(struct vgpu_session **out, enum vgpu_library library,
                                    vgpu_begins_work begins_work) {
  (void)begins_work;
  *out = NULL;
  struct vgpu_session *session = calloc(1, sizeof *session);
  if (session == NULL) return VGPU_NO_HOST;
  const bool skips = getenv("VGPU_INPROCESS_SKIP") != NULL;
  session->options = (struct vgpu_options){.device = "software",
                                           .kernels = skips ? VGPU_KERNELS_SKIP : VGPU_KERNELS_RUN,
                                           .profiles = {getenv("VGPU_INPROCESS_PROFILE")}};
  session->options.profile_count = session->options.profiles[0] != NULL;
  session->inventory.options = &session->options;
  unsigned char *bytes = malloc(VGPU_FRAME_MAX); /* for the bulk of a call */
  if (bytes == NULL || vgpu_software_backend.take_inventory(&session->options, &session->inventory) != 0) {
    free(bytes);
    free(session);
    return VGPU_NO_HOST;
  }
  uint64_t totals[VGPU_DEVICES_MAX];
  for (uint32_t i = 0; i < session->inventory.count; i++) {
    totals[i] = session->inventory.devices[i].total_memory;
  }
  struct vgpu_accounts *accounts = vgpu_accounts_make(totals, session->inventory.count, NULL, NULL);
  if (accounts == NULL) {
    free(bytes);
    free(session);
    return VGPU_NO_HOST;
  }
  vgpu_accounts_begin(accounts, 0, &(struct vgpu_account_owner){.pid = 1});
  session->limits =
      (struct vgpu_limits){.session_handles = 65536, .sessions = 1, .outstanding = (uint64_t)256 << 20};
  session->code = (struct vgpu_code_options){
      .kernels = session->options.kernels, .launch_log = -1, .session_bytes = (uint64_t)1 << 30};
  session->worker = (struct vgpu_worker){.link = {.descriptor = -1},
                                         .session = 1,
                                         .library = (uint32_t)library,
                                         .accounts = accounts,
                                         .backend = &vgpu_software_backend,
                                         .inventory = &session->inventory,
                                         .limits = &session->limits,
                                         .handles = {.limit = 65536},
                                         .printed = {.agreed = true},
                                         .code_options = &session->code,
                                         .out = bytes};
  if (!vgpu_software_backend.begin(&session->worker)) {
    free(bytes);
    free(session);
    return VGPU_NO_HOST;
  }
  session->welcome = (struct vgpu_welcome){.major = VGPU_WIRE_MAJOR,
                                           .device_count = session->inventory.count,
                                           .cuda_version = session->inventory.cuda_version,
                                           .simulated = 1,
                                           .session = 1,
                                           .host = "the same process"};
  session->maps = getenv("VGPU_INPROCESS_MAPS") != NULL;
  pthread_mutex_init(&session->lock, NULL);
  *out = session;
  return VGPU_ANSWERED;
}

/* The process ends soon, and the device's memory is freed with it. */
void vgpu_session_close(struct vgpu_session *session) {
  (void)session;
}

void vgpu_session_abandon(struct vgpu_session *session) {
  (void)session;
}

const struct vgpu_welcome *vgpu_session_welcome(const struct vgpu_session *session) {
  return &session->welcome;
}

void vgpu_session_leave_vm(struct vgpu_session *session) {
  (void)session; /* it has no rings */
}

bool vgpu_session_is_lost(struct vgpu_session *session) {
  (void)session;
  return false;
}

bool vgpu_session_has_printed(struct vgpu_session *session) {
  return session->worker.printed.used > 0;
}

int32_t vgpu_session_take_deferred(struct vgpu_session *session) {
  pthread_mutex_lock(&session->lock);
  int32_t deferred = session->deferred;
  session->deferred = 0;
  pthread_mutex_unlock(&session->lock);
  return deferred;
}

void vgpu_session_keep_deferred(struct vgpu_session *session, int32_t failure) {
  pthread_mutex_lock(&session->lock);
  if (session->deferred == 0) session->deferred = failure;
  pthread_mutex_unlock(&session->lock);
}

/* Checks the guest's half of an answer. A wrong one would have ended a real session. */
static enum vgpu_outcome take(const struct vgpu_answer *answer, struct vgpu_receive *receive) {
  uint32_t body_size = receive == NULL ? 0 : receive->body_size;
  uint32_t capacity = receive == NULL ? 0 : receive->bulk_capacity;
  if (answer->body_size != body_size || answer->bulk.out_size > capacity) return VGPU_LOST;
  if (receive == NULL) return VGPU_ANSWERED;
  if (body_size > 0) memcpy(receive->body, answer->body, body_size);
  uint32_t bulk_size = answer->bulk.out_size;
  if (bulk_size > 0 && answer->bulk.out != receive->bulk) memcpy(receive->bulk, answer->bulk.out, bulk_size);
  receive->bulk_size = bulk_size;
  return VGPU_ANSWERED;
}

/* The number of the calling thread, as the library's own session gives it. */
static uint32_t lane(void) {
  static atomic_uint lanes;
  static _Thread_local uint32_t own;
  if (own == 0) own = atomic_fetch_add(&lanes, 1) + 1;
  return own;
}

static enum vgpu_outcome carry(struct vgpu_session *session, uint32_t opcode, uint32_t flags,
                               const struct vgpu_send *send, struct vgpu_receive *receive, int32_t *status) {
  static const struct vgpu_send nothing;
  if (send == NULL) send = &nothing;
  if (send->shared_region != NULL || send->body_size > VGPU_BODY_MAX || send->bulk_size > VGPU_BULK_MAX) {
    return VGPU_TOO_LARGE;
  }
  struct vgpu_request request = {.frame = {.opcode = opcode,
                                           .flags = flags,
                                           .lane = lane(),
                                           .body = send->body_size,
                                           .bulk = send->bulk_size},
                                 .body = send->body,
                                 .bulk = send->bulk};
  pthread_mutex_lock(&session->lock);
  struct vgpu_worker *worker = &session->worker;
  struct vgpu_answer *answer = &session->answer;
  request.row = vgpu_find_row(worker, opcode);
  worker->request = &request;
  /* Raw bytes are written to the caller's buffer; all others to a buffer that has room for a whole frame. */
  bool raw = request.row != NULL && request.row->raw_out && receive != NULL && receive->bulk != NULL;
  uint64_t note = 0; /* of a call that waits: other threads may end that */
  for (;;) {
    worker->request = &request;
    worker->note = note;
    vgpu_carry_out(worker, &request, raw ? receive->bulk : worker->out,
                   raw ? receive->bulk_capacity : VGPU_BULK_MAX, answer);
    note = worker->note;
    worker->request = NULL;
    if (answer->status != VGPU_WAITS) break;
    pthread_mutex_unlock(&session->lock);
    const struct timespec nap = {.tv_nsec = 50000};
    nanosleep(&nap, NULL);
    pthread_mutex_lock(&session->lock);
  }
  worker->note = 0;
  if (receive != NULL && receive->came != NULL) __atomic_store_n(receive->came, true, __ATOMIC_RELEASE);
  enum vgpu_outcome outcome = VGPU_ANSWERED;
  if ((flags & VGPU_FLAG_ONEWAY) != 0) {
    if (answer->status != 0 && session->deferred == 0) session->deferred = answer->status;
  } else {
    *status = answer->status;
    if (answer->status == 0) outcome = take(answer, receive);
    if (session->deferred == 0) session->deferred = worker->deferred;
    worker->deferred = worker->sticky;
  }
  pthread_mutex_unlock(&session->lock);
  return outcome;
}

enum vgpu_outcome vgpu_session_call(struct vgpu_session *session, uint32_t opcode,
                                    const struct vgpu_send *send, struct vgpu_receive *receive,
                                    int32_t *status) {
  return carry(session, opcode, 0, send, receive, status);
}

enum vgpu_outcome vgpu_session_post(struct vgpu_session *session, uint32_t opcode,
                                    const struct vgpu_send *send) {
  return carry(session, opcode, VGPU_FLAG_ONEWAY, send, NULL, NULL);
}

uint32_t vgpu_session_piece(const struct vgpu_session *session, size_t total) {
  (void)total;
  (void)session;
  return VGPU_BULK_MAX;
}

enum vgpu_outcome vgpu_session_pieces(struct vgpu_session *session, const struct vgpu_pieces *pieces,
                                      size_t *done, int32_t *status) {
  *done = 0;
  *status = 0;
  while (*done < pieces->total) {
    size_t left = pieces->total - *done;
    uint32_t bytes = left < VGPU_BULK_MAX ? (uint32_t)left : VGPU_BULK_MAX;
    unsigned char body[VGPU_PIECE_BODY];
    pieces->make(pieces->context, *done, bytes, body);
    struct vgpu_send send = {.body = body, .body_size = pieces->body_size};
    struct vgpu_receive receive = {.bulk = pieces->destination + *done, .bulk_capacity = bytes};
    enum vgpu_outcome outcome = carry(session, pieces->opcode, 0, &send, &receive, status);
    if (outcome != VGPU_ANSWERED || *status != 0) return outcome;
    if (receive.bulk_size != bytes) return VGPU_LOST;
    *done += bytes;
  }
  return VGPU_ANSWERED;
}

bool vgpu_session_maps(const struct vgpu_session *session) {
  return session->maps;
}

bool vgpu_session_mirrors(const struct vgpu_session *session) {
  (void)session;
  return false;
}

bool vgpu_session_has_graphs(const struct vgpu_session *session) {
  (void)session;
  return false;
}

bool vgpu_session_loads(const struct vgpu_session *session) {
  (void)session;
  return true;
}

bool vgpu_session_has_gates(const struct vgpu_session *session) {
  (void)session;
  return false;
}

bool vgpu_session_reads_only(const struct vgpu_session *session) {
  (void)session;
  return false;
}

bool vgpu_session_in_vm_memory(const struct vgpu_session *session) {
  (void)session;
  return false;
}

void vgpu_session_goodbye(struct vgpu_session *session) {
  (void)session;
}

bool vgpu_session_keeps(const struct vgpu_session *session) {
  (void)session;
  return false;
}

bool vgpu_session_has_ipc(const struct vgpu_session *session) {
  (void)session;
  return false;
}

bool vgpu_session_exchanges(const struct vgpu_session *session) {
  (void)session;
  return false;
}

bool vgpu_session_shares(const struct vgpu_session *session) {
  (void)session;
  return false;
}

bool vgpu_session_shared_region_make(struct vgpu_session *session, size_t bytes, uint32_t *shared_region,
                                     void **memory) {
  if (!session->maps) return false;
  struct vgpu_shared_regions *regions = &session->worker.shared_regions;
  int descriptor = -1;
  pthread_mutex_lock(&session->lock);
  *shared_region = vgpu_shared_regions_add(regions, bytes, UINT64_MAX, &descriptor);
  if (*shared_region != 0) *memory = regions->array[*shared_region - 1].memory;
  pthread_mutex_unlock(&session->lock);
  if (descriptor >= 0) close(descriptor);
  return *shared_region != 0;
}

void vgpu_session_shared_region_drop(struct vgpu_session *session, uint32_t shared_region, void *memory,
                                     size_t bytes) {
  (void)memory, (void)bytes;
  pthread_mutex_lock(&session->lock);
  (void)vgpu_shared_regions_drop(&session->worker.shared_regions, shared_region);
  pthread_mutex_unlock(&session->lock);
}

/* Instead of those of registered.c, which replace the memory by memory that is shared with another process.
 */

static void cover(const struct vgpu_region *region, struct vgpu_shared_region *pages) {
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = region->start / page * page;
  pages->memory = (unsigned char *)(uintptr_t)start;
  pages->bytes = (region->start + region->size - start + page - 1) / page * page;
}

bool vgpu_registered_lend(struct vgpu_driver *driver, const struct vgpu_region *region) {
  struct vgpu_session *session = driver->session;
  struct vgpu_shared_regions *regions = &session->worker.shared_regions;
  struct vgpu_shared_region pages = {0};
  uint32_t at = 0;
  if (!session->maps) return false;
  cover(region, &pages);
  pthread_mutex_lock(&session->lock);
  while (at < VGPU_SHARED_REGIONS_MAX && regions->array[at].memory != NULL) at++;
  if (at < VGPU_SHARED_REGIONS_MAX) regions->array[at] = pages;
  if (at >= regions->begun) regions->begun = at + 1;
  pthread_mutex_unlock(&session->lock);
  if (at == VGPU_SHARED_REGIONS_MAX) return false;
  struct vgpu_send_shared_region_map send = {
      .address = (uint64_t)(uintptr_t)pages.memory, .bytes = pages.bytes, .shared_region = at + 1};
  if (vgpu_cuda_context_number(&send.context) == CUDA_SUCCESS &&
      vgpu_cuda_call(VGPU_OP_shared_region_map, &send, sizeof send, NULL, 0) == CUDA_SUCCESS)
    return vgpu_regions_set_lent(&driver->regions, region->start, VGPU_REGION_REGISTERED, VGPU_LENT);
  regions->array[at].memory = NULL;
  return false;
}

void vgpu_registered_take_back(struct vgpu_driver *driver, const struct vgpu_region *region) {
  if (!region->lent) return;
  struct vgpu_shared_regions *regions = &driver->session->worker.shared_regions;
  struct vgpu_shared_region pages = {0};
  cover(region, &pages);
  vgpu_lent_end(pages.memory);
  for (uint32_t i = 0; i < regions->begun; i++)
    if (regions->array[i].memory == pages.memory) regions->array[i].memory = NULL;
}
