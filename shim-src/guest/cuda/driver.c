#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/begins_work.h"
#include "guest/cuda/stream/capture.h"
#include "guest/cuda/pause.h"
#include "guest/cuda/printed.h"
#include "guest/reentry.h"
#include "guest/log.h"
#include "guest/process.h"
#include "guest/transport.h"
#include "wire/clock.h"

/*
 * The newest CUDA version of which every call is exported; docs/reference/coverage.md lists the calls that
 * work.
 */
#define BUILT_FOR_VERSION 13050
/*
 * A failed connection is not tried again for this many milliseconds, so that 64 threads do not wait one by
 * one.
 */
#define RETRY_MS 2000

static int64_t failed_at; /* guarded by the process's lock; 0: never */
static uint64_t epochs;
/*
 * The list of all drivers, guarded by the process's lock. A driver that was replaced stays in the list,
 * because a thread may still use it.
 */
static struct vgpu_driver *newest;

static void abandon(void *state) {
  vgpu_session_abandon(((struct vgpu_driver *)state)->session);
}

/* Tells the host that the program ends, so that the host does not wait for a reconnection. */
__attribute__((destructor)) static void say_goodbye(void) {
  if (vgpu_inside) return; /* exit() in a signal handler: this thread holds locks */
  struct vgpu_process *process = vgpu_process_made();
  const struct vgpu_driver *driver =
      process == NULL ? NULL : __atomic_load_n(&process->state, __ATOMIC_ACQUIRE);
  if (driver != NULL) vgpu_session_goodbye(driver->session);
}

static void choose_devices(struct vgpu_driver *driver, const struct vgpu_device_facts *all, uint32_t count) {
  uint32_t chosen = vgpu_cuda_visible(getenv("CUDA_VISIBLE_DEVICES"), all, count, driver->host_index);
  driver->device_count = (int32_t)chosen;
  for (uint32_t i = 0; i < chosen; i++) {
    driver->facts[i] = all[driver->host_index[i]];
    driver->primary[i] = (struct vgpu_context){.ordinal = (int32_t)i, .primary = true};
  }
}

static struct vgpu_driver *connect_driver(void) {
  struct vgpu_driver *driver = calloc(1, sizeof *driver);
  struct vgpu_device_facts *all = calloc(VGPU_DEVICES_MAX, sizeof *all);
  bool made = false;
  if (driver != NULL && all != NULL &&
      vgpu_session_open(&driver->session, VGPU_LIBRARY_CUDA, vgpu_cuda_begins_work) == VGPU_ANSWERED) {
    uint32_t count;
    int32_t status = 0;
    if (vgpu_session_device_facts(driver->session, all, VGPU_DEVICES_MAX, &count, &status) == VGPU_ANSWERED &&
        status == 0) {
      choose_devices(driver, all, count);
      made = true;
    } else {
      vgpu_transport_failed(VGPU_TRANSPORT_LOST, 0, status,
                            "it began a session and did not report its devices");
      vgpu_session_close(driver->session);
    }
  }
  free(all);
  if (!made) {
    free(driver);
    return NULL;
  }
  pthread_mutex_init(&driver->lock, NULL);
  pthread_cond_init(&driver->begun, NULL);
  pthread_mutex_init(&driver->managed_lock, NULL);
  vgpu_staging_init(&driver->staging);
  pthread_mutex_init(&driver->graph_lock, NULL);
  pthread_mutex_init(&driver->printing, NULL);
  vgpu_regions_init(&driver->regions);
  vgpu_readbacks_init(&driver->readbacks);
  vgpu_host_functions_init(&driver->functions);
  pthread_mutex_init(&driver->virtual.lock, NULL);
  driver->next_number = VGPU_FIRST_NUMBER;
  driver->epoch = ++epochs;
  driver->outstanding.epoch = driver->epoch;
  driver->previous = newest;
  newest = driver;
  return driver;
}

