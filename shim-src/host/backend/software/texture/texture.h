/*
 * Arrays, textures and surfaces of one session on software devices. An array's memory has no address on the
 * device: nothing but its handle and the objects that are made of it leads there. It lives as long as one of
 * them does.
 */
#ifndef VGPU_HOST_SOFTWARE_TEXTURE_H
#define VGPU_HOST_SOFTWARE_TEXTURE_H

#include "host/backend/software/ptx/texture.h"
#include "wire/texture.h"

struct vgpu_worker;

struct vgpu_array {
  uint32_t users; /* its handle and objects */
  uint32_t device;
  uint64_t counted; /* bytes of device memory, and of `memory` */
  unsigned char *memory;
  bool cube, layered, deep; /* deep: of three dimensions */
  bool writable;            /* by surfaces */
  uint8_t texel, channels;
  bool normalized; /* UNORM and SNORM formats are always read as floats */
  uint32_t level_count;
  bool mipmapped;
  struct ptx_level levels[VGPU_ARRAY_LEVELS_MOST];
};

/* A place in the session's table of objects; what kernels hold is a number of place and use. */
struct vgpu_texture_place {
  uint32_t use; /* odd while there is an object */
  uint64_t context;
  struct vgpu_array *array;
  uint64_t address, bytes; /* of memory */
  struct ptx_texture texture;
  struct ptx_level levels[VGPU_ARRAY_LEVELS_MOST]; /* of a view that begins behind the first layer */
};

struct vgpu_textures {
  struct vgpu_texture_place **places; /* each stays where it is, for launches look into it */
  uint32_t count, room;
};

/* NULL: there is none of that number. */
struct vgpu_array *vgpu_array_find(struct vgpu_worker *worker, uint64_t number);
void vgpu_array_release(struct vgpu_worker *worker, struct vgpu_array *array);

/*
 * Finds the texel of a CUarray_format; false: the format is not supported. *normalized: it is always read as
 * floats.
 */
bool vgpu_format_texel(int32_t format, enum ptx_texel *texel, bool *normalized);

/* A ptx_find_texture. */
bool vgpu_texture_find(void *user, uint64_t object, struct ptx_texture *texture);

/* All that belongs to a context that ends. */
void vgpu_textures_drop(struct vgpu_worker *worker, uint64_t context);

#endif
