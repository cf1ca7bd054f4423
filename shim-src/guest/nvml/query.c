#include "guest/nvml/query.h"

#include <stdlib.h>

#include "wire/query.h"

/* nvmlReturn in nvmlFieldValue_t: nvidia-smi reads it even if the whole call failed. */
enum { FIELD_RESULT = 28 };

struct call {
  const struct vgpu_query *query;
  const uint64_t *values; /* the caller's */
  struct vgpu_query_request request;
  uint32_t sizes[VGPU_QUERY_PARAMETERS];
  unsigned char *bulk; /* VGPU_QUERY_BYTES */
  uint32_t bulk_size;
};

static void *address(const struct call *call, uint32_t i) {
  return (void *)(uintptr_t)call->values[i];
}

static uint64_t capacity(const struct vgpu_query *query, uint64_t given) {
  uint64_t bytes = 8;
  for (uint32_t i = 0; i < query->count; i++)
    if (query->parameters[i].kind == VGPU_QUERY_ITEMS) bytes += query->parameters[i].size;
  const uint64_t most = VGPU_QUERY_BYTES / 2 / bytes;
  return given < most ? given : most;
}

static int fill_value(const struct vgpu_nvml *nvml, struct call *call, uint32_t i) {
  const struct vgpu_query_parameter *parameter = &call->query->parameters[i];
  uint64_t *value = &call->request.values[i];
  uint32_t number;

  switch (parameter->kind) {
    case VGPU_QUERY_VALUE:
      *value = call->values[i];
      if (i > 0 && call->query->parameters[i - 1].kind == VGPU_QUERY_TEXT && *value > VGPU_QUERY_BYTES / 2)
        *value = VGPU_QUERY_BYTES / 2;
      return NVML_SUCCESS;
    case VGPU_QUERY_DEVICE:
      if (!vgpu_nvml_number(nvml, address(call, i), &number)) return NVML_INVALID_ARGUMENT;
      *value = number;
      return NVML_SUCCESS;
    case VGPU_QUERY_ITEMS:
      *value = call->values[i] != 0;
      return NVML_SUCCESS;
    default:
      break;
  }
  if (call->values[i] == 0) return NVML_INVALID_ARGUMENT;
  if (parameter->kind != VGPU_QUERY_COUNT && parameter->kind != VGPU_QUERY_STRUCTURE) return NVML_SUCCESS;
  memcpy(&number, address(call, i), sizeof number);
  *value = parameter->kind == VGPU_QUERY_COUNT ? capacity(call->query, number) : number;
  return parameter->kind == VGPU_QUERY_COUNT || vgpu_query_carries(parameter, number) ? NVML_SUCCESS
                                                                                      : NVML_VERSION_MISMATCH;
}

static int fill(const struct vgpu_nvml *nvml, struct call *call) {
  for (uint32_t i = 0; i < call->query->count; i++) {
    int result = fill_value(nvml, call, i);
    if (result != NVML_SUCCESS) return result;
  }
  if (!vgpu_query_sizes(call->query, &call->request, call->sizes)) return NVML_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < call->query->count; i++) {
    if (!vgpu_query_reads(call->query->parameters[i].kind)) continue;
    memcpy(call->bulk + call->bulk_size, address(call, i), call->sizes[i]);
    call->bulk_size += vgpu_query_step(call->sizes[i]);
  }
  return NVML_SUCCESS;
}

/* If a list does not fit, only its length is copied. */
static int give(const struct call *call, int result, uint32_t size) {
  uint32_t at = 0, count = 0;

  if (result != NVML_SUCCESS && result != NVML_INSUFFICIENT_SIZE) return result;
  for (uint32_t i = 0; i < call->query->count; i++) at += vgpu_query_step(call->sizes[i]);
  if (at != size) return NVML_UNKNOWN;
  at = 0;
  for (uint32_t i = 0; i < call->query->count; i++) { /* the count may follow its array */
    if (call->query->parameters[i].kind == VGPU_QUERY_COUNT) memcpy(&count, call->bulk + at, sizeof count);
    at += vgpu_query_step(call->sizes[i]);
  }
  at = 0;
  for (uint32_t i = 0; i < call->query->count; i++) {
    const uint32_t kind = call->query->parameters[i].kind;
    uint64_t bytes = call->sizes[i];
    if (kind == VGPU_QUERY_ITEMS && (uint64_t)count * call->query->parameters[i].size < bytes)
      bytes = (uint64_t)count * call->query->parameters[i].size;
    if (bytes > 0 && (result == NVML_SUCCESS || kind == VGPU_QUERY_COUNT))
      memcpy(address(call, i), call->bulk + at, (size_t)bytes);
    at += vgpu_query_step(call->sizes[i]);
  }
  return result;
}

static int ask(struct call *call, nvml_device device) {
  const struct vgpu_device_facts *facts;
  int32_t status = 0;
  int result;
  struct vgpu_nvml *nvml = vgpu_nvml_enter_device(device, &facts, &call->request.device, &result);

  if (!nvml) return result;
  result = fill(nvml, call);
  if (result == NVML_SUCCESS) {
    struct vgpu_query_reply reply;
    struct vgpu_send send = {.body = &call->request,
                             .body_size = sizeof call->request,
                             .bulk = call->bulk,
                             .bulk_size = call->bulk_size};
    struct vgpu_receive receive = {
        .body = &reply, .body_size = sizeof reply, .bulk = call->bulk, .bulk_capacity = VGPU_QUERY_BYTES};
    enum vgpu_outcome outcome =
        vgpu_session_call(nvml->session, VGPU_OP_DEVICE_QUERY, &send, &receive, &status);
    result = vgpu_nvml_outcome(outcome, status);
    if (result == NVML_SUCCESS) result = give(call, reply.result, receive.bulk_size);
  }
  vgpu_nvml_leave(nvml);
  return result;
}

static void fail_fields(const struct call *call, int result) {
  for (uint32_t i = 1; i < call->query->count; i++) {
    if (call->query->parameters[i].kind != VGPU_QUERY_FIELDS || call->values[i] == 0) continue;
    for (int64_t k = 0; k < (int32_t)call->values[i - 1]; k++)
      memcpy((unsigned char *)address(call, i) + k * call->query->parameters[i].size + FIELD_RESULT, &result,
             sizeof result);
  }
}

int vgpu_nvml_query(nvml_device device, uint32_t number, const uint64_t *values) {
  struct call call = {.query = vgpu_query_find(number, NULL),
                      .values = values,
                      .request = {.number = number},
                      .bulk = calloc(1, VGPU_QUERY_BYTES)};

  if (!call.bulk) return NVML_MEMORY;
  int result = ask(&call, device);
  if (result != NVML_SUCCESS) fail_fields(&call, result);
  free(call.bulk);
  return result;
}

int vgpu_nvml_ready_device(nvml_device device) {
  struct vgpu_device_facts facts;

  return vgpu_nvml_facts(device, device, &facts, NULL); /* the second argument is only compared with NULL */
}

bool vgpu_nvml_clear(void *structure, const uint32_t *versions) {
  uint32_t version;

  memcpy(&version, structure, sizeof version);
  while (*versions != 0 && *versions != version) versions++;
  if (*versions == 0) return false;
  memset((unsigned char *)structure + sizeof version, 0, (version & 0xffffff) - sizeof version);
  return true;
}
