#include "host/session/answer.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_results.h"
#include "host/log.h"
#include "host/session/lifeline.h"
#include "host/session/vm_rings.h"
#include "wire/address.h"
#include "wire/clock.h"
#include "wire/stream.h"

void vgpu_welcome_fill(struct vgpu_welcome *welcome, const struct vgpu_backend *backend,
                       const struct vgpu_inventory *inventory) {
  *welcome = (struct vgpu_welcome){.major = VGPU_WIRE_MAJOR,
                                   .minor = VGPU_WIRE_MINOR,
                                   .frame_max = VGPU_FRAME_MAX,
                                   .device_count = inventory->count,
                                   .cuda_version = inventory->cuda_version,
                                   .simulated = inventory->simulated};
  snprintf(welcome->host, sizeof welcome->host, "vgpu-hostd %s %s", VGPU_VERSION, backend->name);
  memcpy(welcome->magic, VGPU_WIRE_MAGIC, sizeof welcome->magic);
  memcpy(welcome->nvml_version, inventory->nvml_version, sizeof welcome->nvml_version);
}

uint64_t vgpu_worker_memory_limit(const struct vgpu_worker *worker) {
  uint64_t session = worker->limits->session_memory, peer = worker->limits->peer_memory;
  return session == 0 || (peer != 0 && peer < session) ? peer : session;
}

/* True if each device reaches registered memory of a process, at the process's own address. */
static bool devices_map(const struct vgpu_inventory *inventory) {
  enum { CAN_MAP_HOST_MEMORY = 19, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91 };
  for (uint32_t i = 0; i < inventory->count; i++) {
    const int32_t *attributes = inventory->devices[i].attributes;
    if (attributes[CAN_MAP_HOST_MEMORY] != 1 || attributes[CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] != 1)
      return false;
  }
  return true;
}

/*
 * Rings for a guest that offers to use them, and what goes with them: memory that is passed over its unix
 * socket (the descriptor, for the caller to close; else -1), or a mark in the memory of its VM.
 */
static int offer_rings(struct vgpu_worker *worker, const struct vgpu_hello *hello,
                       struct vgpu_welcome *welcome, struct vgpu_vm_mark *mark) {
  int rings = -1;
  if (worker->limits->session_shared == 0) return -1;
  if ((hello->features & VGPU_FEATURE_VM_MEMORY) != 0) {
    if (!vgpu_vm_memory_mark(&worker->vm_memory, worker->slot, mark)) return -1;
    welcome->features = VGPU_FEATURE_VM_MEMORY;
  } else if (worker->peer.kind == VGPU_ADDRESS_UNIX && (hello->features & VGPU_FEATURE_RING) != 0) {
    rings = vgpu_link_make_rings(&worker->link);
    if (rings < 0) return -1;
    welcome->features = hello->features & (VGPU_FEATURE_RING | VGPU_FEATURE_SHARED_REGION);
  } else {
    return -1;
  }
  if (worker->backend->memory_is_ours || devices_map(worker->inventory))
    welcome->features |= hello->features & VGPU_FEATURE_MAP;
  welcome->ring_size = VGPU_RING_BYTES;
  return rings;
}

/* After a WELCOME with a mark; false: the guest is gone. */
static bool agree_on_rings(struct vgpu_worker *worker, bool *placed) {
  const char *violation, *why = NULL;
  const unsigned long long megabytes = worker->vm_memory.bytes >> 20;
  *placed = false;
  switch (vgpu_vm_rings_agree(worker, &violation)) {
    case VGPU_VM_RINGS_TAKEN:
      *placed = true;
      worker->shared_regions.vm_memory = &worker->vm_memory;
      worker->shared_regions_agreed = true;
      return true;
    case VGPU_VM_RINGS_NO_ROOM:
      why = "no room in";
      break;
    case VGPU_VM_RINGS_NOT_SEEN:
      why = "the guest does not see";
      break;
    case VGPU_VM_RINGS_GONE:
      if (violation != NULL)
        vgpu_host_log("violation", worker->session, "violation: the guest sent %s", violation);
      return false;
  }
  vgpu_host_log("full", worker->session,
                "%s the VM's shared memory of %llu MiB: the socket carries the frames", why, megabytes);
  return true;
}

