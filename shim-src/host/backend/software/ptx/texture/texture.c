#include <math.h>
#include <stdio.h>

#include "host/backend/software/ptx/half.h"
#include "host/backend/software/ptx/texture/image.h"

static uint32_t reference(const struct place *at, uint32_t index) {
  return at->split->frame->function->x[at->in->x + index];
}

uint64_t ptx_image_operand(const struct place *at, uint32_t index, uint32_t lane, uint32_t bytes) {
  uint64_t value = 0;
  uint32_t from = reference(at, index);
  if (from != PTX_NONE) memcpy(&value, ptx_operand(at, from) + lane * bytes, bytes);
  return value;
}

unsigned char *ptx_image_result(const struct place *at, uint32_t index, uint32_t lane, uint32_t bytes) {
  return at->registers + (reference(at, IMAGE_MORE + index) & ~3u) + lane * bytes;
}

static float float_operand(const struct place *at, uint32_t index, uint32_t lane) {
  return ptx_float((uint32_t)ptx_image_operand(at, index, lane, 4));
}

static const struct ptx_texture *look_up(const struct place *at, uint64_t object) {
  struct worker *worker = at->worker;
  uint32_t place = (uint32_t)(object ^ object >> 32) % TEXTURE_CACHE;
  if (object != 0 && worker->textures[place].object == object) return &worker->textures[place].texture;
  const struct ptx_launch *launch = worker->launch->launch;
  struct ptx_texture found;
  if (object == 0 || launch->find_texture == NULL || !launch->find_texture(launch->user, object, &found))
    return NULL;
  worker->textures[place].object = object;
  worker->textures[place].texture = found;
  return &worker->textures[place].texture;
}

/* Finds the texture or surface that an operand names; NULL: a fault was raised. */
static const struct ptx_texture *find(const struct place *at, uint32_t index, uint32_t lane, bool surface) {
  uint64_t object = ptx_image_operand(at, index, lane, 8);
  const struct ptx_texture *found = look_up(at, object);
  if (found != NULL && found->surface == surface) return found;
  char text[80];
  snprintf(text, sizeof text, "0x%llx is no %s object", (unsigned long long)object,
           surface ? "surface" : "texture");
  ptx_raise(at, PTX_ILLEGAL_ADDRESS, lane, object, text);
  return NULL;
}

static void write(const struct place *at, uint32_t lane, const union ptx_channels *value, bool floats) {
  const struct ptx_instruction *in = at->in;
  uint32_t count = in->x_count - (uint32_t)IMAGE_MORE;
  uint32_t bits[4];
  memcpy(bits, value->u, sizeof bits);
  if (in->size == 2 || (in->m & IMAGE_PACKED) != 0) {
    for (int c = 0; floats && c < 4; c++) bits[c] = ptx_half_of_double((double)value->f[c], 1);
  }
  if ((in->m & IMAGE_PACKED) != 0) {
    for (int c = 0; c < 2; c++) bits[c] = (bits[2 * c] & 0xffff) | bits[2 * c + 1] << 16;
  }
  for (uint32_t c = 0; c < count; c++) memcpy(ptx_image_result(at, c, lane, in->size), &bits[c], in->size);
}

/* Gives the layer, or the face, of coordinates. A face leaves two coordinates. */
static void place_layer(const struct place *at, uint32_t lane, const struct ptx_texture *t,
                        struct ptx_sample *sample) {
  uint32_t m = at->in->m, faces = (m & IMAGE_CUBE) != 0 ? 6 : 1, depth = ptx_level_of(t, 0)->depth;
  int64_t layer = (int32_t)ptx_image_operand(at, IMAGE_LAYER, lane, 4), layers = depth / faces;
  if (layers == 0) layers = 1;
  layer = layer < 0 ? 0 : layer >= layers ? layers - 1 : layer;
  uint32_t face = 0;
  if (faces == 6) {
    const float direction[3] = {sample->at[0].f, sample->at[1].f, sample->at[2].f};
    float within[2];
    face = ptx_cube_face(direction, within);
    sample->at[0].f = within[0];
    sample->at[1].f = within[1];
  }
  uint64_t number = (uint64_t)layer * faces + face;
  sample->layer = number < depth ? (uint32_t)number : depth - 1;
}

