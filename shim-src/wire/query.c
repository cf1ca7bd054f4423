#include "wire/query.h"

const struct vgpu_query *vgpu_query_find(uint32_t number, uint32_t *index) {
  for (uint32_t low = 0, high = vgpu_query_count; low < high;) {
    const uint32_t middle = low + (high - low) / 2;
    if (vgpu_queries[middle].number == number) {
      if (index != NULL) *index = middle;
      return &vgpu_queries[middle];
    }
    if (vgpu_queries[middle].number < number) low = middle + 1;
    else high = middle;
  }
  return NULL;
}

bool vgpu_query_carries(const struct vgpu_query_parameter *parameter, uint32_t version) {
  for (size_t i = 0; i < sizeof parameter->versions / sizeof *parameter->versions; i++)
    if (version != 0 && parameter->versions[i] == version) return true;
  return false;
}

static uint64_t elements(const struct vgpu_query *query, const struct vgpu_query_request *request) {
  for (uint32_t i = 0; i < query->count; i++)
    if (query->parameters[i].kind == VGPU_QUERY_COUNT) return request->values[i];
  return 0;
}

bool vgpu_query_sizes(const struct vgpu_query *query, const struct vgpu_query_request *request,
                      uint32_t sizes[VGPU_QUERY_PARAMETERS]) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < query->count; i++) {
    const struct vgpu_query_parameter *parameter = &query->parameters[i];
    uint64_t count = 1;
    switch (parameter->kind) {
      case VGPU_QUERY_TEXT:
        count = i + 1 < query->count ? request->values[i + 1] : 0;
        break;
      case VGPU_QUERY_ITEMS:
        count = request->values[i] == 0 ? 0 : elements(query, request);
        break;
      case VGPU_QUERY_FIELDS:
        count = i > 0 ? request->values[i - 1] : 0;
        break;
      default:
        break;
    }
    if (count > VGPU_QUERY_BYTES) return false;
    uint64_t bytes = count * parameter->size;
    if (parameter->kind == VGPU_QUERY_STRUCTURE) {
      if (!vgpu_query_carries(parameter, (uint32_t)request->values[i])) return false;
      bytes = request->values[i] & 0xffffff;
    }
    sum += (bytes + 7) & ~(uint64_t)7;
    if (sum > VGPU_QUERY_BYTES) return false;
    sizes[i] = (uint32_t)bytes;
  }
  return true;
}