static enum vgpu_carrier carrier_of(const struct vgpu_worker *worker) {
  if (worker->link.rings.base != NULL)
    return worker->shared_regions.vm_memory != NULL ? VGPU_CARRIER_VM_MEMORY : VGPU_CARRIER_RINGS;
  switch (worker->peer.kind) {
    case VGPU_ADDRESS_VSOCK:
      return VGPU_CARRIER_VSOCK;
    case VGPU_ADDRESS_TCP:
      return VGPU_CARRIER_TCP;
    default:
      return VGPU_CARRIER_UNIX;
  }
}

/* Whether the session can survive its connection. */
static bool survives(const struct vgpu_worker *worker, const struct vgpu_hello *hello,
                     const struct vgpu_welcome *welcome) {
  const uint32_t shared = VGPU_FEATURE_RING | VGPU_FEATURE_VM_MEMORY;
  if (!worker->watched || worker->secret == 0 || worker->link.line.channel < 0) return false;
  return (welcome->features & shared) != 0 ? (hello->features & VGPU_FEATURE_RESUME_RINGS) != 0
                                           : !worker->direct;
}

/* Completes the features that the WELCOME offers. */
static void offer_features(struct vgpu_worker *worker, const struct vgpu_hello *hello,
                           struct vgpu_welcome *welcome) {
  if (hello->library == VGPU_LIBRARY_CUDA)
    welcome->features |= hello->features & (VGPU_FEATURE_PRINT | VGPU_FEATURE_PARK);
  welcome->features |= hello->features & VGPU_FEATURE_ALIVE;
  if (worker->exchanges)
    welcome->features |=
        hello->features &
        (worker->backend->memory_is_ours ? VGPU_FEATURE_EXCHANGE : VGPU_FEATURE_IPC | VGPU_FEATURE_SHARES);
  if (!worker->backend->memory_is_ours)
    welcome->features |=
        hello->features & (VGPU_FEATURE_READ_ONLY | VGPU_FEATURE_GRAPHS | VGPU_FEATURE_MIRROR);
  if (survives(worker, hello, welcome)) welcome->features |= hello->features & VGPU_FEATURE_RESUME;
  worker->link.line.agreed = (welcome->features & VGPU_FEATURE_RESUME) != 0;
  if (worker->link.line.agreed) welcome->secret = worker->secret;
}

/*
 * The kernel passes no more descriptors for the user of the workers: too many are on their way to guests that
 * do not take them. The session goes on without rings.
 */
static void withdraw_rings(struct vgpu_worker *worker, const struct vgpu_hello *hello,
                           struct vgpu_welcome *welcome, int rings) {
  vgpu_host_log("full", worker->session,
                "no shared memory: too many descriptors are on their way to guests (RLIMIT_NOFILE of the "
                "daemon); the socket carries the frames");
  close(rings);
  vgpu_rings_unmap(&worker->link.rings);
  welcome->features = welcome->ring_size = 0;
  offer_features(worker, hello, welcome);
}

