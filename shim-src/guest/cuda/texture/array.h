/* Arrays as the guest knows them: what a handle points to. The texels are at the host. */
#ifndef VGPU_GUEST_CUDA_ARRAY_H
#define VGPU_GUEST_CUDA_ARRAY_H

#include "api/structures.h"
#include "guest/cuda/internal.h"
#include "wire/texture.h"

/* An array, one level of a mipmapped one, or a mipmapped one itself. */
struct vgpu_array {
  uint64_t number; /* what the host knows it by; of a level: its mipmap's */
  uint32_t level;
  struct vgpu_array *mipmap;                         /* that it is a level of; NULL: of none */
  uint32_t level_count;                              /* 0: it is no mipmap */
  struct vgpu_array *levels[VGPU_ARRAY_LEVELS_MOST]; /* handles that were asked for */
  struct vgpu_context *context;
  uint64_t context_number;
  struct vgpu_array_descriptor as; /* of this level */
};

/* Copies what a live handle says; `kind` is VGPU_OBJECT_ARRAY or _MIPMAP. False: there is none. */
bool vgpu_array_take(struct vgpu_driver *driver, const void *handle, enum vgpu_object_kind kind,
                     struct vgpu_array *array);
/* The handle of a level of the array of that number, as it was given out; NULL: none. */
void *vgpu_array_handle(struct vgpu_driver *driver, uint64_t number, uint32_t level, bool mipmap);

/* With driver->lock held. */
void vgpu_arrays_context_ended(struct vgpu_driver *driver, struct vgpu_context *context);

/* object.c: a request for the host. `view` may be NULL. */
int vgpu_texture_request_of(struct vgpu_driver *driver, const struct vgpu_resource_descriptor *resource,
                            const struct vgpu_texture_descriptor *texture,
                            const struct vgpu_view_descriptor *view, struct vgpu_texture_request *request);

/* An object and its descriptors, for the calls that return them. */
struct vgpu_texture {
  struct vgpu_texture *next;
  uint64_t object;
  struct vgpu_context *context;
  bool surface, viewed;
  struct vgpu_resource_descriptor resource;
  struct vgpu_texture_descriptor texture;
  struct vgpu_view_descriptor view;
};
/* With driver->lock held. */
void vgpu_texture_objects_context_ended(struct vgpu_driver *driver, struct vgpu_context *context);

/* reference.c, with driver->lock held: those of a module that goes. */
void vgpu_references_module_ended(struct vgpu_driver *driver, uint64_t module);

#endif
