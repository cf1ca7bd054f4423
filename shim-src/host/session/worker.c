#include "host/session/answer.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/device_attributes.h"
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
  for (uint32_t i = 0; i < inventory->count; i++) {
    const int32_t *attributes = inventory->devices[i].attributes;
    if (attributes[VGPU_ATTRIBUTE_CAN_MAP_HOST_MEMORY] != 1 ||
        attributes[VGPU_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] != 1)
      return false;
  }
  return true;
}

/*
 * Offers rings to a guest that can use them: memory that is passed over its unix socket (returns the
 * descriptor, which the caller closes; else -1), or a mark in the memory of its VM.
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

/* Agrees on the place of the rings after a WELCOME with a mark. False: the guest is gone. */
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

/* True if the session can survive its connection. */
static bool survives(const struct vgpu_worker *worker, const struct vgpu_hello *hello,
                     const struct vgpu_welcome *welcome) {
  const uint32_t shared = VGPU_FEATURE_RING | VGPU_FEATURE_VM_MEMORY;
  if (!worker->watched || worker->secret == 0 || worker->link.line.channel < 0) return false;
  return (welcome->features & shared) != 0 ? (hello->features & VGPU_FEATURE_RESUME_RINGS) != 0
                                           : !worker->direct;
}

/* Adds the features that do not depend on rings. */
static void offer_features(struct vgpu_worker *worker, const struct vgpu_hello *hello,
                           struct vgpu_welcome *welcome) {
  if (hello->library == VGPU_LIBRARY_CUDA)
    welcome->features |= hello->features & (VGPU_FEATURE_PRINT | VGPU_FEATURE_PARK | vgpu_call_features);
  welcome->features |= hello->features & VGPU_FEATURE_ALIVE;
  if (worker->exchanges)
    welcome->features |=
        hello->features &
        (worker->backend->memory_is_ours ? VGPU_FEATURE_EXCHANGE : VGPU_FEATURE_IPC | VGPU_FEATURE_SHARES);
  if (!worker->backend->memory_is_ours)
    welcome->features |= hello->features & (VGPU_FEATURE_READ_ONLY | VGPU_FEATURE_GRAPHS |
                                            VGPU_FEATURE_MIRROR | VGPU_FEATURE_GATES);
  if (survives(worker, hello, welcome)) welcome->features |= hello->features & VGPU_FEATURE_RESUME;
  worker->link.line.agreed = (welcome->features & VGPU_FEATURE_RESUME) != 0;
  if (worker->link.line.agreed) welcome->secret = worker->secret;
}

/*
 * Continues without rings: the kernel passes no more descriptors for the workers' user, because too many wait
 * in sockets of guests that do not read them.
 */
static void withdraw_rings(struct vgpu_worker *worker, const struct vgpu_hello *hello,
                           struct vgpu_welcome *welcome, int rings) {
  vgpu_host_log("full", worker->session,
                "no shared memory: too many unread descriptors in the guests' sockets (LimitNOFILE= of "
                "vgpu-hostd.service); the socket carries the frames");
  close(rings);
  vgpu_rings_unmap(&worker->link.rings);
  welcome->features = welcome->ring_size = 0;
  offer_features(worker, hello, welcome);
}

/* Answers a greeting that the daemon has read and checked. */
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
  /* Kept open to see later whether the guest still maps the rings. */
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
  /* No lock: only this worker writes its slot. */
  uint64_t *launches = &worker->accounts->slots[worker->slot].launches;
  __atomic_store_n(launches, *launches + 1, __ATOMIC_RELAXED);
}

void vgpu_worker_failed(struct vgpu_worker *worker, int32_t status) {
  struct vgpu_account *account = &worker->accounts->slots[worker->slot];
  if (worker->library == VGPU_LIBRARY_CUDA && status == CUDA_ERROR_NOT_READY)
    return; /* an answer, not an error */
  __atomic_store_n(&account->refused, account->refused + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&account->last_refusal, status, __ATOMIC_RELAXED);
}

void vgpu_worker_refused_kernel(struct vgpu_worker *worker, const char *kernel) {
  struct vgpu_account *account = &worker->accounts->slots[worker->slot];
  snprintf(account->refused_kernel, sizeof account->refused_kernel, "%s", kernel);
  __atomic_store_n(&account->kernel_refused_at, vgpu_now_ms(), __ATOMIC_RELAXED);
  __atomic_store_n(&account->kernels_refused, account->kernels_refused + 1, __ATOMIC_RELEASE);
}

enum vgpu_received vgpu_worker_receive(struct vgpu_worker *worker, struct vgpu_request *request) {
  const char *violation;
  enum vgpu_received received = vgpu_link_receive(&worker->link, vgpu_find_row, worker, request, &violation);
  if (violation != NULL)
    vgpu_host_log("violation", worker->session, "violation: the guest sent %s", violation);
  return received;
}

static bool next_request(struct vgpu_worker *worker, struct vgpu_request *request) {
  struct vgpu_nested *nested = &worker->nested;
  if (nested->over) return false;
  if (!nested->has_next) {
    enum vgpu_received received;
    do {
      if (worker->backend->idle != NULL) worker->backend->idle(worker);
      if (!vgpu_parking_serve(worker)) return false;
      received = vgpu_worker_receive(worker, request);
    } while (received == VGPU_RECEIVED_NOTHING);
    return received == VGPU_RECEIVED;
  }
  *request = nested->next;
  nested->has_next = false;
  return vgpu_parking_ask(worker, NULL) && vgpu_parking_tell(worker);
}

int vgpu_worker_serve(struct vgpu_worker *worker, const struct vgpu_hello *hello) {
  if (!welcome_guest(worker, hello)) return 1;
  worker->handles.limit = worker->limits->session_handles;
  worker->link.in = malloc(VGPU_FRAME_MAX);
  worker->out = malloc(VGPU_FRAME_MAX);
  if (worker->link.in == NULL || worker->out == NULL) return 1;
  worker->link.next_sequence = 1;
  worker->serve_nested = vgpu_worker_serve_nested;
  vgpu_read_ahead_init(&worker->link.ahead, worker->link.descriptor);
  if (worker->watched && !vgpu_lifeline_start(worker)) {
    vgpu_host_log("error", worker->session, "no thread to watch the connection");
    return 1;
  }
  struct vgpu_request request;
  while (next_request(worker, &request) && vgpu_worker_answer(worker, &request)) continue;
  vgpu_parking_drop(worker);
  return 0;
}
