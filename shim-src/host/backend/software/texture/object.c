#include <stdlib.h>
#include <string.h>

#include "api/device_attributes.h"
#include "cuda_handlers.h"
#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/code/module.h"
#include "host/backend/software/software.h"
#include "host/log.h"

/*
 * An object's number has its place + 1 in the low 20 bits, and above them the number of times that the place
 * was used. So a number that a kernel invents, or keeps too long, is recognised as invalid.
 */
#define PLACE_BITS 20u
#define PLACES_MOST (1u << PLACE_BITS)

/* CUDA_TEXTURE_DESC. */
enum {
  READ_AS_INTEGER = 1,
  NORMALIZED_COORDINATES = 2,
  SRGB = 16,
  NO_TRILINEAR_OPTIMIZATION = 32,
  SEAMLESS = 64,
  FLAGS_KNOWN = 115
};

static struct vgpu_texture_place *take_place(struct vgpu_worker *worker, uint64_t *object) {
  struct vgpu_textures *textures = &software_of(worker)->textures;
  uint32_t index = 0;
  while (index < textures->count && (textures->places[index]->use & 1) != 0) index++;
  if (index == textures->count) {
    if (index >= PLACES_MOST - 1 || index + worker->handles.count >= worker->limits->session_handles)
      return NULL;
    if (index == textures->room) {
      uint32_t room = textures->room == 0 ? 16 : textures->room * 2;
      struct vgpu_texture_place **places = realloc(textures->places, room * sizeof *places);
      if (places == NULL) return NULL;
      textures->places = places;
      textures->room = room;
    }
    textures->places[index] = calloc(1, sizeof *textures->places[index]);
    if (textures->places[index] == NULL) return NULL;
    textures->count++;
  }
  struct vgpu_texture_place *place = textures->places[index];
  uint32_t use = place->use + 1;
  *place = (struct vgpu_texture_place){.use = use};
  *object = (uint64_t)use << PLACE_BITS | (index + 1);
  return place;
}

static struct vgpu_texture_place *find_place(const struct vgpu_worker *worker, uint64_t object) {
  const struct vgpu_textures *textures = &software_of(worker)->textures;
  uint64_t index = (object & (PLACES_MOST - 1)) - 1;
  if (index >= textures->count) return NULL;
  struct vgpu_texture_place *place = textures->places[index];
  return (place->use & 1) != 0 && place->use == object >> PLACE_BITS ? place : NULL;
}

static void drop_place(struct vgpu_worker *worker, struct vgpu_texture_place *place) {
  vgpu_array_release(worker, place->array);
  place->array = NULL;
  place->use++;
}

/*
 * Returns the memory of a texture, or NULL. Texels behind the allocation read as zero: drivers accept this
 * (NVIDIA's sample convolutionFFT2D does it).
 */
static unsigned char *memory_of(const struct vgpu_worker *worker, const struct vgpu_texture_place *place,
                                struct ptx_texture *texture) {
  const struct vgpu_memory *memory = &software_of(worker)->memory;
  unsigned char *bytes = vgpu_memory_at(memory, place->address, place->bytes);
  if (bytes != NULL || !texture->linear) return bytes;
  const struct vgpu_allocation *allocation = vgpu_memory_holding(memory, place->address);
  if (allocation == NULL) return NULL;
  uint64_t left = allocation->size - (place->address - allocation->address);
  if (left < place->bytes) texture->plain.width = (uint32_t)(left / texture->bytes);
  return vgpu_memory_at(memory, place->address, left < place->bytes ? left : place->bytes);
}

bool vgpu_texture_find(void *user, uint64_t object, struct ptx_texture *texture) {
  const struct vgpu_worker *worker = user;
  const struct vgpu_texture_place *place = find_place(worker, object);
  if (place == NULL) return false;
  *texture = place->texture;
  if (place->array != NULL) return true;
  /* The program may have freed the memory. */
  texture->plain.bytes = memory_of(worker, place, texture);
  return texture->plain.bytes != NULL;
}

