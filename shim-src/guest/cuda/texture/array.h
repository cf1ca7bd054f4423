#ifndef VGPU_GUEST_CUDA_ARRAY_H
#define VGPU_GUEST_CUDA_ARRAY_H

#include "api/structures.h"
#include "guest/cuda/internal.h"
#include "wire/texture.h"

/* An array, a level of a mipmapped array, or a mipmapped array. The texels are at the host. */
struct vgpu_array {
  uint64_t number; /* number at the host; a level has that of its mipmap */
  uint32_t level;
  struct vgpu_array *mipmap;                         /* of a level: its mipmap; else NULL */
  uint32_t level_count;                              /* 0: not a mipmap */
  struct vgpu_array *levels[VGPU_ARRAY_LEVELS_MOST]; /* handles of levels that the program got */
  struct vgpu_context *context;
  uint64_t context_number;
  struct vgpu_array_descriptor as; /* description of this array or level */
};

/*
 * Copies the fields of a live handle. `kind`: VGPU_OBJECT_ARRAY or VGPU_OBJECT_MIPMAP. False: the handle is
 * not live.
 */
bool vgpu_array_take(struct vgpu_driver *driver, const void *handle, enum vgpu_object_kind kind,
                     struct vgpu_array *array);
/* Returns the handle of a level of the array with this number; NULL: the program has none. */
void *vgpu_array_handle(struct vgpu_driver *driver, uint64_t number, uint32_t level, bool mipmap);

/* Removes the arrays of a context that has ended. The caller holds driver->lock. */
void vgpu_arrays_context_ended(struct vgpu_driver *driver, struct vgpu_context *context);

/* object.c: makes a request for the host from descriptors. `view` may be NULL. Returns a CUresult. */
int vgpu_texture_request_of(struct vgpu_driver *driver, const struct vgpu_resource_descriptor *resource,
                            const struct vgpu_texture_descriptor *texture,
                            const struct vgpu_view_descriptor *view, struct vgpu_texture_request *request);

struct vgpu_texture {
  struct vgpu_texture *next;
  uint64_t object;
  struct vgpu_context *context;
  bool surface, viewed;
  struct vgpu_resource_descriptor resource;
  struct vgpu_texture_descriptor texture;
  struct vgpu_view_descriptor view;
};
/* Removes the objects of a context that has ended. The caller holds driver->lock. */
void vgpu_texture_objects_context_ended(struct vgpu_driver *driver, struct vgpu_context *context);

/* reference.c: removes the references of a module that was unloaded. The caller holds driver->lock. */
void vgpu_references_module_ended(struct vgpu_driver *driver, uint64_t module);

#endif
