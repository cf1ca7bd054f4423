/* tex, tld4, txq; suld, sust, sured, suq. */
#include <string.h>

#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/modes.h"
#include "host/backend/software/ptx/texture/operands.h"

struct list {
  uint32_t refs[IMAGE_MORE + 4];
  uint32_t count;
};

static struct list empty(void) {
  struct list list = {.count = IMAGE_MORE};
  for (uint32_t i = 0; i < IMAGE_MORE; i++) list.refs[i] = PTX_NONE;
  return list;
}

/* The module's data has the object that is bound to a .texref or .surfref. */
uint32_t ptx_texture_reference(struct parser *p, const struct symbol *s) {
  if (s->kind != SYM_OPAQUE) ptx_refuse(p, "a texture or surface expected");
  uint32_t d = ptx_temporary(p, 8), from = ptx_address_constant(p, s->offset), x = p->x_count;
  ptx_extra(p, d | PTX_DEFINED);
  struct ptx_instruction *in = ptx_emit(p, K_LOAD);
  in->a = from;
  in->space = S_GLOBAL;
  in->type = T_B64;
  in->size = 8;
  in->m = 8u << 4;
  in->x = x;
  in->x_count = 1;
  return d;
}

static uint32_t object(struct parser *p, const struct operand *o) {
  if (o->kind != O_ADDRESS || o->value != 0) ptx_refuse(p, "a texture or surface expected");
  if (o->symbol != NULL) return ptx_texture_reference(p, o->symbol);
  if (!o->has_base || p->registers[o->number] != 8) ptx_refuse(p, "an object of 64 bits expected");
  return o->number << 2 | REF_FRAME;
}

/* .1d, .a2d, .cube and so on: bits of m. */
static uint32_t geometry(struct parser *p) {
  static const struct {
    const char *name;
    uint32_t axes, bits;
  } known[] = {{"1d", 1, 0},
               {"2d", 2, 0},
               {"3d", 3, 0},
               {"a1d", 1, IMAGE_LAYERED},
               {"a2d", 2, IMAGE_LAYERED},
               {"cube", 3, IMAGE_CUBE},
               {"acube", 3, IMAGE_CUBE | IMAGE_LAYERED}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (ptx_has(p, known[i].name)) return known[i].axes << IMAGE_AXES_SHIFT | known[i].bits;
  }
  ptx_refuse(p, "this geometry");
}

static enum ptx_type nth_type(struct parser *p, uint32_t n) {
  for (uint32_t i = 1; i < p->part_count; i++) {
    enum ptx_type type = ptx_type_of(p->parts[i]);
    if (type != T_NONE && n-- == 0) return type;
  }
  ptx_refuse(p, "no type");
}

/*
 * Reads [object, {coordinates}] or [object, sampler, {coordinates}], which operands.c has stored in the
 * elements.
 */
static void place(struct parser *p, const struct operand *o, uint32_t m, enum ptx_type type,
                  struct list *list) {
  uint32_t axes = IMAGE_AXES(m), at = 0, want = axes + ((m & IMAGE_LAYERED) != 0 ? 1 : 0);
  list->refs[IMAGE_OBJECT] = object(p, o);
  if (o->sampled) {
    const struct operand *sampler = &p->elements[o->first - 1];
    list->refs[IMAGE_SAMPLER] =
        sampler->kind == O_SYMBOL ? ptx_texture_reference(p, sampler->symbol) : ptx_source(p, sampler, T_B64);
  }
  /* three of them are given as four */
  if (o->count < want || o->count > 4) ptx_refuse(p, "as many coordinates as dimensions expected");
  const struct operand *c = &p->elements[o->first];
  if ((m & IMAGE_LAYERED) != 0) list->refs[IMAGE_LAYER] = ptx_source(p, &c[at++], T_U32);
  for (uint32_t i = 0; i < axes; i++) list->refs[IMAGE_X + i] = ptx_source(p, &c[at++], type);
}

