#include "guest/cuda/objects.h"

#include <stdint.h>
#include <stdlib.h>

static size_t bucket_of(const void *handle) {
  uint64_t value = (uint64_t)(uintptr_t)handle;
  return (size_t)((value >> 4) * 0x9e3779b97f4a7c15ull >> 52) % VGPU_OBJECT_BUCKETS;
}

bool vgpu_objects_add(struct vgpu_objects *objects, const void *handle, enum vgpu_object_kind kind) {
  struct vgpu_object *object = malloc(sizeof *object);
  if (object == NULL) return false;
  struct vgpu_object **bucket = &objects->buckets[bucket_of(handle)];
  *object = (struct vgpu_object){.next = *bucket, .handle = handle, .kind = kind};
  *bucket = object;
  return true;
}

bool vgpu_objects_has(const struct vgpu_objects *objects, const void *handle, enum vgpu_object_kind kind) {
  for (const struct vgpu_object *object = objects->buckets[bucket_of(handle)]; object != NULL;
       object = object->next) {
    if (object->handle == handle && object->kind == kind) return true;
  }
  return false;
}

bool vgpu_objects_remove(struct vgpu_objects *objects, const void *handle, enum vgpu_object_kind kind) {
  for (struct vgpu_object **link = &objects->buckets[bucket_of(handle)]; *link != NULL;
       link = &(*link)->next) {
    struct vgpu_object *object = *link;
    if (object->handle != handle || object->kind != kind) continue;
    *link = object->next;
    free(object);
    return true;
  }
  return false;
}

void vgpu_objects_sweep(struct vgpu_objects *objects, enum vgpu_object_kind kind,
                        bool (*match)(void *handle, void *with), void *with) {
  for (size_t i = 0; i < VGPU_OBJECT_BUCKETS; i++) {
    for (struct vgpu_object **link = &objects->buckets[i]; *link != NULL;) {
      struct vgpu_object *object = *link;
      if (object->kind == kind && match((void *)(uintptr_t)object->handle, with)) {
        *link = object->next;
        free(object);
      } else {
        link = &object->next;
      }
    }
  }
}
