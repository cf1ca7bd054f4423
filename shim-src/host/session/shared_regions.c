#include "host/session/shared_regions.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire/shared.h"

/* Memory of its own; false: no room. */
static bool make(struct vgpu_shared_region *made, uint64_t bytes, int *descriptor) {
  *descriptor = vgpu_shared_make("vgpu-shared region", bytes);
  if (*descriptor < 0) return false;
  made->memory = vgpu_shared_map(*descriptor, bytes);
  if (made->memory == NULL) close(*descriptor);
  return made->memory != NULL;
}

/* A range of the VM's memory; false: it has no room. */
static bool place(struct vgpu_shared_region *made, const struct vgpu_vm_memory *memory, uint64_t bytes) {
  if (!vgpu_vm_memory_take(memory, bytes, &made->offset)) return false;
  void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->holder, (off_t)made->offset);
  if (mapped == MAP_FAILED) {
    vgpu_vm_memory_give(memory, made->offset, bytes);
    return false;
  }
  made->memory = mapped;
  made->placed = true;
  return true;
}

uint32_t vgpu_shared_regions_add(struct vgpu_shared_regions *shared_regions, uint64_t bytes, uint64_t limit,
                                 int *descriptor, uint64_t *offset) {
  *descriptor = -1;
  if (bytes == 0 || bytes > limit || shared_regions->bytes > limit - bytes) return 0;
  uint32_t shared_region = 0;
  while (shared_region < VGPU_SHARED_REGIONS_MAX && shared_regions->array[shared_region].memory != NULL)
    shared_region++;
  if (shared_region == VGPU_SHARED_REGIONS_MAX) return 0;
  struct vgpu_shared_region made = {.bytes = bytes};
  if (shared_regions->vm_memory != NULL ? !place(&made, shared_regions->vm_memory, bytes)
                                        : !make(&made, bytes, descriptor))
    return 0;
  *offset = made.offset;
  shared_regions->array[shared_region] = made;
  shared_regions->bytes += bytes;
  if (shared_region >= shared_regions->begun) shared_regions->begun = shared_region + 1;
  return shared_region + 1;
}

static const struct vgpu_shared_region *find(const struct vgpu_shared_regions *shared_regions,
                                             uint32_t shared_region) {
  if (shared_region == 0 || shared_region > VGPU_SHARED_REGIONS_MAX ||
      shared_regions->array[shared_region - 1].memory == NULL)
    return NULL;
  return &shared_regions->array[shared_region - 1];
}

struct vgpu_shared_region *vgpu_shared_regions_find(struct vgpu_shared_regions *shared_regions,
                                                    uint32_t shared_region) {
  return find(shared_regions, shared_region) == NULL ? NULL : &shared_regions->array[shared_region - 1];
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
  if (found->placed) vgpu_vm_memory_give(shared_regions->vm_memory, found->offset, found->bytes);
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