static void vector(struct parser *p, const struct operand *o, uint32_t least, uint32_t most,
                   enum ptx_type type, uint32_t *refs) {
  const struct operand *from = o->kind == O_VECTOR ? &p->elements[o->first] : o;
  uint32_t count = o->kind == O_VECTOR ? o->count : 1;
  if (count < least || count > 4) ptx_refuse(p, "as many elements as dimensions expected");
  for (uint32_t i = 0; i < least && i < most; i++) refs[i] = ptx_source(p, &from[i], type);
}

static struct ptx_instruction *emit(struct parser *p, enum ptx_kind kind, const struct list *list,
                                    uint32_t m) {
  uint32_t x = p->x_count;
  for (uint32_t i = 0; i < list->count; i++) ptx_extra(p, list->refs[i]);
  struct ptx_instruction *in = ptx_emit(p, kind);
  in->x = x;
  in->x_count = (uint16_t)list->count;
  in->m = m;
  in->control = 1;
  return in;
}

static void results(struct parser *p, const struct operand *o, uint32_t count, enum ptx_type type,
                    struct list *list) {
  if (o->kind == O_VECTOR ? o->count != count : count != 1) ptx_refuse(p, "a vector expected");
  const struct operand *to = o->kind == O_VECTOR ? &p->elements[o->first] : o;
  for (uint32_t i = 0; i < count; i++)
    list->refs[list->count++] = ptx_destination(p, &to[i], type) | PTX_DEFINED;
}

/* |p: whether the texels are resident. They always are: no sparse textures here. */
static uint32_t resident(struct parser *p) {
  if (!p->operands[0].paired) return 1;
  ptx_need(p, 3, 8);
  uint32_t d = ptx_predicate_out(p, &p->operands[1]), zero = ptx_constant(p, 4, 0);
  ptx_emit_compare(p, C_EQ, T_U32, d, zero, zero);
  return 2;
}

static uint32_t component_of(struct parser *p) {
  static const char *const names[] = {"r", "g", "b", "a"};
  for (uint32_t i = 0; i < 4; i++) {
    if (ptx_part(p, 1, names[i])) return i;
  }
  ptx_refuse(p, "a component expected");
}

static void sample(struct parser *p, enum ptx_image_operation operation) {
  ptx_need(p, 2, 8);
  if (ptx_has(p, "2dms") || ptx_has(p, "a2dms")) ptx_refuse(p, NULL);
  enum ptx_type type = nth_type(p, 0), by = nth_type(p, 1);
  bool halves = type == T_F16 || type == T_F16X2;
  if (type != T_F32 && type != T_S32 && type != T_U32 && !halves) ptx_refuse(p, "this type");
  if (by != T_F32 && by != T_S32) ptx_refuse(p, "this type of coordinates");
  uint32_t m = operation | geometry(p) | (by == T_S32 ? IMAGE_INTEGERS : 0);
  struct list list = empty();
  uint32_t at = resident(p), axes = IMAGE_AXES(m);
  place(p, &p->operands[at++], m, by, &list);
  const struct operand *o = p->operands;
  if (operation == IMAGE_GATHER) m |= component_of(p) << IMAGE_COMPONENT_SHIFT;
  if (ptx_part(p, 1, "level")) {
    ptx_need(p, at + 1, at + 3);
    m |= IMAGE_LEVEL;
    list.refs[IMAGE_DETAIL] = ptx_source(p, &o[at++], by);
  } else if (ptx_part(p, 1, "grad")) {
    ptx_need(p, at + 2, at + 4);
    m |= IMAGE_GRADIENT;
    vector(p, &o[at++], axes, 3, T_F32, &list.refs[IMAGE_DX]);
    vector(p, &o[at++], axes, 3, T_F32, &list.refs[IMAGE_DY]);
  }
  if (at < p->operand_count && (o[at].kind == O_VECTOR || o[at].type == T_B32 || o[at].type == T_S32) &&
      (m & IMAGE_CUBE) == 0) {
    vector(p, &o[at++], axes, 3, T_S32, &list.refs[IMAGE_OFFSET]);
  }
  if (at < p->operand_count) ptx_refuse(p, "a comparison of depths");
  if (halves && type == T_F16X2) m |= IMAGE_PACKED;
  results(p, &o[0],
          type == T_F16X2                                 ? 2
          : ptx_has(p, "v4") || operation == IMAGE_GATHER ? 4
                                                          : 1,
          type == T_F16X2 ? T_B32
          : type == T_F16 ? T_B16
                          : T_B32,
          &list);
  emit(p, K_TEXTURE, &list, m)->size = type == T_F16 ? 2 : 4;
}

