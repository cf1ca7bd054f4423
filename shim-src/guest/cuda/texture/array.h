/* Arrays as the guest knows them: what a handle points to. The texels are at the host. */
#ifndef VGPU_GUEST_CUDA_ARRAY_H
#define VGPU_GUEST_CUDA_ARRAY_H

#include "guest/cuda/internal.h"
#include "wire/texture.h"

/* CUDA_ARRAY3D_DESCRIPTOR */
struct vgpu_array_descriptor {
  size_t width, height, depth;
  int32_t format;
  uint32_t channels, flags;
};
_Static_assert(sizeof(struct vgpu_array_descriptor) == 40, "CUDA_ARRAY3D_DESCRIPTOR");

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

/* object.c: CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC and CUDA_RESOURCE_VIEW_DESC */
struct vgpu_resource_descriptor {
  int32_t type; /* enum vgpu_texture_resource, up to VGPU_TEXTURE_PITCH */
  union {
    void *array;
    struct {
      uint64_t address;
      int32_t format;
      uint32_t channels;
      size_t width, height, pitch; /* of linear memory the first counts bytes */
    } memory;
    int32_t reserved[32];
  } of;
  uint32_t flags;
};
struct vgpu_texture_descriptor {
  int32_t address_mode[3], filter;
  uint32_t flags, anisotropy;
  int32_t mip_filter;
  float bias, min_level, max_level, border[4];
  int32_t reserved[12];
};
struct vgpu_view_descriptor {
  int32_t format;
  size_t width, height, depth;
  uint32_t first_level, last_level, first_layer, last_layer, reserved[16];
};
_Static_assert(sizeof(struct vgpu_resource_descriptor) == 144 &&
                   sizeof(struct vgpu_texture_descriptor) == 104 &&
                   sizeof(struct vgpu_view_descriptor) == 112,
               "descriptors of textures");

/* A request for the host. `view` may be NULL. */
int vgpu_texture_request_of(struct vgpu_driver *driver, const struct vgpu_resource_descriptor *resource,
                            const struct vgpu_texture_descriptor *texture,
                            const struct vgpu_view_descriptor *view, struct vgpu_texture_request *request);

/* An object that was made: what it was made of, for those who ask. */
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