void vgpu_textures_drop(struct vgpu_worker *worker, uint64_t context) {
  struct vgpu_textures *textures = &software_of(worker)->textures;
  for (uint32_t i = 0; i < textures->count; i++) {
    struct vgpu_texture_place *place = textures->places[i];
    if ((place->use & 1) != 0 && place->context == context) drop_place(worker, place);
  }
  for (size_t i = 0; i < worker->handles.capacity; i++) {
    struct vgpu_handle *handle = &worker->handles.places[i];
    if (handle->number == 0 || handle->type != VGPU_HANDLE_ARRAY || handle->context != context) continue;
    vgpu_array_release(worker, handle->object);
    handle->object = NULL; /* the handle is removed with its context, right after this */
  }
}

static int32_t take_format(struct ptx_texture *texture, int32_t format, uint32_t channels) {
  enum ptx_texel texel;
  bool normalized;
  if (!vgpu_format_texel(format, &texel, &normalized)) return CUDA_ERROR_NOT_SUPPORTED;
  if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
  texture->texel = (uint8_t)texel;
  texture->channels = (uint8_t)channels;
  texture->bytes = (uint8_t)(channels * ptx_texel_bytes(texel));
  texture->normalized_reads = normalized;
  return CUDA_SUCCESS;
}

/* An uncompressed CUresourceViewFormat gives the same bytes other channels. */
static int32_t take_view_format(struct ptx_texture *texture, int32_t format) {
  static const int32_t formats[] = {0x01, 0x08, 0x02, 0x09, 0x03, 0x0a, 0x10, 0x20};
  static const uint8_t channels[] = {1, 2, 4};
  if (format == 0) return CUDA_SUCCESS;
  if (format < 0) return CUDA_ERROR_INVALID_VALUE;
  if (format > 24) return CUDA_ERROR_NOT_SUPPORTED;
  uint8_t bytes = texture->bytes;
  int32_t result = take_format(texture, formats[(format - 1) / 3], channels[(format - 1) % 3]);
  return result == CUDA_SUCCESS && texture->bytes != bytes ? CUDA_ERROR_INVALID_VALUE : result;
}

static int32_t take_view(struct vgpu_texture_place *place, const struct vgpu_texture_request *r) {
  struct ptx_texture *t = &place->texture;
  if (r->viewed == 0) return CUDA_SUCCESS;
  int32_t result = take_view_format(t, r->view_format);
  if (result != CUDA_SUCCESS) return result;
  if (r->resource == VGPU_TEXTURE_MIPMAPPED) {
    if (r->first_level > r->last_level || r->last_level >= t->level_count) return CUDA_ERROR_INVALID_VALUE;
    t->levels += r->first_level;
    t->level_count = r->last_level - r->first_level + 1;
  }
  if (!t->layered) return CUDA_SUCCESS;
  uint32_t faces = t->cube ? 6 : 1, layers = t->levels[0].depth / faces;
  if (r->first_layer > r->last_layer || r->last_layer >= layers) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < t->level_count; i++) {
    place->levels[i] = t->levels[i];
    place->levels[i].bytes += (uint64_t)r->first_layer * faces * t->levels[i].slice;
    place->levels[i].depth = (r->last_layer - r->first_layer + 1) * faces;
  }
  t->levels = place->levels;
  return CUDA_SUCCESS;
}

static int32_t take_array(struct vgpu_worker *worker, const struct vgpu_texture_request *r,
                          struct vgpu_texture_place *place) {
  struct vgpu_array *array = vgpu_array_find(worker, r->array);
  if (array == NULL) return CUDA_ERROR_INVALID_HANDLE;
  bool all = r->resource == VGPU_TEXTURE_MIPMAPPED;
  if (r->level >= array->level_count || (all && (!array->mipmapped || r->level != 0)))
    return CUDA_ERROR_INVALID_VALUE;
  struct ptx_texture *t = &place->texture;
  t->texel = array->texel;
  t->channels = array->channels;
  t->bytes = (uint8_t)(array->channels * ptx_texel_bytes((enum ptx_texel)array->texel));
  t->normalized_reads = array->normalized;
  t->cube = array->cube;
  t->layered = array->layered;
  t->levels = &array->levels[r->level];
  t->level_count = all ? array->level_count : 1;
  int32_t result = take_view(place, r);
  if (result != CUDA_SUCCESS) return result;
  place->array = array;
  array->users++;
  return CUDA_SUCCESS;
}