/* Answers the greeting, which the daemon has read and found good. */
static bool welcome_guest(struct vgpu_worker *worker, const struct vgpu_hello *hello) {
  struct vgpu_frame reply = {.opcode = VGPU_OP_HELLO, .flags = VGPU_FLAG_REPLY};
  struct {
    struct vgpu_welcome welcome;
    struct vgpu_vm_mark mark;
  } answer = {.mark = {0}};
  struct vgpu_welcome *welcome = &answer.welcome;
  vgpu_welcome_fill(welcome, worker->backend, worker->inventory);
  welcome->session = worker->session;
  welcome->memory_limit = vgpu_worker_memory_limit(worker);
  welcome->handle_limit = worker->limits->session_handles;
  int rings = offer_rings(worker, hello, welcome, &answer.mark);
  offer_features(worker, hello, welcome);
  pthread_mutex_init(&worker->link.writing, NULL);
  worker->link.alive = (welcome->features & VGPU_FEATURE_ALIVE) != 0;
  worker->printed.agreed = (welcome->features & VGPU_FEATURE_PRINT) != 0;
  worker->parking.out_of_order = (welcome->features & VGPU_FEATURE_PARK) != 0;
  bool marked = (welcome->features & VGPU_FEATURE_VM_MEMORY) != 0, placed = false;
  const uint32_t size = marked ? sizeof answer : sizeof *welcome;
  const int64_t deadline = vgpu_now_ms() + VGPU_HANDSHAKE_LIMIT_MS;
  enum vgpu_stream_result result =
      vgpu_stream_pass_frame(worker->link.descriptor, &reply, &answer, size, rings, deadline);
  if (result == VGPU_STREAM_CLOSED && rings >= 0 && errno == ETOOMANYREFS) {
    withdraw_rings(worker, hello, welcome, rings);
    rings = -1;
    result = vgpu_stream_pass_frame(worker->link.descriptor, &reply, &answer, size, rings, deadline);
  }
  /* Kept, it tells whether the guest still maps the rings. */
  worker->link.ring_memory = worker->link.line.agreed ? rings : -1;
  if (rings >= 0 && worker->link.ring_memory < 0) close(rings);
  worker->shared_regions_agreed = (welcome->features & VGPU_FEATURE_SHARED_REGION) != 0;
  worker->library = hello->library;
  if (result == VGPU_STREAM_OK && marked && !agree_on_rings(worker, &placed)) return false;
  __atomic_store_n(&worker->accounts->slots[worker->slot].carrier, carrier_of(worker), __ATOMIC_RELAXED);
  vgpu_host_log("session", worker->session, "%s %s (guest pid %u) begins%s",
                hello->library == VGPU_LIBRARY_NVML ? "libnvidia-ml" : "libcuda", hello->program, hello->pid,
                placed ? ", in its VM's shared memory" : "");
  return result == VGPU_STREAM_OK;
}

void vgpu_worker_launched(struct vgpu_worker *worker) {
  /* Only this worker writes its slot's counts. */
  uint64_t *launches = &worker->accounts->slots[worker->slot].launches;
  __atomic_store_n(launches, *launches + 1, __ATOMIC_RELAXED);
}

void vgpu_worker_failed(struct vgpu_worker *worker, int32_t status) {
  struct vgpu_account *account = &worker->accounts->slots[worker->slot];
  if (worker->library == VGPU_LIBRARY_CUDA && status == CUDA_ERROR_NOT_READY)
    return; /* an answer, not a refusal */
  __atomic_store_n(&account->refused, account->refused + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&account->last_refusal, status, __ATOMIC_RELAXED);
}

void vgpu_worker_refused_kernel(struct vgpu_worker *worker, const char *kernel) {
  struct vgpu_account *account = &worker->accounts->slots[worker->slot];
  snprintf(account->refused_kernel, sizeof account->refused_kernel, "%s", kernel);
  __atomic_store_n(&account->kernel_refused_at, vgpu_now_ms(), __ATOMIC_RELAXED);
  __atomic_store_n(&account->kernels_refused, account->kernels_refused + 1, __ATOMIC_RELEASE);
}

/*
 * Delays a guest that calls more often than it may. The frames behind the call wait, too. The session is not
 * ended, because a burst of calls is no attack.
 */
