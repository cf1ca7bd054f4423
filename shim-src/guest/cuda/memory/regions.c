#include "guest/cuda/memory/regions.h"

#include "sorted_ranges.h"

VGPU_SORTED_RANGES(struct vgpu_regions, struct vgpu_region, start)

void vgpu_regions_init(struct vgpu_regions *regions) {
  memset(regions, 0, sizeof *regions);
  pthread_rwlock_init(&regions->lock, NULL);
  regions->next_id = 1;
}

enum vgpu_regions_result vgpu_regions_add(struct vgpu_regions *regions, const struct vgpu_region *region) {
  pthread_rwlock_wrlock(&regions->lock);
  enum vgpu_regions_result result = VGPU_REGIONS_OK;
  size_t at = upper_bound(regions, region->start);
  const struct vgpu_region *array = regions->array;
  if (region->size == 0 || region->start + region->size < region->start ||
      (at > 0 && array[at - 1].start + array[at - 1].size > region->start) ||
      (at < regions->count && region->start + region->size > array[at].start)) {
    result = VGPU_REGIONS_OVERLAP;
  } else if (!make_room(regions)) {
    result = VGPU_REGIONS_NO_MEMORY;
  } else {
    insert(regions, region);
    regions->array[at].id = regions->next_id++;
  }
  pthread_rwlock_unlock(&regions->lock);
  return result;
}

static bool find_locked(const struct vgpu_regions *regions, uint64_t address, struct vgpu_region *found) {
  size_t at = upper_bound(regions, address);
  if (at == 0 || address - regions->array[at - 1].start >= regions->array[at - 1].size) return false;
  *found = regions->array[at - 1];
  return true;
}

bool vgpu_regions_find(struct vgpu_regions *regions, uint64_t address, struct vgpu_region *found) {
  pthread_rwlock_rdlock(&regions->lock);
  bool result = find_locked(regions, address, found);
  pthread_rwlock_unlock(&regions->lock);
  return result;
}

bool vgpu_regions_advise(struct vgpu_regions *regions, uint64_t address, uint64_t size, unsigned which,
                         int32_t value) {
  pthread_rwlock_wrlock(&regions->lock);
  struct vgpu_region found;
  bool inside = find_locked(regions, address, &found) && found.kind == VGPU_REGION_MANAGED &&
                size <= found.size - (address - found.start);
  if (inside) regions->array[upper_bound(regions, address) - 1].advice[which] = value;
  pthread_rwlock_unlock(&regions->lock);
  return inside;
}

bool vgpu_regions_set_sync(struct vgpu_regions *regions, uint64_t address, bool sync) {
  pthread_rwlock_wrlock(&regions->lock);
  struct vgpu_region found;
  bool there = find_locked(regions, address, &found) && vgpu_region_on_device(&found);
  if (there) regions->array[upper_bound(regions, address) - 1].sync_memops = sync;
  pthread_rwlock_unlock(&regions->lock);
  return there;
}

bool vgpu_regions_set_lent(struct vgpu_regions *regions, uint64_t start, enum vgpu_region_kind kind,
                           enum vgpu_region_lent lent) {
  pthread_rwlock_wrlock(&regions->lock);
  struct vgpu_region found;
  bool there = find_locked(regions, start, &found) && found.start == start && found.kind == kind;
  if (there) {
    struct vgpu_region *region = &regions->array[upper_bound(regions, start) - 1];
    region->lent = lent != VGPU_NOT_LENT;
    region->in_pieces = lent == VGPU_LENT_IN_PIECES;
  }
  pthread_rwlock_unlock(&regions->lock);
  return there;
}

bool vgpu_regions_is_device(struct vgpu_regions *regions, uint64_t address, uint64_t size) {
  pthread_rwlock_rdlock(&regions->lock);
  size_t at = upper_bound(regions, address);
  bool inside = false;
  while (at > 0 && at <= regions->count) {
    const struct vgpu_region *region = &regions->array[at - 1];
    uint64_t offset = address - region->start;
    bool mapped = region->kind == VGPU_REGION_MAPPED;
    bool usable =
        mapped ? region->flags != 0 : (region->lent && !region->in_pieces) || vgpu_region_on_device(region);
    if (!usable || address < region->start || offset >= region->size) break;
    inside = size <= region->size - offset;
    if (inside || !mapped) break;
    size -= region->size - offset;
    address = region->start + region->size;
    at++;
    /* A plain allocation behind a mapping is a separate allocation. */
    if (at <= regions->count && regions->array[at - 1].kind != VGPU_REGION_MAPPED) break;
  }
  pthread_rwlock_unlock(&regions->lock);
  return inside;
}

void vgpu_regions_set_access(struct vgpu_regions *regions, uint64_t start, uint64_t size, uint32_t access) {
  pthread_rwlock_wrlock(&regions->lock);
  for (size_t i = 0; i < regions->count; i++) {
    struct vgpu_region *region = &regions->array[i];
    if (region->kind == VGPU_REGION_MAPPED && region->start >= start && region->start - start < size) {
      region->flags = access;
    }
  }
  pthread_rwlock_unlock(&regions->lock);
}

bool vgpu_regions_remove(struct vgpu_regions *regions, uint64_t start, enum vgpu_region_kind kind,
                         struct vgpu_region *removed) {
  pthread_rwlock_wrlock(&regions->lock);
  bool result = find_locked(regions, start, removed) && removed->start == start && removed->kind == kind;
  if (result) remove_at(regions, upper_bound(regions, start) - 1);
  pthread_rwlock_unlock(&regions->lock);
  return result;
}

void vgpu_regions_drop_context(struct vgpu_regions *regions, uint64_t context) {
  pthread_rwlock_wrlock(&regions->lock);
  size_t kept = 0;
  for (size_t i = 0; i < regions->count; i++) {
    if (regions->array[i].kind == VGPU_REGION_DEVICE && regions->array[i].context == context) continue;
    regions->array[kept++] = regions->array[i];
  }
  regions->count = kept;
  pthread_rwlock_unlock(&regions->lock);
}

uint64_t vgpu_regions_pool_bytes(struct vgpu_regions *regions, uint64_t pool) {
  uint64_t bytes = 0;
  pthread_rwlock_rdlock(&regions->lock);
  for (size_t i = 0; i < regions->count; i++)
    if (regions->array[i].pool == pool) bytes += regions->array[i].size;
  pthread_rwlock_unlock(&regions->lock);
  return bytes;
}

void vgpu_regions_drop_module(struct vgpu_regions *regions, uint64_t module) {
  pthread_rwlock_wrlock(&regions->lock);
  size_t kept = 0;
  for (size_t i = 0; i < regions->count; i++) {
    if (regions->array[i].module != module) regions->array[kept++] = regions->array[i];
  }
  regions->count = kept;
  pthread_rwlock_unlock(&regions->lock);
}