static int32_t take_memory(struct vgpu_worker *worker, uint32_t device, const struct vgpu_texture_request *r,
                           struct vgpu_texture_place *place) {
  const int32_t *limits = worker->inventory->profiles->devices[device].attributes;
  struct ptx_texture *t = &place->texture;
  int32_t result = take_format(t, r->format, r->channels);
  if (result != CUDA_SUCCESS) return result;
  uint64_t width = r->width, height = 1, row, alignment = (uint64_t)limits[VGPU_ATTRIBUTE_TEXTURE_ALIGNMENT];
  if (r->resource == VGPU_TEXTURE_LINEAR) {
    width /= t->bytes;
    if (width == 0 || width > (uint64_t)limits[VGPU_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH])
      return CUDA_ERROR_INVALID_VALUE;
    row = width * t->bytes;
    t->linear = true;
  } else {
    height = r->height;
    row = r->pitch;
    uint64_t pitched = (uint64_t)limits[VGPU_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT];
    bool sound = width > 0 && width <= (uint64_t)limits[VGPU_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH] &&
                 height > 0 &&
                 height <= (uint64_t)limits[VGPU_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH + 1] &&
                 row >= width * t->bytes &&
                 row <= (uint64_t)limits[VGPU_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH + 2] &&
                 (pitched == 0 || row % pitched == 0);
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
  }
  if (alignment > 0 && r->address % alignment != 0) return CUDA_ERROR_INVALID_VALUE;
  place->address = r->address;
  place->bytes = row * (height - 1) + width * t->bytes;
  t->plain = (struct ptx_level){
      .width = (uint32_t)width, .height = (uint32_t)height, .depth = 1, .row = row, .slice = row * height};
  t->level_count = 1;
  struct ptx_texture now = *t; /* a copy: the memory may change until a kernel reads it */
  return memory_of(worker, place, &now) == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static bool is_mode(int32_t mode) {
  return mode >= ADDRESS_WRAP && mode <= ADDRESS_BORDER;
}

static int32_t take_sampler(const struct vgpu_texture_request *r, struct ptx_texture *t) {
  bool wide = t->texel == TEXEL_U32 || t->texel == TEXEL_S32;
  bool floats = t->texel == TEXEL_F16 || t->texel == TEXEL_F32;
  if (!is_mode(r->address_mode[0]) || !is_mode(r->address_mode[1]) || !is_mode(r->address_mode[2]) ||
      (r->filter | 1) != 1 || (r->mip_filter | 1) != 1 || (r->flags & ~(uint32_t)FLAGS_KNOWN) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!floats && !wide && (r->flags & READ_AS_INTEGER) == 0) t->normalized_reads = true;
  t->normalized_coordinates = (r->flags & NORMALIZED_COORDINATES) != 0 || t->cube;
  if (t->level_count > 1 && !t->normalized_coordinates) return CUDA_ERROR_INVALID_VALUE;
  t->srgb = (r->flags & SRGB) != 0;
  t->seamless = (r->flags & SEAMLESS) != 0;
  for (int i = 0; i < 3; i++) t->address[i] = (uint8_t)r->address_mode[i];
  t->filter = (uint8_t)r->filter;
  t->mip_filter = (uint8_t)r->mip_filter;
  t->bias = r->bias;
  t->min_level = r->min_level;
  t->max_level = r->max_level;
  memcpy(t->border, r->border, sizeof t->border);
  return CUDA_SUCCESS;
}

static int32_t make(struct vgpu_worker *worker, uint64_t context_number, const struct vgpu_texture_request *r,
                    bool surface, uint64_t *object) {
  const struct vgpu_handle *context = find_context(worker, context_number);
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  struct vgpu_texture_place made = {0};
  bool array = r->resource == VGPU_TEXTURE_ARRAY || r->resource == VGPU_TEXTURE_MIPMAPPED;
  if (!array && r->resource != VGPU_TEXTURE_LINEAR && r->resource != VGPU_TEXTURE_PITCH)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_texture_place *place = take_place(worker, object);
  if (place == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  made.use = place->use;
  *place = made;
  place->context = context_number;
  int32_t result = array ? take_array(worker, r, place) : take_memory(worker, context->device, r, place);
  if (result == CUDA_SUCCESS && surface) {
    place->texture.surface = true;
    /* A level of a mipmap needs no flag: NVIDIA's own sample writes to levels made without it. */
    if (!place->array->writable && !place->array->mipmapped) result = CUDA_ERROR_INVALID_VALUE;
  } else if (result == CUDA_SUCCESS) {
    result = take_sampler(r, &place->texture);
  }
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    vgpu_host_log(
        "refused", worker->session,
        "a texture of format 0x%x, viewed as format 0x%x: compressed and planar formats are not supported",
        (unsigned)r->format, (unsigned)r->view_format);
  }
  if (result != CUDA_SUCCESS) drop_place(worker, place);
  return result;
}

int32_t vgpu_software_cuTexObjectCreate(struct vgpu_worker *worker,
                                        const struct vgpu_send_cuTexObjectCreate *send,
                                        struct vgpu_reply_cuTexObjectCreate *reply, struct vgpu_bulk *bulk) {
  struct vgpu_texture_request request;
  if (bulk->in_size != sizeof request) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&request, bulk->in, sizeof request);
  return make(worker, send->context, &request, false, &reply->object);
}