static void keep_to_rate(struct vgpu_worker *worker) {
  uint32_t rate = worker->limits->calls;
  if (rate == 0) return;
  for (;;) {
    uint64_t wait = vgpu_bucket_take(&worker->calls, rate, vgpu_now_ns());
    if (wait == 0) return;
    if (!worker->slowed) {
      vgpu_host_log("slowed", worker->session, "slowed down: more than its %u calls a second", rate);
      worker->slowed = true;
    }
    struct timespec nap = {.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
    nanosleep(&nap, NULL);
  }
}

/* A request that took long may have been released before, so that the ones behind it could be read. */
static void release(struct vgpu_worker *worker, const struct vgpu_request *request) {
  if (worker->meanwhile.released != request) vgpu_link_done(&worker->link, request);
  else worker->meanwhile.released = NULL;
}

static void count_call(struct vgpu_worker *worker, int32_t status) {
  uint64_t *calls = &worker->accounts->slots[worker->slot].calls;
  __atomic_store_n(calls, *calls + 1, __ATOMIC_RELAXED);
  if (status != 0) vgpu_worker_failed(worker, status);
}

bool vgpu_worker_answer(struct vgpu_worker *worker, const struct vgpu_request *request) {
  struct vgpu_answer answer;
  keep_to_rate(worker);
  vgpu_parking_find(worker, request);
  worker->request = request;
  vgpu_carry_out(worker, request, worker->out, VGPU_BULK_MAX, &answer);
  const bool parked = answer.status == VGPU_WAITS && vgpu_park(worker, request);
  if (!parked) vgpu_parking_end(worker);
  if (!parked && answer.status == VGPU_WAITS) answer.status = CUDA_ERROR_OUT_OF_MEMORY;
  worker->note = 0;
  (void)vgpu_accounts_hold(worker->accounts, worker->slot, worker->shared_regions.held);
  release(worker, request);
  if (parked) return true;
  if ((request->frame.flags & VGPU_FLAG_ONEWAY) == 0) return vgpu_worker_send(worker, request, &answer);
  count_call(worker, answer.status);
  if (answer.status != 0 && worker->deferred == 0) worker->deferred = answer.status;
  return true;
}

bool vgpu_worker_send(struct vgpu_worker *worker, const struct vgpu_request *request,
                      const struct vgpu_answer *answer) {
  const struct vgpu_frame *frame = &request->frame;
  struct vgpu_frame reply = {.opcode = frame->opcode,
                             .flags = VGPU_FLAG_REPLY | answer->flags,
                             .lane = frame->lane,
                             .sequence = frame->sequence,
                             .status = answer->status,
                             .deferred = worker->deferred};
  count_call(worker, answer->status);
  /* The text of a kernel is fetched when it has ended: its threads may be printing now. */
  if (worker->meanwhile.released == NULL && worker->printed.used > 0) reply.flags |= VGPU_FLAG_PRINTED;
  worker->deferred = worker->sticky;
  bool brings = answer->status == 0;
  return vgpu_link_reply(&worker->link, &reply, answer->body, brings ? answer->body_size : 0,
                         answer->bulk.out, brings ? answer->bulk.out_size : 0);
}

enum vgpu_received vgpu_worker_receive(struct vgpu_worker *worker, struct vgpu_request *request) {
  const char *violation;
  enum vgpu_received received = vgpu_link_receive(&worker->link, vgpu_find_row, worker, request, &violation);
  if (violation != NULL)
    vgpu_host_log("violation", worker->session, "violation: the guest sent %s", violation);
  return received;
}

static bool next_request(struct vgpu_worker *worker, struct vgpu_request *request) {
  struct vgpu_meanwhile *meanwhile = &worker->meanwhile;
  if (meanwhile->over) return false;
  if (!meanwhile->has_next) {
    enum vgpu_received received;
    do {
      if (worker->backend->idle != NULL) worker->backend->idle(worker);
      if (!vgpu_parking_serve(worker)) return false;
      received = vgpu_worker_receive(worker, request);
    } while (received == VGPU_RECEIVED_NOTHING);
    return received == VGPU_RECEIVED;
  }
  *request = meanwhile->next;
  meanwhile->has_next = false;
  return vgpu_parking_ask(worker, NULL) && vgpu_parking_tell(worker);
}

int vgpu_worker_serve(struct vgpu_worker *worker, const struct vgpu_hello *hello) {
  if (!welcome_guest(worker, hello)) return 1;
  worker->handles.limit = worker->limits->session_handles;
  worker->link.in = malloc(VGPU_FRAME_MAX);
  worker->out = malloc(VGPU_FRAME_MAX);
  if (worker->link.in == NULL || worker->out == NULL) return 1;
  worker->link.next_sequence = 1;
  worker->take_requests = vgpu_worker_meanwhile;
  vgpu_ahead_init(&worker->link.ahead, worker->link.descriptor);
  if (worker->watched && !vgpu_lifeline_start(worker)) {
    vgpu_host_log("error", worker->session, "no thread to watch the connection");
    return 1;
  }
  struct vgpu_request request;
  while (next_request(worker, &request) && vgpu_worker_answer(worker, &request)) continue;
  vgpu_parking_drop(worker);
  return 0;
}
