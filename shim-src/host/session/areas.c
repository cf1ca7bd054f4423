#include "host/session/areas.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire/shared.h"

uint32_t vgpu_areas_add(struct vgpu_areas *areas, uint64_t bytes, uint64_t limit, int *descriptor) {
  if (bytes == 0 || bytes > limit || areas->bytes > limit - bytes) return 0;
  uint32_t area = 0;
  while (area < VGPU_AREAS_MAX && areas->array[area].memory != NULL) area++;
  if (area == VGPU_AREAS_MAX) return 0;
  *descriptor = vgpu_shared_make("vgpu-area", bytes);
  if (*descriptor < 0) return 0;
  unsigned char *memory = vgpu_shared_map(*descriptor, bytes);
  if (memory == NULL) {
    close(*descriptor);
    return 0;
  }
  areas->array[area] = (struct vgpu_area){.memory = memory, .bytes = bytes};
  areas->bytes += bytes;
  return area + 1;
}

static const struct vgpu_area *find(const struct vgpu_areas *areas, uint32_t area) {
  if (area == 0 || area > VGPU_AREAS_MAX || areas->array[area - 1].memory == NULL) return NULL;
  return &areas->array[area - 1];
}

unsigned char *vgpu_areas_map(struct vgpu_areas *areas, uint32_t area, uint64_t bytes) {
  const struct vgpu_area *found = find(areas, area);
  if (found == NULL || found->mapped || found->bytes != bytes) return NULL;
  areas->array[area - 1].mapped = true;
  return found->memory;
}

void vgpu_areas_unmap(struct vgpu_areas *areas, const unsigned char *memory) {
  for (uint32_t area = 0; area < VGPU_AREAS_MAX; area++) {
    if (areas->array[area].memory == memory) areas->array[area].mapped = false;
  }
}

int32_t vgpu_areas_drop(struct vgpu_areas *areas, uint32_t area) {
  const struct vgpu_area *found = find(areas, area);
  if (found == NULL || found->mapped) return VGPU_STATUS_INVALID;
  munmap(found->memory, found->bytes);
  areas->bytes -= found->bytes;
  areas->array[area - 1] = (struct vgpu_area){.memory = NULL};
  return VGPU_STATUS_OK;
}

unsigned char *vgpu_areas_at(const struct vgpu_areas *areas, const struct vgpu_span *span) {
  const struct vgpu_area *area = find(areas, span->area);
  if (area == NULL || span->length == 0 || span->length > VGPU_SPAN_MAX || span->length > area->bytes ||
      span->offset > area->bytes - span->length) {
    return NULL;
  }
  return area->memory + span->offset;
}
