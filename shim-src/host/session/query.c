#include "host/session/query.h"

#include <string.h>

int32_t vgpu_query_answer(struct vgpu_worker *worker, const struct vgpu_query_request *request,
                          struct vgpu_query_reply *reply, struct vgpu_bulk *bulk) {
  const struct vgpu_query *query = vgpu_query_find(request->number, NULL);
  uint32_t sizes[VGPU_QUERY_PARAMETERS];
  uint64_t values[VGPU_QUERY_PARAMETERS];
  uint32_t in = 0, out = 0;
  if (request->device >= worker->inventory->count) return VGPU_STATUS_INVALID;
  *reply = (struct vgpu_query_reply){.result = VGPU_NVML_NOT_SUPPORTED};
  if (query == NULL) return VGPU_STATUS_OK; /* the guest is newer */
  if (bulk->out_capacity < VGPU_QUERY_BYTES || !vgpu_query_sizes(query, request, sizes))
    return VGPU_STATUS_INVALID;
  memset(bulk->out, 0, VGPU_QUERY_BYTES);
  for (uint32_t i = 0; i < query->count; i++) {
    const struct vgpu_query_parameter *parameter = &query->parameters[i];
    unsigned char *place = bulk->out + out;
    values[i] = request->values[i];
    if (parameter->kind == VGPU_QUERY_DEVICE && values[i] >= worker->inventory->count)
      return VGPU_STATUS_INVALID;
    if (parameter->kind == VGPU_QUERY_VALUE || parameter->kind == VGPU_QUERY_DEVICE) continue;
    if (parameter->kind == VGPU_QUERY_COUNT) {
      const uint32_t capacity = (uint32_t)values[i];
      memcpy(place, &capacity, sizeof capacity);
    } else if (vgpu_query_reads(parameter->kind)) {
      if (bulk->in_size - in < sizes[i]) return VGPU_STATUS_INVALID;
      memcpy(place, bulk->in + in, sizes[i]);
      /* The version inside of the bulk was not checked. */
      const uint32_t version = (uint32_t)values[i];
      if (parameter->kind == VGPU_QUERY_STRUCTURE) memcpy(place, &version, sizeof version);
      in += vgpu_query_step(sizes[i]);
      if (in > bulk->in_size) in = bulk->in_size;
    }
    const bool absent = parameter->kind == VGPU_QUERY_ITEMS && values[i] == 0;
    values[i] = absent ? 0 : (uintptr_t)place;
    out += vgpu_query_step(sizes[i]);
  }
  reply->result = worker->backend->query(worker, query, request->device, values);
  bulk->out_size = out;
  return VGPU_STATUS_OK;
}