static float length_of(const float *d, const struct ptx_level *level, bool normalized, uint32_t axes) {
  const float size[3] = {(float)level->width, (float)level->height, (float)level->depth};
  float sum = 0;
  for (uint32_t i = 0; i < axes; i++) {
    float texels = normalized ? d[i] * size[i] : d[i];
    sum += texels * texels;
  }
  return sqrtf(sum);
}

/* How the place in a cube's face moves with the direction. */
static void on_face(const float at[3], const float d[3], float moved[2]) {
  const float step = 0x1p-10f;
  float from[2], to[2], there[3];
  uint32_t face = ptx_cube_face(at, from);
  for (int k = 0; k < 3; k++) there[k] = at[k] + d[k] * step;
  bool same = ptx_cube_face(there, to) == face;
  for (int k = 0; k < 2; k++) moved[k] = same ? (to[k] - from[k]) / step : 0;
}

float ptx_image_detail(const struct place *at, uint32_t lane, const struct ptx_texture *image,
                       const struct ptx_texture *sampler) {
  uint32_t m = at->in->m, axes = IMAGE_AXES(m);
  if ((m & IMAGE_LEVEL) != 0 && (m & IMAGE_INTEGERS) != 0)
    return (float)(int32_t)ptx_image_operand(at, IMAGE_DETAIL, lane, 4);
  if ((m & IMAGE_LEVEL) != 0) return float_operand(at, IMAGE_DETAIL, lane);
  if ((m & IMAGE_GRADIENT) == 0) return 0;
  float longest = 0;
  for (uint32_t k = 0; k < 2; k++) {
    float d[3], moved[2], direction[3];
    for (uint32_t i = 0; i < 3; i++) {
      d[i] = i < axes ? float_operand(at, (k == 0 ? (uint32_t)IMAGE_DX : (uint32_t)IMAGE_DY) + i, lane) : 0;
      direction[i] = float_operand(at, IMAGE_X + i, lane);
    }
    bool cube = (m & IMAGE_CUBE) != 0;
    if (cube) on_face(direction, d, moved);
    float length = length_of(cube ? moved : d, ptx_level_of(image, 0),
                             cube || sampler->normalized_coordinates, cube ? 2 : axes);
    if (length > longest) longest = length;
  }
  return longest > 0 ? log2f(longest) : -1000.0f;
}

/* Samples for one lane. `reading` was begun for the image and sampler of the lane. */
static void sampled(const struct place *at, uint32_t lane, struct ptx_reading *reading) {
  uint32_t m = at->in->m, axes = IMAGE_AXES(m);
  struct ptx_sample sample = {0};
  for (uint32_t i = 0; i < axes; i++) sample.at[i].i = (int32_t)ptx_image_operand(at, IMAGE_X + i, lane, 4);
  if (reference(at, IMAGE_OFFSET) != PTX_NONE) {
    for (uint32_t i = 0; i < axes; i++)
      sample.offset[i] = (int32_t)ptx_image_operand(at, IMAGE_OFFSET + i, lane, 4);
  }
  if ((m & (IMAGE_CUBE | IMAGE_LAYERED)) != 0) place_layer(at, lane, reading->image, &sample);
  sample.level = ptx_image_detail(at, lane, reading->image, reading->sampler);
  union ptx_channels value;
  ptx_sample(reading, &sample, &value);
  write(at, lane, &value, reading->floats);
}

/* Lanes most often read one texture: looked up again only if the object changes. */
static bool sample_lanes(const struct place *at, uint32_t mask) {
  uint32_t m = at->in->m;
  bool own_sampler = reference(at, IMAGE_SAMPLER) != PTX_NONE;
  struct ptx_texture image, sampler;
  struct ptx_reading reading = {.image = &image,
                                .sampler = own_sampler ? &sampler : &image,
                                .axes = (m & IMAGE_CUBE) != 0 ? 2 : IMAGE_AXES(m),
                                .integers = (m & IMAGE_INTEGERS) != 0,
                                .gather = IMAGE_OPERATION(m) == IMAGE_GATHER,
                                .component = IMAGE_COMPONENT(m)};
  uint64_t objects[2] = {0, 0};
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    uint64_t now[2] = {ptx_image_operand(at, IMAGE_OBJECT, lane, 8),
                       ptx_image_operand(at, IMAGE_SAMPLER, lane, 8)};
    bool first = left == mask;
    if (first || now[0] != objects[0] || now[1] != objects[1]) {
      const struct ptx_texture *found = find(at, IMAGE_OBJECT, lane, false);
      if (found == NULL) return false;
      image = *found;
      if (own_sampler) {
        found = find(at, IMAGE_SAMPLER, lane, false);
        if (found == NULL) return false;
        sampler = *found;
      }
      objects[0] = now[0];
      objects[1] = now[1];
      ptx_begin_reading(&reading);
      if (first && ptx_sample_together(at, mask, &reading)) return true;
    }
    sampled(at, lane, &reading);
  }
  return true;
}

