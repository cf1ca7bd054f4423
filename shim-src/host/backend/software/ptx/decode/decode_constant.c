/* A module has each constant once, for 32 lanes. */
#include <string.h>

#include "host/backend/software/ptx/decode/decode.h"
#include "host/backend/software/ptx/half.h"

uint32_t ptx_constant(struct parser *p, uint32_t bytes, uint64_t value) {
  struct ptx_module *m = p->module;
  if (bytes < 8) value &= (1ull << bytes * 8) - 1;
  if (p->constant_count * 2 >= p->constant_slots) {
    uint32_t slots = p->constant_slots == 0 ? 1024 : p->constant_slots * 2;
    uint32_t *table = ptx_take(p, slots * 3 * sizeof *table);
    for (uint32_t i = 0; i < p->constant_slots; i++) {
      const uint32_t *old = p->constant_table + i * 3;
      if (old[0] == 0) continue;
      uint64_t key = 0;
      memcpy(&key, m->constants + old[1], old[2]);
      uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15ull + old[2]) >> 32) & (slots - 1);
      while (table[at * 3] != 0) at = (at + 1) & (slots - 1);
      memcpy(table + at * 3, old, 12);
    }
    p->constant_table = table;
    p->constant_slots = slots;
  }
  uint32_t at = (uint32_t)((value * 0x9e3779b97f4a7c15ull + bytes) >> 32) & (p->constant_slots - 1);
  for (;; at = (at + 1) & (p->constant_slots - 1)) {
    const uint32_t *entry = p->constant_table + at * 3;
    if (entry[0] == 0) break;
    uint64_t known = 0;
    memcpy(&known, m->constants + entry[1], entry[2]);
    if (entry[2] == bytes && known == value) return entry[1] | REF_CONSTANT;
  }
  uint32_t size = bytes * PTX_LANES;
  if (m->constant_bytes + size > m->constant_room) {
    uint32_t room = m->constant_room == 0 ? 1u << 16 : m->constant_room * 2;
    if (room > 1u << 29) ptx_fail(p, PTX_UNSUPPORTED, "too many different constants");
    unsigned char *larger = ptx_take(p, room);
    if (m->constant_bytes > 0) memcpy(larger, m->constants, m->constant_bytes);
    m->constants = larger;
    m->constant_room = room;
  }
  uint32_t place = m->constant_bytes;
  for (uint32_t i = 0; i < PTX_LANES; i++) memcpy(m->constants + place + i * bytes, &value, bytes);
  m->constant_bytes += size;
  p->constant_table[at * 3] = 1;
  p->constant_table[at * 3 + 1] = place;
  p->constant_table[at * 3 + 2] = bytes;
  p->constant_count++;
  return place | REF_CONSTANT;
}

uint32_t ptx_address_constant(struct parser *p, uint64_t addend) {
  struct ptx_module *m = p->module;
  for (uint32_t i = m->relocation_count; i > 0 && m->relocation_count - i < 16; i--) {
    const struct ptx_data *known = &m->relocations[i - 1];
    if (known->symbol == 1 && known->addend == addend) return (uint32_t)known->offset | REF_CONSTANT;
  }
  if (m->constant_bytes + 256 > m->constant_room) {
    /* makes the pool larger: a value that no other instruction uses */
    uint64_t odd = 0x7b1d5ea5c0ffee00ull + m->constant_bytes;
    ptx_constant(p, 8, odd);
  }
  uint32_t place = m->constant_bytes;
  if (m->constant_bytes + 256 > m->constant_room) ptx_fail(p, PTX_OUT_OF_MEMORY, "too many constants");
  m->constant_bytes += 256;
  m->relocations =
      ptx_module_room(p, m->relocations, m->relocation_count, &m->relocation_room, sizeof *m->relocations);
  m->relocations[m->relocation_count++] =
      (struct ptx_data){.offset = place, .addend = addend, .bytes = 8, .symbol = 1};
  /* the body is decoded after the module was placed */
  uint64_t value = m->address + addend;
  for (uint32_t i = 0; m->placed && i < PTX_LANES; i++) memcpy(m->constants + place + i * 8, &value, 8);
  return place | REF_CONSTANT;
}

uint64_t ptx_float_bits(struct parser *p, const struct operand *o, enum ptx_type type) {
  uint64_t bits = (uint64_t)o->value;
  double wide = 0;
  if (o->kind == O_INTEGER) {
    if (type != T_F32 && type != T_F64) return bits;
    wide = (double)o->value;
  } else if (o->type == T_F32) {
    if (ptx_type_bytes(type) == 4) return bits;
    wide = ptx_double(ptx_widen((uint32_t)bits));
  } else {
    wide = ptx_double(bits);
  }
  switch (ptx_type_bytes(type)) {
    case 4:
      return ptx_bits((float)wide);
    case 2:
      return type == T_BF16 ? ptx_bfloat_of_double(wide, 1) : ptx_half_of_double(wide, 1);
    case 8:
      return ptx_bits64(wide);
    default:
      ptx_refuse(p, "a float constant for this type");
  }
}
