#include "host/session/shared_regions.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire/shared.h"

uint32_t vgpu_shared_regions_add(struct vgpu_shared_regions *shared_regions, uint64_t bytes, uint64_t limit,
                                 int *descriptor) {
  if (bytes == 0 || bytes > limit || shared_regions->bytes > limit - bytes) return 0;
  uint32_t shared_region = 0;
  while (shared_region < VGPU_SHARED_REGIONS_MAX && shared_regions->array[shared_region].memory != NULL)
    shared_region++;
  if (shared_region == VGPU_SHARED_REGIONS_MAX) return 0;
  *descriptor = vgpu_shared_make("vgpu-shared region", bytes);
  if (*descriptor < 0) return 0;
  unsigned char *memory = vgpu_shared_map(*descriptor, bytes);
  if (memory == NULL) {
    close(*descriptor);
    return 0;
  }
  shared_regions->array[shared_region] = (struct vgpu_shared_region){.memory = memory, .bytes = bytes};
  shared_regions->bytes += bytes;
  return shared_region + 1;
}

static const struct vgpu_shared_region *find(const struct vgpu_shared_regions *shared_regions,
                                             uint32_t shared_region) {
  if (shared_region == 0 || shared_region > VGPU_SHARED_REGIONS_MAX ||
      shared_regions->array[shared_region - 1].memory == NULL)
    return NULL;
  return &shared_regions->array[shared_region - 1];
}

unsigned char *vgpu_shared_regions_map(struct vgpu_shared_regions *shared_regions, uint32_t shared_region,
                                       uint64_t bytes) {
  const struct vgpu_shared_region *found = find(shared_regions, shared_region);
  if (found == NULL || found->mapped || found->bytes != bytes) return NULL;
  shared_regions->array[shared_region - 1].mapped = true;
  return found->memory;
}

void vgpu_shared_regions_unmap(struct vgpu_shared_regions *shared_regions, const unsigned char *memory) {
  for (uint32_t shared_region = 0; shared_region < VGPU_SHARED_REGIONS_MAX; shared_region++) {
    if (shared_regions->array[shared_region].memory == memory)
      shared_regions->array[shared_region].mapped = false;
  }
}

int32_t vgpu_shared_regions_drop(struct vgpu_shared_regions *shared_regions, uint32_t shared_region) {
  const struct vgpu_shared_region *found = find(shared_regions, shared_region);
  if (found == NULL || found->mapped) return VGPU_STATUS_INVALID;
  munmap(found->memory, found->bytes);
  shared_regions->bytes -= found->bytes;
  shared_regions->array[shared_region - 1] = (struct vgpu_shared_region){.memory = NULL};
  return VGPU_STATUS_OK;
}

unsigned char *vgpu_shared_regions_at(const struct vgpu_shared_regions *shared_regions,
                                      const struct vgpu_span *span) {
  const struct vgpu_shared_region *shared_region = find(shared_regions, span->shared_region);
  if (shared_region == NULL || span->length == 0 || span->length > VGPU_SPAN_MAX ||
      span->length > shared_region->bytes || span->offset > shared_region->bytes - span->length) {
    return NULL;
  }
  return shared_region->memory + span->offset;
}
