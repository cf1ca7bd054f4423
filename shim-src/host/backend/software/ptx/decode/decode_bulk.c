/* Copies are done at once: groups wait for nothing, and mbarriers count bytes at once. */
#include "host/backend/software/ptx/bulk.h"
#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/modes.h"

struct list {
  uint32_t refs[BULK_MORE + 16];
  uint32_t count;
};

uint32_t ptx_generic(struct parser *p, const struct operand *o, bool shared) {
  struct operand plain = *o;
  plain.count = 0; /* the caller handles the coordinates */
  uint64_t offset, window = shared ? PTX_SHARED_WINDOW : 0;
  enum ptx_type width;
  uint32_t base = ptx_address(p, &plain, shared ? S_SHARED : S_GENERIC, &offset, &width);
  if (width == T_B64) return ptx_sum(p, T_U64, base, offset + window);
  if (!shared) ptx_refuse(p, "an address of 64 bits expected");
  uint32_t narrow = ptx_sum(p, T_U32, base, (uint32_t)offset), d = ptx_temporary(p, 8);
  ptx_emit_convert(p, T_U64, T_U32, d, narrow, 0);
  return ptx_sum(p, T_U64, d, window);
}

static uint32_t dimensions(struct parser *p) {
  static const char *const names[] = {"1d", "2d", "3d", "4d", "5d"};
  uint32_t rank = 0;
  for (uint32_t i = 0; i < 5; i++) {
    if (ptx_has(p, names[i])) rank = i + 1;
  }
  return rank;
}

static void coordinates(struct parser *p, const struct operand *o, enum ptx_bulk_mode mode,
                        struct list *list) {
  uint32_t rank = dimensions(p);
  if (mode == MODE_ROWS) {
    if (rank != 2 || o->count != 5) ptx_refuse(p, "two dimensions, a column and four rows expected");
  } else if (rank == 0 || o->count != rank) {
    ptx_refuse(p, "as many coordinates as dimensions expected");
  }
  if (mode == MODE_IM2COL && rank < 3) ptx_refuse(p, "three dimensions or more expected");
  for (uint32_t i = 0; i < o->count; i++)
    list->refs[list->count++] = ptx_source(p, &p->elements[o->first + i], T_U32);
}

/* Adds the place of an im2col copy in its filter, in W, H and D. NULL: the first element. */
static void offsets(struct parser *p, const struct operand *o, struct list *list) {
  uint32_t count = dimensions(p) - 2;
  if (o != NULL && (o->kind != O_VECTOR || o->count != count))
    ptx_refuse(p, "an offset for each dimension but the first and the last expected");
  for (uint32_t i = 0; i < count; i++)
    list->refs[list->count++] =
        o == NULL ? ptx_constant(p, 2, 0) : ptx_source(p, &p->elements[o->first + i], T_U16);
}

/* Each direction has its own modes. */
static enum ptx_bulk_mode copy_mode(struct parser *p, uint32_t first, bool load, bool reduce) {
  for (uint32_t i = first; i < p->part_count; i++) {
    if (ptx_part(p, i, load ? "im2col" : "im2col_no_offs")) return MODE_IM2COL;
    if (!reduce && ptx_part(p, i, load ? "tile::gather4" : "tile::scatter4")) return MODE_ROWS;
    bool other = ptx_part(p, i, "im2col") || ptx_part(p, i, "im2col_no_offs") ||
                 ptx_part(p, i, "im2col::w") || ptx_part(p, i, "im2col::w::128") ||
                 ptx_part(p, i, "tile::gather4") || ptx_part(p, i, "tile::scatter4");
    if (other) ptx_refuse(p, "this mode");
  }
  return MODE_TILE;
}

static struct ptx_instruction *emit(struct parser *p, const struct list *list, uint32_t m) {
  uint32_t x = p->x_count;
  for (uint32_t i = 0; i < list->count; i++) ptx_extra(p, list->refs[i]);
  struct ptx_instruction *in = ptx_emit(p, K_BULK);
  in->x = x;
  in->x_count = (uint16_t)list->count;
  in->m = m;
  in->control = 1;
  return in;
}

static struct list empty(void) {
  struct list list = {.count = BULK_MORE};
  for (uint32_t i = 0; i < BULK_MORE; i++) list.refs[i] = PTX_NONE;
  return list;
}

static enum ptx_atomic reduction(struct parser *p) {
  static const char *const names[] = {"and", "or", "xor", "add", "inc", "dec", "min", "max"};
  static const uint8_t operations[] = {A_AND, A_OR, A_XOR, A_ADD, A_INC, A_DEC, A_MIN, A_MAX};
  for (uint32_t i = 0; i < sizeof operations; i++) {
    if (ptx_has(p, names[i])) return operations[i];
  }
  ptx_refuse(p, "an unknown reduction");
}

