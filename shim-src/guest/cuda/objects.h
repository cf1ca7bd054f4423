/*
 * Live handles, sorted by address, so that an invalid handle is recognised without reading memory at its
 * address. The driver's lock guards the list.
 */
#ifndef VGPU_GUEST_CUDA_OBJECTS_H
#define VGPU_GUEST_CUDA_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>

enum vgpu_object_kind {
  VGPU_OBJECT_CONTEXT = 1,
  VGPU_OBJECT_STREAM = 2,
  VGPU_OBJECT_EVENT = 3,
  VGPU_OBJECT_MODULE = 16,
  VGPU_OBJECT_FUNCTION = 17,
  VGPU_OBJECT_LIBRARY = 18,
  VGPU_OBJECT_KERNEL = 19,
  VGPU_OBJECT_LINK = 20,
  VGPU_OBJECT_GRAPH = 21,
  VGPU_OBJECT_NODE = 22,
  VGPU_OBJECT_EXEC = 23,
  VGPU_OBJECT_POOL = 24,
  VGPU_OBJECT_USER = 25,
  VGPU_OBJECT_ARRAY = 26,
  VGPU_OBJECT_MIPMAP = 27,
  VGPU_OBJECT_REFERENCE = 28, /* of a texture or surface */
  VGPU_OBJECT_DESCRIBED = 30, /* resources of a device */
};

struct vgpu_object {
  struct vgpu_object *next;
  const void *handle;
  enum vgpu_object_kind kind;
};

#define VGPU_OBJECT_BUCKETS 4096
struct vgpu_objects {
  struct vgpu_object *buckets[VGPU_OBJECT_BUCKETS];
};

/* False: no memory. */
bool vgpu_objects_add(struct vgpu_objects *objects, const void *handle, enum vgpu_object_kind kind);
bool vgpu_objects_has(const struct vgpu_objects *objects, const void *handle, enum vgpu_object_kind kind);
bool vgpu_objects_remove(struct vgpu_objects *objects, const void *handle, enum vgpu_object_kind kind);

/* Removes each handle of `kind` for which `match(handle, with)` returns true. `match` may free the handle. */
void vgpu_objects_sweep(struct vgpu_objects *objects, enum vgpu_object_kind kind,
                        bool (*match)(void *handle, void *with), void *with);

#endif