/* OpenCL's numbers. */
static uint32_t data_type(const struct ptx_texture *t) {
  static const uint32_t plain[] = {
      [TEXEL_U8] = 0x10da,  [TEXEL_U16] = 0x10db, [TEXEL_U32] = 0x10dc, [TEXEL_S8] = 0x10d7,
      [TEXEL_S16] = 0x10d8, [TEXEL_S32] = 0x10d9, [TEXEL_F16] = 0x10dd, [TEXEL_F32] = 0x10de};
  static const uint32_t normalized[] = {
      [TEXEL_U8] = 0x10d2, [TEXEL_U16] = 0x10d3, [TEXEL_S8] = 0x10d0, [TEXEL_S16] = 0x10d1};
  bool floats = t->texel != TEXEL_F16 && t->texel != TEXEL_F32 && ptx_reads_floats(t);
  return floats ? normalized[t->texel] : plain[t->texel];
}

static uint32_t answer(const struct ptx_texture *t, uint32_t question, uint32_t level) {
  static const uint32_t orders[] = {0, 0x10b0, 0x10b2, 0, 0x10b5};
  if (level >= t->level_count) level = t->level_count - 1;
  const struct ptx_level *l = ptx_level_of(t, level);
  uint32_t faces = t->cube ? 6 : 1;
  switch (question) {
    case ASK_WIDTH:
      return l->width;
    case ASK_HEIGHT:
      return l->height;
    case ASK_DEPTH:
      return t->layered || t->cube ? 1 : l->depth;
    case ASK_ARRAY_SIZE:
      return t->layered || t->cube ? l->depth / faces : 1;
    case ASK_LEVELS:
      return t->level_count;
    case ASK_SAMPLES:
      return 1;
    case ASK_DATA_TYPE:
      return data_type(t);
    case ASK_ORDER:
      return orders[t->channels];
    case ASK_NORMALIZED:
      return t->normalized_coordinates;
    case ASK_FILTER:
      return t->filter;
    case ASK_ADDRESS_0:
    case ASK_ADDRESS_1:
    case ASK_ADDRESS_2:
      return t->address[question - ASK_ADDRESS_0];
    case ASK_UNNORMALIZED:
      return !t->normalized_coordinates;
    default:
      return t->linear ? 1 : 0;
  }
}

static bool asked(const struct place *at, uint32_t lane) {
  uint64_t object = ptx_image_operand(at, IMAGE_OBJECT, lane, 8);
  const struct ptx_texture *known = look_up(at, object);
  const struct ptx_texture *t = find(at, IMAGE_OBJECT, lane, known != NULL && known->surface);
  if (t == NULL) return false;
  uint32_t level = (uint32_t)ptx_image_operand(at, IMAGE_DETAIL, lane, 4);
  uint32_t value = answer(t, IMAGE_QUESTION(at->in->m), level);
  memcpy(ptx_image_result(at, 0, lane, 4), &value, 4);
  return true;
}

static void type_of(const struct place *at, uint32_t lane) {
  const struct ptx_texture *t = look_up(at, ptx_image_operand(at, IMAGE_OBJECT, lane, 8));
  bool is = t != NULL && t->surface == ((at->in->m & IMAGE_SURFACES) != 0);
  ptx_set_predicate(at, at->in->d, is ? FULL : 0, 1u << lane);
}

bool ptx_texture(const struct place *at, uint32_t mask) {
  uint32_t operation = IMAGE_OPERATION(at->in->m);
  if (operation == IMAGE_SAMPLE || operation == IMAGE_GATHER) return sample_lanes(at, mask);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    bool done = true;
    switch (operation) {
      case IMAGE_ASK:
        done = asked(at, lane);
        break;
      case IMAGE_TYPE:
        type_of(at, lane);
        break;
      default: {
        const struct ptx_texture *surface = find(at, IMAGE_OBJECT, lane, true);
        done = surface != NULL && ptx_surface(at, lane, surface);
      }
    }
    if (!done) return false;
  }
  return true;
}
