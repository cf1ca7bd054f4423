/*
 * Arrays, textures and surfaces of one session on software devices. The memory of an array has no device
 * address: only its handle, and objects that were made of it, refer to it. The memory lives as long as one of
 * them.
 */
#ifndef VGPU_HOST_SOFTWARE_TEXTURE_H
#define VGPU_HOST_SOFTWARE_TEXTURE_H

#include "host/backend/software/ptx/texture.h"
#include "wire/texture.h"

struct vgpu_worker;

struct vgpu_array {
  uint32_t users; /* count of its handle and objects */
  uint32_t device;
  uint64_t counted; /* bytes of device memory that it counts as, and size of `memory` */
  unsigned char *memory;
  bool cube, layered, deep; /* deep: it has three dimensions */
  bool writable;            /* surfaces may write to it */
  uint8_t texel, channels;
  bool normalized; /* UNORM and SNORM formats, which are always read as floats */
  uint32_t level_count;
  bool mipmapped;
  struct ptx_level levels[VGPU_ARRAY_LEVELS_MOST];
};

/* A place in the session's table of objects. A kernel's number for an object is made of place and use. */
struct vgpu_texture_place {
  uint32_t use; /* odd while the place has an object */
  uint64_t context;
  struct vgpu_array *array;
  uint64_t address, bytes; /* of memory that is not an array */
  struct ptx_texture texture;
  struct ptx_level levels[VGPU_ARRAY_LEVELS_MOST]; /* of a view that begins after the first layer */
};

struct vgpu_textures {
  struct vgpu_texture_place **places; /* entries do not move, because launches use them */
  uint32_t count, room;
};

/* Returns the array of that number, or NULL. */
struct vgpu_array *vgpu_array_find(struct vgpu_worker *worker, uint64_t number);
void vgpu_array_release(struct vgpu_worker *worker, struct vgpu_array *array);

/*
 * Gives the texel format of a CUarray_format. *normalized: it is always read as floats. False: not supported.
 */
bool vgpu_format_texel(int32_t format, enum ptx_texel *texel, bool *normalized);

/* A ptx_find_texture. */
bool vgpu_texture_find(void *user, uint64_t object, struct ptx_texture *texture);

void vgpu_textures_drop(struct vgpu_worker *worker, uint64_t context);

#endif