static void check_reduction(struct parser *p, enum ptx_atomic op, enum ptx_type type, bool to_global) {
  bool known;
  switch (op) {
    case A_AND:
    case A_OR:
    case A_XOR:
      known = type == T_B32 || (type == T_B64 && to_global);
      break;
    case A_INC:
    case A_DEC:
      known = type == T_U32;
      break;
    case A_ADD:
      known =
          type == T_U32 || type == T_S32 || type == T_U64 ||
          (to_global && (type == T_S64 || type == T_F16 || type == T_BF16 || type == T_F32 || type == T_F64));
      break;
    default:
      known = type == T_U32 || type == T_S32 ||
              (to_global && (type == T_U64 || type == T_S64 || type == T_F16 || type == T_BF16));
  }
  if (!known) ptx_refuse(p, "this type");
  bool rounds = op == A_ADD && (type == T_F16 || type == T_BF16), noftz = ptx_has(p, "noftz");
  if (rounds && !noftz) ptx_wrong(p, ".noftz is missing");
  if (!rounds && noftz) ptx_wrong(p, ".noftz with this operation or type");
}

/* Reads the optional operands: a mask of blocks, a cache policy, a mask of bytes. */
static void rest(struct parser *p, uint32_t at, struct list *list) {
  if (ptx_has(p, "multicast::cluster")) {
    if (at >= p->operand_count) ptx_refuse(p, "a mask of blocks expected");
    list->refs[BULK_BLOCKS] = ptx_source(p, &p->operands[at++], T_B16);
  }
  if (ptx_has(p, "L2::cache_hint")) at++;
  if (ptx_has(p, "cp_mask")) {
    if (at >= p->operand_count) ptx_refuse(p, "a mask of bytes expected");
    list->refs[BULK_BYTES] = ptx_source(p, &p->operands[at++], T_B16);
  }
  ptx_need(p, at, at);
}

static void tile(struct parser *p, uint32_t first, bool reduce) {
  /* first: the part that names the destination, after the number of dimensions */
  bool load = ptx_says_shared(p, first);
  enum ptx_bulk_mode mode = copy_mode(p, first, load, reduce);
  uint32_t kind = (uint32_t)mode << 8;
  struct list list = empty();
  const struct operand *o = p->operands;
  if (load) {
    if (reduce || !ptx_part(p, first + 1, "global") || !ptx_has(p, "mbarrier::complete_tx::bytes"))
      ptx_refuse(p, NULL);
    bool info = mode == MODE_IM2COL;
    ptx_need(p, info ? 4 : 3, info ? 6 : 5);
    list.refs[BULK_TO] = ptx_generic(p, &o[0], true);
    list.refs[BULK_FROM] = ptx_generic(p, &o[1], false);
    list.refs[BULK_BARRIER] = ptx_generic(p, &o[2], true);
    coordinates(p, &o[1], mode, &list);
    if (info) offsets(p, &o[3], &list);
    rest(p, info ? 4 : 3, &list);
    emit(p, &list, BULK_LOAD_TILE | kind);
    return;
  }
  if (!ptx_part(p, first, "global") || !ptx_says_shared(p, first + 1) || !ptx_has(p, "bulk_group"))
    ptx_refuse(p, NULL);
  ptx_need(p, 2, 3);
  list.refs[BULK_TO] = ptx_generic(p, &o[0], false);
  list.refs[BULK_FROM] = ptx_generic(p, &o[1], true);
  coordinates(p, &o[0], mode, &list);
  if (mode == MODE_IM2COL) offsets(p, NULL, &list);
  rest(p, 2, &list);
  emit(p, &list, kind | (reduce ? BULK_REDUCE_TILE | (uint32_t)reduction(p) << 4 : BULK_STORE_TILE));
}

static void plain(struct parser *p, uint32_t first, bool reduce) {
  bool to_shared = ptx_says_shared(p, first), from_shared = ptx_says_shared(p, first + 1);
  bool known = (to_shared || ptx_part(p, first, "global")) &&
               (from_shared || (ptx_part(p, first + 1, "global") && to_shared && !reduce));
  bool counted = ptx_has(p, "mbarrier::complete_tx::bytes");
  if (!known || counted != to_shared || (!counted && !ptx_has(p, "bulk_group"))) ptx_refuse(p, NULL);
  ptx_need(p, to_shared ? 4 : 3, 6);
  const struct operand *o = p->operands;
  struct list list = empty();
  list.refs[BULK_TO] = ptx_generic(p, &o[0], to_shared);
  list.refs[BULK_FROM] = ptx_generic(p, &o[1], from_shared);
  list.refs[BULK_SIZE] = ptx_source(p, &o[2], T_U32);
  if (to_shared) list.refs[BULK_BARRIER] = ptx_generic(p, &o[3], true);
  rest(p, to_shared ? 4 : 3, &list);
  enum ptx_type type = T_NONE;
  uint32_t m = BULK_COPY;
  if (reduce) {
    enum ptx_atomic op = reduction(p);
    type = ptx_last_type(p);
    check_reduction(p, op, type, !to_shared);
    m = BULK_REDUCE | (uint32_t)op << 4;
  }
  struct ptx_instruction *in = emit(p, &list, m);
  in->type = (uint8_t)type;
  in->size = (uint8_t)ptx_type_bytes(type);
}