static void decode_tex(struct parser *p) {
  sample(p, IMAGE_SAMPLE);
}

static void decode_tld4(struct parser *p) {
  sample(p, IMAGE_GATHER);
}

static void decode_query(struct parser *p) {
  static const char *const names[QUESTIONS] = {[ASK_WIDTH] = "width",
                                               [ASK_HEIGHT] = "height",
                                               [ASK_DEPTH] = "depth",
                                               [ASK_ARRAY_SIZE] = "array_size",
                                               [ASK_LEVELS] = "num_mipmap_levels",
                                               [ASK_SAMPLES] = "num_samples",
                                               [ASK_DATA_TYPE] = "channel_data_type",
                                               [ASK_ORDER] = "channel_order",
                                               [ASK_NORMALIZED] = "normalized_coords",
                                               [ASK_FILTER] = "filter_mode",
                                               [ASK_ADDRESS_0] = "addr_mode_0",
                                               [ASK_ADDRESS_1] = "addr_mode_1",
                                               [ASK_ADDRESS_2] = "addr_mode_2",
                                               [ASK_LAYOUT] = "memory_layout",
                                               [ASK_UNNORMALIZED] = "force_unnormalized_coords"};
  uint32_t question = 0;
  while (question < QUESTIONS && !ptx_has(p, names[question])) question++;
  if (question == QUESTIONS) ptx_refuse(p, NULL);
  bool level = ptx_has(p, "level");
  ptx_need(p, level ? 3 : 2, level ? 3 : 2);
  struct list list = empty();
  list.refs[IMAGE_OBJECT] = object(p, &p->operands[1]);
  if (level) list.refs[IMAGE_DETAIL] = ptx_source(p, &p->operands[2], T_U32);
  results(p, &p->operands[0], 1, T_B32, &list);
  emit(p, K_TEXTURE, &list, IMAGE_ASK | question << IMAGE_QUESTION_SHIFT | (level ? IMAGE_LEVEL : 0))->size =
      4;
}

static uint32_t outside(struct parser *p) {
  uint32_t how = ptx_has(p, "clamp") ? OUTSIDE_CLAMP : ptx_has(p, "zero") ? OUTSIDE_ZERO : OUTSIDE_TRAP;
  return how << IMAGE_OUTSIDE_SHIFT;
}

static uint32_t surface(struct parser *p, enum ptx_image_operation operation) {
  uint32_t m = operation | geometry(p) | outside(p);
  if ((m & IMAGE_CUBE) != 0) ptx_refuse(p, "this geometry");
  if (ptx_part(p, 1, "p")) m |= IMAGE_FORMATTED;
  else if (!ptx_part(p, 1, "b")) ptx_refuse(p, NULL);
  return m;
}

static uint32_t elements(struct parser *p) {
  return ptx_has(p, "v2") ? 2 : ptx_has(p, "v4") ? 4 : 1;
}

static void decode_suld(struct parser *p) {
  ptx_need(p, 2, 2);
  uint32_t m = surface(p, SURFACE_LOAD);
  enum ptx_type type = ptx_last_type(p);
  uint32_t bytes = ptx_type_bytes(type);
  if ((m & IMAGE_FORMATTED) != 0 || bytes * elements(p) > 16) ptx_refuse(p, "this type");
  struct list list = empty();
  place(p, &p->operands[1], m, T_S32, &list);
  /* Registers for bytes have 16 bits. */
  results(p, &p->operands[0], elements(p), bytes == 1 ? T_B16 : type, &list);
  emit(p, K_TEXTURE, &list, m)->size = (uint8_t)bytes;
}