static struct vgpu_driver *reach_driver(bool initialise) {
  struct vgpu_process *process = vgpu_process();
  if (process == NULL) return NULL;
  pthread_mutex_lock(&process->lock);
  struct vgpu_driver *driver = process->state;
  if (driver != NULL && initialise && vgpu_session_is_lost(driver->session)) {
    vgpu_session_leave_vm(driver->session);
    driver = NULL;
  }
  if (driver == NULL && (failed_at == 0 || vgpu_now_ms() - failed_at >= RETRY_MS)) {
    vgpu_process_on_fork(abandon);
    driver = connect_driver();
    failed_at = driver == NULL ? vgpu_now_ms() : 0;
    if (driver != NULL) __atomic_store_n(&process->state, driver, __ATOMIC_RELEASE);
  }
  if (driver != NULL && initialise && driver->device_count > 0) {
    __atomic_store_n(&driver->initialised, true, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&process->lock);
  return driver;
}

int cuInit(uint32_t Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_driver *driver = reach_driver(true);
  return driver == NULL || driver->device_count == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

int vgpu_cuda_transport(struct vgpu_transport_word *word, size_t size) {
  if (word == NULL || size < offsetof(struct vgpu_transport_word, guest_wire))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_process *process = vgpu_process();
  if (process == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&process->lock);
  struct vgpu_transport_word now = *vgpu_transport_last();
  struct vgpu_driver *driver = process->state;
  bool lost = driver != NULL && vgpu_session_is_lost(driver->session);
  pthread_mutex_unlock(&process->lock);
  /* The session was lost after this state was recorded. A later failed attempt has a state of its own. */
  if (lost && now.code == VGPU_TRANSPORT_OK) {
    now.code = VGPU_TRANSPORT_LOST;
    now.carrier = VGPU_CARRIER_NONE;
    snprintf(now.message, sizeof now.message, "%s", vgpu_transport_text(VGPU_TRANSPORT_LOST));
  }
  now.size = (uint32_t)(size < sizeof now ? size : sizeof now);
  memcpy(word, &now, now.size);
  return CUDA_SUCCESS;
}

struct vgpu_driver *vgpu_cuda_driver(int *result) {
  struct vgpu_process *process = vgpu_process();
  struct vgpu_driver *driver = process == NULL ? NULL : __atomic_load_n(&process->state, __ATOMIC_ACQUIRE);
  if (driver == NULL || !__atomic_load_n(&driver->initialised, __ATOMIC_ACQUIRE)) {
    *result = CUDA_ERROR_NOT_INITIALIZED;
    return NULL;
  }
  *result = CUDA_SUCCESS;
  return driver;
}

int vgpu_cuda_ready(void) {
  int result;
  vgpu_cuda_driver(&result);
  return result;
}

int vgpu_cuda_driver_version(void) {
  /* Programs ask before cuInit, and the answer must not change later. */
  struct vgpu_driver *driver = reach_driver(false);
  if (driver == NULL) return BUILT_FOR_VERSION;
  int version = vgpu_session_welcome(driver->session)->cuda_version;
  return version < BUILT_FOR_VERSION ? version : BUILT_FOR_VERSION;
}

int cuDriverGetVersion(int32_t *driverVersion) {
  if (driverVersion == NULL) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = vgpu_cuda_driver_version();
  return CUDA_SUCCESS;
}

static int result_of(enum vgpu_outcome outcome, int32_t status) {
  switch (outcome) {
    case VGPU_ANSWERED:
      return status;
    case VGPU_TOO_LARGE:
      return CUDA_ERROR_INVALID_VALUE;
    case VGPU_NO_HOST:
    case VGPU_LOST:
      break;
  }
  return CUDA_ERROR_SYSTEM_NOT_READY;
}

int vgpu_cuda_exchange_once(uint32_t opcode, struct vgpu_cuda_exchange *exchange) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (vgpu_host_function_runs()) return CUDA_ERROR_NOT_PERMITTED;
  if (vgpu_capture_ask(driver, opcode, exchange->send, exchange->send_size, exchange->bulk,
                       exchange->bulk_capacity, &result)) {
    exchange->bulk_size = exchange->bulk_capacity; /* the bytes arrive when the graph is launched */
    return result;
  }
  struct vgpu_send sending = {.body = exchange->send,
                              .body_size = exchange->send_size,
                              .bulk = exchange->send_bulk,
                              .shared_region = exchange->shared_region,
                              .bulk_size = exchange->send_bulk_size};
  struct vgpu_receive receiving = {.body = exchange->reply,
                                   .body_size = exchange->reply_size,
                                   .bulk = exchange->bulk,
                                   .bulk_capacity = exchange->bulk_capacity,
                                   .came = exchange->came};
  int32_t status = 0;
  enum vgpu_outcome outcome = vgpu_session_call(driver->session, opcode, &sending, &receiving, &status);
  exchange->bulk_size = receiving.bulk_size;
  vgpu_outstanding_issued(&driver->outstanding, opcode, exchange->send, exchange->send_size, false);
  vgpu_printed_fetch(driver);
  return result_of(outcome, status);
}

static bool is_query(uint32_t opcode) {
  switch (opcode) {
    case VGPU_OP_cuStreamQuery:
    case VGPU_OP_cuEventQuery:
    case VGPU_OP_cuEventElapsedTime_v2:
      return true;
    default:
      return false;
  }
}

int vgpu_cuda_exchange(uint32_t opcode, struct vgpu_cuda_exchange *exchange) {
  struct vgpu_pause pause = {0};
  int result;
  while ((result = vgpu_cuda_exchange_once(opcode, exchange)) == CUDA_ERROR_NOT_READY && !is_query(opcode))
    vgpu_pause(&pause);
  return result;
}

static int take_deferred(void) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  return driver == NULL ? result : vgpu_session_take_deferred(driver->session);
}