void ptx_decode_bulk(struct parser *p) {
  if (ptx_has(p, "commit_group") || ptx_has(p, "wait_group")) return;
  if (ptx_part(p, 3, "prefetch")) return; /* a hint: the address is not read */
  bool reduce = ptx_part(p, 1, "reduce");
  uint32_t at = reduce ? 3 : 2; /* the part "bulk" */
  if (!ptx_part(p, at, "bulk")) ptx_refuse(p, NULL);
  if (ptx_part(p, at + 1, "tensor")) tile(p, at + 3, reduce);
  else plain(p, at + 1, reduce);
}

static void decode_tensormap(struct parser *p) {
  static const struct {
    const char *name;
    bool ordinal, wide;
  } fields[MAP_FIELDS] = {[MAP_ADDRESS] = {"global_address", false, true},
                          [MAP_RANK] = {"rank", false, false},
                          [MAP_BOX] = {"box_dim", true, false},
                          [MAP_DIM] = {"global_dim", true, false},
                          [MAP_STRIDE] = {"global_stride", true, true},
                          [MAP_STEP] = {"element_stride", true, false},
                          [MAP_TYPE] = {"elemtype", false, false},
                          [MAP_INTERLEAVE] = {"interleave_layout", false, false},
                          [MAP_SWIZZLE] = {"swizzle_mode", false, false},
                          [MAP_FILL] = {"fill_mode", false, false},
                          [MAP_ATOMICITY] = {"swizzle_atomicity", false, false}};
  struct list list = empty();
  const struct operand *o = p->operands;
  if (ptx_part(p, 1, "cp_fenceproxy")) {
    ptx_need(p, 3, 3);
    if (!ptx_part(p, 2, "global") || !ptx_says_shared(p, 3)) ptx_refuse(p, NULL);
    list.refs[BULK_TO] = ptx_generic(p, &o[0], false);
    list.refs[BULK_FROM] = ptx_generic(p, &o[1], true);
    emit(p, &list, BULK_MAP_COPY);
    return;
  }
  uint32_t field = 0;
  while (field < MAP_FIELDS && !ptx_part(p, 3, fields[field].name)) field++;
  if (!ptx_part(p, 1, "replace") || !ptx_part(p, 2, "tile") || field == MAP_FIELDS) ptx_refuse(p, NULL);
  uint32_t at = fields[field].ordinal ? 2 : 1, ordinal = 0;
  ptx_need(p, at + 1, at + 1);
  if (fields[field].ordinal) {
    if (o[1].kind != O_INTEGER || o[1].value < 0 || o[1].value > 4)
      ptx_refuse(p, "a dimension from 0 to 4 expected");
    ordinal = (uint32_t)o[1].value;
  }
  list.refs[BULK_TO] = ptx_generic(p, &o[0], ptx_says_shared(p, 4));
  list.refs[list.count++] = ptx_source(p, &o[at], fields[field].wide ? T_B64 : T_B32);
  emit(p, &list, BULK_MAP_REPLACE)->target = field | ordinal << 8;
}

/* st.async, red.async: [address], value or {values}, [mbarrier] */
void ptx_decode_async(struct parser *p, bool reduce) {
  if (!ptx_has(p, "shared::cluster") || !ptx_has(p, "mbarrier::complete_tx::bytes")) ptx_refuse(p, NULL);
  ptx_need(p, 3, 3);
  const struct operand *o = p->operands;
  enum ptx_type type = ptx_last_type(p);
  uint32_t bytes = ptx_type_bytes(type), count = o[1].kind == O_VECTOR ? o[1].count : 1, m = BULK_STORE_ASYNC;
  const struct operand *values = o[1].kind == O_VECTOR ? &p->elements[o[1].first] : &o[1];
  uint32_t want = ptx_has(p, "v2") ? 2 : ptx_has(p, "v4") ? 4 : 1;
  if ((bytes != 4 && bytes != 8) || count != want || (reduce && count != 1) || bytes * count > 16)
    ptx_refuse(p, "this type");
  if (reduce) {
    enum ptx_atomic op = reduction(p);
    if (type != T_U32 && type != T_S32 && type != T_B32 && type != T_U64) ptx_refuse(p, "this type");
    m = BULK_REDUCE_ASYNC | (uint32_t)op << 4;
  }
  struct list list = empty();
  list.refs[BULK_TO] = ptx_generic(p, &o[0], true);
  list.refs[BULK_BARRIER] = ptx_generic(p, &o[2], true);
  for (uint32_t i = 0; i < count; i++) list.refs[list.count++] = ptx_source(p, &values[i], type);
  struct ptx_instruction *in = emit(p, &list, m);
  in->type = (uint8_t)type;
  in->size = (uint8_t)bytes;
}

const struct ptx_mnemonic ptx_bulk_mnemonics[] = {{"tensormap", decode_tensormap, NULL}, {NULL, NULL, NULL}};