static void decode_sust(struct parser *p) {
  ptx_need(p, 2, 2);
  uint32_t m = surface(p, SURFACE_STORE), count = elements(p);
  enum ptx_type type = ptx_last_type(p);
  uint32_t bytes = ptx_type_bytes(type);
  bool formatted = (m & IMAGE_FORMATTED) != 0;
  if (formatted ? bytes != 4 : bytes * count > 16) ptx_refuse(p, "this type");
  struct list list = empty();
  place(p, &p->operands[0], m, T_S32, &list);
  const struct operand *o = &p->operands[1];
  if (o->kind == O_VECTOR ? o->count != count : count != 1) ptx_refuse(p, "a vector expected");
  const struct operand *from = o->kind == O_VECTOR ? &p->elements[o->first] : o;
  for (uint32_t i = 0; i < count; i++)
    list.refs[list.count++] = ptx_source(p, &from[i], bytes == 1 ? T_B16 : type);
  emit(p, K_TEXTURE, &list, m)->size = (uint8_t)bytes;
}

static void decode_sured(struct parser *p) {
  static const char *const names[] = {"and", "or", "add", "min", "max"};
  static const uint8_t operations[] = {A_AND, A_OR, A_ADD, A_MIN, A_MAX};
  ptx_need(p, 2, 2);
  uint32_t m = surface(p, SURFACE_REDUCE), op = 0;
  while (op < sizeof operations && !ptx_has(p, names[op])) op++;
  if (op == sizeof operations) ptx_refuse(p, NULL);
  enum ptx_type type = ptx_last_type(p);
  uint32_t bytes = ptx_type_bytes(type);
  bool bits = operations[op] == A_AND || operations[op] == A_OR;
  if ((bytes != 4 && bytes != 8) || (bits && type != T_B32 && type != T_B64)) ptx_refuse(p, "this type");
  struct list list = empty();
  place(p, &p->operands[0], m, T_S32, &list);
  const struct operand *o = &p->operands[1];
  list.refs[list.count++] = ptx_source(p, o->kind == O_VECTOR ? &p->elements[o->first] : o, type);
  struct ptx_instruction *in = emit(p, K_TEXTURE, &list, m | (uint32_t)operations[op] << IMAGE_ATOMIC_SHIFT);
  in->size = (uint8_t)bytes;
  in->type = (uint8_t)type;
}

/* istypep.texref p, a: accepts any object; its use checks whether it exists. */
static void decode_istypep(struct parser *p) {
  ptx_need(p, 2, 2);
  bool surfaces = ptx_part(p, 1, "surfref");
  if (!surfaces && !ptx_part(p, 1, "texref")) ptx_refuse(p, NULL);
  const struct operand *o = &p->operands[1];
  struct list list = empty();
  list.refs[IMAGE_OBJECT] =
      o->kind == O_SYMBOL ? ptx_texture_reference(p, o->symbol) : ptx_source(p, o, T_B64);
  uint32_t d = ptx_predicate_out(p, &p->operands[0]);
  emit(p, K_TEXTURE, &list, IMAGE_TYPE | (surfaces ? IMAGE_SURFACES : 0))->d = d;
}

const struct ptx_mnemonic ptx_texture_mnemonics[] = {
    {"tex", decode_tex, "2 1d 2d 3d a1d a2d cube acube 2dms a2dms level grad base v2 v4"},
    {"tld4", decode_tld4, "2 1d 2d 3d a1d a2d cube acube base r g b a v4"},
    {"txq", decode_query, NULL},
    {"suq", decode_query, NULL},
    {"suld", decode_suld, "1 1d 2d 3d a1d a2d cube acube b p ca cg cs cv trap clamp zero v2 v4"},
    {"sust", decode_sust, "1 1d 2d 3d a1d a2d cube acube b p wb cg cs wt trap clamp zero v2 v4"},
    {"sured", decode_sured, "1 1d 2d 3d a1d a2d cube acube b p and or add min max trap clamp zero"},
    {"istypep", decode_istypep, "0 texref surfref"},
    {NULL, NULL, NULL}};
