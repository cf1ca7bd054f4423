/* The control calls: what the devices are and how they are used. */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "host/log.h"
#include "host/session/query.h"
#include "host/session/answer.h"

static struct vgpu_room room_of(const struct vgpu_worker *worker, uint32_t device) {
  return vgpu_accounts_room(worker->accounts, worker->slot, device, worker->limits->session_memory);
}

static int32_t device_facts(struct vgpu_worker *worker, const struct vgpu_facts_request *request,
                            struct vgpu_facts_reply *reply, struct vgpu_bulk *bulk) {
  uint32_t devices = worker->inventory->count;
  if (request->first > devices) return VGPU_STATUS_INVALID;
  uint32_t count = devices - request->first;
  if (count > request->count) count = request->count;
  uint32_t room = bulk->out_capacity / (uint32_t)sizeof(struct vgpu_device_facts);
  if (count > room) count = room;
  const uint32_t size = sizeof(struct vgpu_device_facts);
  memcpy(bulk->out, &worker->inventory->devices[request->first], (size_t)count * size);
  for (uint32_t i = 0; i < count; i++) {
    struct vgpu_room room = room_of(worker, request->first + i);
    memcpy(bulk->out + (size_t)i * size + offsetof(struct vgpu_device_facts, total_memory), &room.total,
           sizeof room.total);
  }
  *reply = (struct vgpu_facts_reply){.count = count, .element_size = size};
  bulk->out_size = count * size;
  return VGPU_STATUS_OK;
}

static bool holds(const struct vgpu_account *account, uint32_t device) {
  return __atomic_load_n(&account->used[device], __ATOMIC_RELAXED) != 0 ||
         __atomic_load_n(&account->contexts[device], __ATOMIC_RELAXED) != 0;
}

/* Lists the processes of this session's guest, or of every user with processes=all of hostd.conf. */
static uint32_t listed_processes(const struct vgpu_worker *worker, uint32_t device,
                                 struct vgpu_process_facts *processes, uint32_t capacity) {
  const struct vgpu_peer *peer = &worker->peer;
  device = vgpu_accounts_device(worker->accounts, worker->slot, device);
  uint32_t count = 0, slots = vgpu_accounts_slots(worker->accounts);
  for (uint32_t i = 0; i < slots; i++) {
    const struct vgpu_account *account = &worker->accounts->slots[i];
    const struct vgpu_account_owner *owner = &worker->accounts->owners[i];
    if (__atomic_load_n(&owner->pid, __ATOMIC_ACQUIRE) == 0 || owner->peer.kind != peer->kind ||
        (owner->peer.id != peer->id && !worker->limits->all_processes) || !holds(account, device)) {
      continue;
    }
    if (count < capacity) {
      processes[count] =
          (struct vgpu_process_facts){.pid = owner->guest_pid, .used = vgpu_account_bytes(account, device)};
    }
    count++;
  }
  return count;
}

static int32_t device_usage(struct vgpu_worker *worker, uint32_t device, struct vgpu_usage_reply *reply) {
  if (device >= worker->inventory->count) return VGPU_STATUS_INVALID;
  int32_t status = worker->backend->usage(worker, device, reply);
  if (status != VGPU_STATUS_OK) return status;
  /* The session's limits apply, because programs plan their memory by these numbers. */
  struct vgpu_room room = room_of(worker, device);
  uint64_t unused = reply->total > reply->used ? reply->total - reply->used : 0;
  if (room.total < reply->total) reply->total = room.total;
  if (room.free < unused) unused = room.free;
  if (unused > reply->total) unused = reply->total;
  reply->used = reply->total - unused;
  reply->processes = (uint16_t)listed_processes(worker, device, NULL, 0);
  return status;
}

static int32_t device_processes(struct vgpu_worker *worker, uint32_t device, struct vgpu_facts_reply *reply,
                                struct vgpu_bulk *bulk) {
  if (device >= worker->inventory->count) return VGPU_STATUS_INVALID;
  struct vgpu_process_facts processes[VGPU_SESSIONS_MAX];
  uint32_t count = listed_processes(worker, device, processes, VGPU_SESSIONS_MAX);
  memcpy(bulk->out, processes, count * sizeof *processes);
  *reply = (struct vgpu_facts_reply){.count = count, .element_size = sizeof *processes};
  bulk->out_size = count * (uint32_t)sizeof *processes;
  return VGPU_STATUS_OK;
}

static bool may_pass(const struct vgpu_worker *worker) {
  if (vgpu_link_may_pass(&worker->link)) return true;
  vgpu_host_log_limited("full", worker->session,
                        "no shared memory: the guest does not read the descriptors that it requested");
  return false;
}

/* Pinned and managed memory count toward the peer's limit (memory= of hostd.conf), as device memory does. */
static bool may_hold(struct vgpu_worker *worker, uint64_t bytes) {
  const uint64_t held = worker->shared_regions.held;
  return bytes <= worker->limits->session_shared &&
         vgpu_accounts_hold(worker->accounts, worker->slot, held + vgpu_shared_regions_pages(bytes));
}