int vgpu_cuda_call(uint32_t opcode, const void *send, uint32_t send_size, void *reply, uint32_t reply_size) {
  struct vgpu_cuda_exchange exchange = {
      .send = send, .send_size = send_size, .reply = reply, .reply_size = reply_size};
  return vgpu_cuda_exchange(opcode, &exchange);
}

static int call_for_bulk(uint32_t opcode, struct vgpu_cuda_exchange *exchange) {
  int result = vgpu_cuda_exchange(opcode, exchange);
  if (result != CUDA_SUCCESS) return result;
  if (exchange->bulk_size != exchange->bulk_capacity) return CUDA_ERROR_UNKNOWN; /* too short */
  return take_deferred();
}

int vgpu_cuda_wait_context(uint64_t context) {
  const struct vgpu_send_cuCtxSynchronize send = {.context = context};
  return vgpu_cuda_call(VGPU_OP_cuCtxSynchronize, &send, sizeof send, NULL, 0);
}

int vgpu_cuda_call_bulk(uint32_t opcode, const void *send, uint32_t send_size, void *bulk,
                        uint32_t bulk_size) {
  struct vgpu_cuda_exchange exchange = {
      .send = send, .send_size = send_size, .bulk = bulk, .bulk_capacity = bulk_size};
  return call_for_bulk(opcode, &exchange);
}

int vgpu_cuda_call_shared_region(uint32_t opcode, const void *send, uint32_t send_size,
                                 const struct vgpu_span *shared_region) {
  struct vgpu_cuda_exchange exchange = {.send = send,
                                        .send_size = send_size,
                                        .shared_region = shared_region,
                                        .bulk_capacity = (uint32_t)shared_region->length};
  return call_for_bulk(opcode, &exchange);
}

int vgpu_cuda_pieces(const struct vgpu_pieces *pieces, size_t *done) {
  int result;
  *done = 0;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (vgpu_host_function_runs()) return CUDA_ERROR_NOT_PERMITTED;
  int32_t status;
  enum vgpu_outcome outcome = vgpu_session_pieces(driver->session, pieces, done, &status);
  vgpu_printed_fetch(driver);
  result = result_of(outcome, status);
  return result == CUDA_SUCCESS ? take_deferred() : result;
}

int vgpu_cuda_ping(void) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  int32_t status = 0;
  return result_of(vgpu_session_call(driver->session, VGPU_OP_PING, NULL, NULL, &status), status);
}

/* Sends the frame. The caller has checked that the call is not to be captured instead. */
static int post(struct vgpu_driver *driver, uint32_t opcode, const struct vgpu_send *send) {
  int result = result_of(vgpu_session_post(driver->session, opcode, send), 0);
  vgpu_outstanding_issued(&driver->outstanding, opcode, send->body, send->body_size, true);
  return result;
}

int vgpu_cuda_post_shared_region(uint32_t opcode, const void *send, uint32_t send_size,
                                 const struct vgpu_span *shared_region) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (vgpu_host_function_runs()) return CUDA_ERROR_NOT_PERMITTED;
  struct vgpu_send sending = {.body = send, .body_size = send_size, .shared_region = shared_region};
  return post(driver, opcode, &sending);
}

int vgpu_cuda_post_uncaptured(uint32_t opcode, const void *send, uint32_t send_size) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  struct vgpu_send sending = {.body = send, .body_size = send_size};
  return post(driver, opcode, &sending);
}

int vgpu_cuda_post(uint32_t opcode, const void *send, uint32_t send_size, const void *bulk,
                   uint32_t bulk_size) {
  return vgpu_cuda_post_bulk(opcode, send, send_size, bulk, bulk_size, false);
}

int vgpu_cuda_post_bulk(uint32_t opcode, const void *send, uint32_t send_size, const void *bulk,
                        uint32_t bulk_size, bool stays) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (vgpu_host_function_runs()) return CUDA_ERROR_NOT_PERMITTED;
  if (vgpu_capture_post(driver, opcode, send, send_size, bulk, bulk_size, &result)) return result;
  struct vgpu_send sending = {
      .body = send, .body_size = send_size, .bulk = bulk, .bulk_size = bulk_size, .stays = stays};
  return post(driver, opcode, &sending);
}