int32_t vgpu_software_cuSurfObjectCreate(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuSurfObjectCreate *send,
                                         struct vgpu_reply_cuSurfObjectCreate *reply) {
  const struct vgpu_texture_request request = {
      .resource = VGPU_TEXTURE_ARRAY, .array = send->array, .level = send->level};
  return make(worker, send->context, &request, true, &reply->object);
}

static int32_t destroy(struct vgpu_worker *worker, uint64_t object, bool surface) {
  struct vgpu_texture_place *place = find_place(worker, object);
  if (place == NULL || place->texture.surface != surface) return CUDA_ERROR_INVALID_HANDLE;
  drop_place(worker, place);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuTexObjectDestroy(struct vgpu_worker *worker,
                                         const struct vgpu_send_cuTexObjectDestroy *send) {
  return destroy(worker, send->object, false);
}

int32_t vgpu_software_cuSurfObjectDestroy(struct vgpu_worker *worker,
                                          const struct vgpu_send_cuSurfObjectDestroy *send) {
  return destroy(worker, send->object, true);
}

/*
 * Returns the 8 bytes of a module's data that hold the bound object; NULL: the module has no reference of
 * that name.
 */
static unsigned char *reference_of(struct vgpu_worker *worker, const struct vgpu_module_object *module,
                                   const char *name, size_t length, enum ptx_reference kind) {
  for (uint32_t i = 0; module->code != NULL && i < ptx_module_global_count(module->code); i++) {
    const struct ptx_global_info *global = ptx_module_global(module->code, i);
    if (global->reference == kind && strlen(global->name) == length &&
        memcmp(global->name, name, length) == 0)
      return vgpu_memory_to_write(&software_of(worker)->memory, module->data + global->offset, 8);
  }
  return NULL;
}

int32_t vgpu_software_texture_reference(struct vgpu_worker *worker,
                                        const struct vgpu_send_texture_reference *send,
                                        struct vgpu_bulk *bulk) {
  struct vgpu_texture_request request;
  const struct vgpu_module_object *module = vgpu_programs_object(worker, send->module, VGPU_HANDLE_MODULE);
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (bulk->in_size <= sizeof request || bulk->in_size - sizeof request > VGPU_TEXTURE_NAME_MOST)
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(&request, bulk->in, sizeof request);
  bool surface = request.resource == VGPU_TEXTURE_SURFACE || request.resource == VGPU_TEXTURE_NO_SURFACE;
  unsigned char *bound =
      reference_of(worker, module, (const char *)bulk->in + sizeof request, bulk->in_size - sizeof request,
                   surface ? PTX_SURFACE_REFERENCE : PTX_TEXTURE_REFERENCE);
  if (bound == NULL) return CUDA_ERROR_NOT_FOUND;
  if (request.resource == VGPU_TEXTURE_NONE || request.resource == VGPU_TEXTURE_NO_SURFACE)
    return CUDA_SUCCESS;
  if (surface) request.resource = VGPU_TEXTURE_ARRAY;
  uint64_t object = 0, before;
  int32_t result = make(worker, send->context, &request, surface, &object);
  if (result != CUDA_SUCCESS) return result;
  memcpy(&before, bound, sizeof before);
  struct vgpu_texture_place *place = find_place(worker, before);
  if (place != NULL) drop_place(worker, place);
  memcpy(bound, &object, sizeof object);
  return CUDA_SUCCESS;
}
