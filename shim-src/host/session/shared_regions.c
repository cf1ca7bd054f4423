#include "host/session/shared_regions.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire/shared.h"

#define PAGE 4096u

static void *map_shared(int descriptor, uint64_t bytes, uint64_t offset) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, (off_t)offset);
  return memory == MAP_FAILED ? NULL : memory;
}

uint64_t vgpu_shared_regions_pages(uint64_t bytes) {
  return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* The pages of a region that the host made. A region in a VM's memory uses that memory's pages. */
static uint64_t held_by(const struct vgpu_shared_region *region) {
  return region->offset == 0 ? vgpu_shared_regions_pages(region->bytes) : 0;
}

/* A free number, counted from 0. VGPU_SHARED_REGIONS_MAX: there is no room for so many bytes. */
static uint32_t free_number(const struct vgpu_shared_regions *shared_regions, uint64_t bytes,
                            uint64_t limit) {
  if (bytes == 0 || bytes > limit || shared_regions->bytes > limit - bytes) return VGPU_SHARED_REGIONS_MAX;
  uint32_t number = 0;
  while (number < VGPU_SHARED_REGIONS_MAX && shared_regions->array[number].memory != NULL) number++;
  return number;
}

static uint32_t keep(struct vgpu_shared_regions *shared_regions, uint32_t number,
                     const struct vgpu_shared_region *made) {
  shared_regions->array[number] = *made;
  shared_regions->bytes += made->bytes;
  shared_regions->held += held_by(made);
  if (number >= shared_regions->begun) __atomic_store_n(&shared_regions->begun, number + 1, __ATOMIC_RELEASE);
  return number + 1;
}

uint32_t vgpu_shared_regions_add(struct vgpu_shared_regions *shared_regions, uint64_t bytes, uint64_t limit,
                                 int *descriptor) {
  *descriptor = -1;
  uint32_t number = free_number(shared_regions, bytes, limit);
  if (number == VGPU_SHARED_REGIONS_MAX) return 0;
  int made_of = vgpu_shared_make("vgpu-shared region", bytes);
  if (made_of < 0) return 0;
  struct vgpu_shared_region made = {.bytes = bytes, .memory = map_shared(made_of, bytes, 0)};
  if (made.memory == NULL) {
    close(made_of);
    return 0;
  }
  *descriptor = made_of;
  return keep(shared_regions, number, &made);
}

uint32_t vgpu_shared_regions_place(struct vgpu_shared_regions *shared_regions,
                                   const struct vgpu_vm_place *place, uint64_t limit, uint64_t *next) {
  *next = 0;
  uint32_t number = free_number(shared_regions, place->bytes, limit);
  const struct vgpu_vm_memory *memory = shared_regions->vm_memory;
  if (number == VGPU_SHARED_REGIONS_MAX || !vgpu_vm_memory_take(memory, place, next)) return 0;
  struct vgpu_shared_region made = {.bytes = place->bytes,
                                    .offset = place->offset,
                                    .memory = map_shared(memory->holder, place->bytes, place->offset)};
  if (made.memory != NULL) return keep(shared_regions, number, &made);
  vgpu_vm_memory_give(memory, place);
  return 0;
}

static const struct vgpu_shared_region *find(const struct vgpu_shared_regions *shared_regions,
                                             uint32_t shared_region) {
  if (shared_region == 0 || shared_region > VGPU_SHARED_REGIONS_MAX ||
      shared_regions->array[shared_region - 1].memory == NULL ||
      shared_regions->array[shared_region - 1].leaves)
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
  if (found->in_kept_space)
    (void)mmap(found->memory, found->bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  else munmap(found->memory, found->bytes);
  const struct vgpu_vm_place place = {.bytes = found->bytes, .offset = found->offset};
  if (place.offset != 0) vgpu_vm_memory_give(shared_regions->vm_memory, &place);
  shared_regions->bytes -= found->bytes;
  shared_regions->held -= held_by(found);
  shared_regions->array[shared_region - 1] = (struct vgpu_shared_region){.memory = NULL};
  return VGPU_STATUS_OK;
}

void vgpu_shared_regions_leave(struct vgpu_shared_regions *shared_regions, uint32_t shared_region) {
  shared_regions->array[shared_region - 1].leaves = true;
  shared_regions->leaving++;
}

void vgpu_shared_regions_left(struct vgpu_shared_regions *shared_regions,
                              bool (*is_used)(void *context, const void *memory), void *context) {
  for (uint32_t i = 0; shared_regions->leaving > 0 && i < shared_regions->begun; i++) {
    struct vgpu_shared_region *region = &shared_regions->array[i];
    if (!region->leaves || is_used(context, region->memory)) continue;
    region->leaves = false;
    shared_regions->leaving--;
    (void)vgpu_shared_regions_drop(shared_regions, i + 1);
  }
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