static int32_t add_shared_region(struct vgpu_worker *worker, const void *body, uint32_t body_size,
                                 void *reply, uint32_t *reply_size) {
  struct vgpu_shared_region_request request;
  struct vgpu_shared_region_reply made = {0};
  int descriptor = -1;
  if (body_size != sizeof request) return VGPU_STATUS_INVALID;
  memcpy(&request, body, sizeof request);
  if (!worker->shared_regions_agreed || !may_pass(worker) || !may_hold(worker, request.bytes))
    made.shared_region = 0;
  else
    made.shared_region = vgpu_shared_regions_add(&worker->shared_regions, request.bytes,
                                                 worker->limits->session_shared, &descriptor);
  memcpy(reply, &made, sizeof made);
  *reply_size = sizeof made;
  if (made.shared_region == 0) return VGPU_STATUS_REFUSED;
  /* If the guest cannot be reached, sending the answer fails as well. */
  vgpu_link_pass(&worker->link, made.shared_region, descriptor);
  close(descriptor);
  return VGPU_STATUS_OK;
}

static int32_t place_shared_region(struct vgpu_worker *worker, const void *body, uint32_t body_size,
                                   void *reply, uint32_t *reply_size) {
  struct vgpu_vm_place place;
  struct vgpu_vm_place_reply made = {0};
  if (body_size != sizeof place) return VGPU_STATUS_INVALID;
  memcpy(&place, body, sizeof place);
  made.shared_region =
      vgpu_shared_regions_place(&worker->shared_regions, &place, worker->limits->session_shared, &made.next);
  memcpy(reply, &made, sizeof made);
  *reply_size = sizeof made;
  return made.shared_region == 0 && made.next == 0 ? VGPU_STATUS_REFUSED : VGPU_STATUS_OK;
}

static int32_t drop_shared_region(struct vgpu_worker *worker, uint32_t number) {
  struct vgpu_shared_region *region = vgpu_shared_regions_find(&worker->shared_regions, number);
  if (region != NULL && !region->mapped && worker->backend->forget_shared != NULL &&
      !worker->backend->forget_shared(worker, region)) {
    vgpu_shared_regions_leave(&worker->shared_regions, number);
    return VGPU_STATUS_OK;
  }
  vgpu_link_forget_passed(&worker->link, number);
  return vgpu_shared_regions_drop(&worker->shared_regions, number);
}

int32_t vgpu_control(struct vgpu_worker *worker, uint32_t opcode, const void *body, uint32_t body_size,
                     void *reply, uint32_t *reply_size, struct vgpu_bulk *bulk) {
  struct vgpu_facts_request facts_request;
  struct vgpu_usage_request usage_request;
  struct vgpu_shared_region_drop shared_region_drop;
  struct vgpu_facts_reply facts_reply = {0};
  struct vgpu_usage_reply usage_reply = {0};
  struct vgpu_query_request query_request;
  struct vgpu_query_reply query_reply = {0};
  int32_t status;
  switch (opcode) {
    case VGPU_OP_PING:
      return body_size == 0 ? VGPU_STATUS_OK : VGPU_STATUS_INVALID;
    case VGPU_OP_GOODBYE:
      __atomic_store_n(&worker->link.line.leaving, true, __ATOMIC_RELAXED);
      return body_size == 0 ? VGPU_STATUS_OK : VGPU_STATUS_INVALID;
    case VGPU_OP_DEVICE_FACTS:
      if (body_size != sizeof facts_request) return VGPU_STATUS_INVALID;
      memcpy(&facts_request, body, sizeof facts_request);
      status = device_facts(worker, &facts_request, &facts_reply, bulk);
      memcpy(reply, &facts_reply, sizeof facts_reply);
      *reply_size = sizeof facts_reply;
      return status;
    case VGPU_OP_DEVICE_USAGE:
    case VGPU_OP_DEVICE_PROCESSES:
      if (body_size != sizeof usage_request) return VGPU_STATUS_INVALID;
      memcpy(&usage_request, body, sizeof usage_request);
      if (opcode == VGPU_OP_DEVICE_PROCESSES) {
        status = device_processes(worker, usage_request.device, &facts_reply, bulk);
        memcpy(reply, &facts_reply, sizeof facts_reply);
        *reply_size = sizeof facts_reply;
      } else {
        status = device_usage(worker, usage_request.device, &usage_reply);
        if (usage_request.wants_persistence == 0) usage_reply.persistence = 0;
        memcpy(reply, &usage_reply, sizeof usage_reply);
        *reply_size = sizeof usage_reply;
      }
      return status;
    case VGPU_OP_DEVICE_QUERY:
      if (body_size != sizeof query_request) return VGPU_STATUS_INVALID;
      memcpy(&query_request, body, sizeof query_request);
      status = vgpu_query_answer(worker, &query_request, &query_reply, bulk);
      memcpy(reply, &query_reply, sizeof query_reply);
      *reply_size = sizeof query_reply;
      return status;
    case VGPU_OP_SHARED_REGION_ADD:
      return worker->shared_regions.vm_memory != NULL
                 ? place_shared_region(worker, body, body_size, reply, reply_size)
                 : add_shared_region(worker, body, body_size, reply, reply_size);
    case VGPU_OP_SHARED_REGION_DROP:
      if (body_size != sizeof shared_region_drop) return VGPU_STATUS_INVALID;
      memcpy(&shared_region_drop, body, sizeof shared_region_drop);
      return drop_shared_region(worker, shared_region_drop.shared_region);
    default:
      return VGPU_STATUS_UNKNOWN;
  }
}
