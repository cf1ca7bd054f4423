#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/text/parser.h"

_Noreturn void ptx_fail(struct parser *p, enum ptx_status status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(p->why, sizeof p->why, format, list);
  va_end(list);
  p->status = status;
  longjmp(p->failed, 1);
}

void *ptx_take(struct parser *p, size_t bytes) {
  void *memory = ptx_arena_take(&p->module->arena, bytes == 0 ? 1 : bytes);
  if (memory == NULL) ptx_fail(p, PTX_OUT_OF_MEMORY, "the module takes too much memory");
  return memory;
}

void *ptx_scratch(struct parser *p, size_t bytes) {
  void *memory = ptx_arena_take(&p->scratch, bytes == 0 ? 1 : bytes);
  if (memory == NULL) ptx_fail(p, PTX_OUT_OF_MEMORY, "a function takes too much memory");
  return memory;
}

void *ptx_room(struct parser *p, void *array, uint32_t count, uint32_t *room, size_t size) {
  if (count < *room) return array;
  uint32_t more = *room == 0 ? 64 : *room * 2;
  void *larger = ptx_scratch(p, more * size);
  if (count > 0) memcpy(larger, array, count * size);
  *room = more;
  return larger;
}

void *ptx_module_room(struct parser *p, void *array, uint32_t count, uint32_t *room, size_t size) {
  if (count < *room) return array;
  uint32_t more = *room == 0 ? 16 : *room * 2;
  void *larger = ptx_take(p, more * size);
  if (count > 0) memcpy(larger, array, count * size);
  *room = more;
  return larger;
}

void ptx_skip(struct parser *p) {
  while (p->at < p->end) {
    char c = *p->at;
    if (c == '\n') {
      p->line++;
      p->at++;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      p->at++;
    } else if (c == '/' && p->end - p->at > 1 && p->at[1] == '/') {
      const char *newline = memchr(p->at, '\n', (size_t)(p->end - p->at));
      p->at = newline == NULL ? p->end : newline;
    } else if (c == '/' && p->end - p->at > 1 && p->at[1] == '*') {
      p->at += 2;
      while (p->end - p->at > 1 && !(p->at[0] == '*' && p->at[1] == '/')) {
        if (*p->at == '\n') p->line++;
        p->at++;
      }
      p->at = p->end - p->at > 1 ? p->at + 2 : p->end;
    } else {
      return;
    }
  }
}

bool ptx_accept(struct parser *p, char c) {
  ptx_skip(p);
  if (p->at >= p->end || *p->at != c) return false;
  p->at++;
  return true;
}

void ptx_expect(struct parser *p, char c) {
  if (ptx_accept(p, c)) return;
  if (p->at >= p->end) ptx_fail(p, PTX_INVALID, "'%c' expected, the text ends", c);
  if (p->mnemonic != NULL) {
    ptx_fail(p, PTX_INVALID, "'%c' expected before '%.*s' in %.*s", c, ptx_some(p, p->at, 12), p->at,
             (int)p->mnemonic_length, p->mnemonic);
  }
  ptx_fail(p, PTX_INVALID, "'%c' expected before '%.*s'", c, ptx_some(p, p->at, 12), p->at);
}

static bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%';
}

/* The leading dot of a directive is part of it. */
struct word ptx_word(struct parser *p) {
  ptx_skip(p);
  const char *from = p->at;
  const char *at = from;
  if (at < p->end && *at == '.') at++;
  const char *body = at;
  if (at < p->end && *at >= '0' && *at <= '9') return (struct word){from, 0};
  while (at < p->end && in_word(*at)) at++;
  if (at == body) return (struct word){from, 0};
  p->at = at;
  return (struct word){from, (uint32_t)(at - from)};
}

bool ptx_directive(struct parser *p, struct word *word) {
  ptx_skip(p);
  const char *before = p->at;
  *word = ptx_word(p);
  if (word->length > 0 && word->text[0] == '.') return true;
  p->at = before;
  return false;
}

struct word ptx_need_word(struct parser *p, const char *what) {
  struct word word = ptx_word(p);
  if (word.length == 0) {
    if (p->at >= p->end) ptx_fail(p, PTX_INVALID, "%s expected, the text ends", what);
    ptx_fail(p, PTX_INVALID, "%s expected before '%.*s'", what, ptx_some(p, p->at, 12), p->at);
  }
  return word;
}

struct word ptx_need_name(struct parser *p, const char *what) {
  struct word word = ptx_need_word(p, what);
  if (word.text[0] == '.')
    ptx_fail(p, PTX_INVALID, "%s expected, not '%.*s'", what, (int)word.length, word.text);
  return word;
}

bool ptx_word_is(struct word word, const char *text) {
  return strlen(text) == word.length && memcmp(word.text, text, word.length) == 0;
}

static int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

static bool bits(struct parser *p, int digits, struct operand *to, enum ptx_type type) {
  uint64_t value = 0;
  p->at += 2;
  for (int i = 0; i < digits; i++, p->at++) {
    if (p->at >= p->end || digit(*p->at) > 15)
      ptx_fail(p, PTX_INVALID, "a float constant of %d digits expected", digits);
    value = value << 4 | (uint64_t)digit(*p->at);
  }
  to->kind = O_FLOAT;
  to->type = type;
  to->value = (int64_t)value;
  return true;
}

static bool decimal(struct parser *p, struct operand *to) {
  char text[64];
  size_t length = 0;
  while (p->at < p->end && length < sizeof text - 1) {
    char c = *p->at;
    bool sign = (c == '-' || c == '+') && length > 0 && (text[length - 1] == 'e' || text[length - 1] == 'E');
    if (!sign && !(c >= '0' && c <= '9') && c != '.' && c != 'e' && c != 'E') break;
    text[length++] = c;
    p->at++;
  }
  text[length] = 0;
  char *rest;
  double value = strtod(text, &rest);
  if (*rest != 0) ptx_fail(p, PTX_INVALID, "'%s' is no number", text);
  to->kind = O_FLOAT;
  to->type = T_F64;
  memcpy(&to->value, &value, sizeof value);
  return true;
}

bool ptx_literal(struct parser *p, struct operand *to) {
  ptx_skip(p);
  if (p->at >= p->end || *p->at < '0' || *p->at > '9') return false;
  size_t left = (size_t)(p->end - p->at);
  if (*p->at == '0' && left > 2 && (p->at[1] == 'f' || p->at[1] == 'F')) return bits(p, 8, to, T_F32);
  if (*p->at == '0' && left > 2 && (p->at[1] == 'd' || p->at[1] == 'D')) return bits(p, 16, to, T_F64);
  int base = 10;
  const char *from = p->at;
  if (*p->at == '0' && left > 2 && (p->at[1] == 'x' || p->at[1] == 'X')) {
    base = 16;
    p->at += 2;
  } else if (*p->at == '0' && left > 2 && (p->at[1] == 'b' || p->at[1] == 'B')) {
    base = 2;
    p->at += 2;
  } else {
    const char *look = p->at;
    while (look < p->end && *look >= '0' && *look <= '9') look++;
    if (look < p->end && (*look == '.' || *look == 'e' || *look == 'E')) return decimal(p, to);
    if (*p->at == '0') base = 8;
  }
  uint64_t value = 0;
  const char *digits = p->at;
  while (p->at < p->end && digit(*p->at) < base) {
    if (__builtin_mul_overflow(value, (uint64_t)base, &value) ||
        __builtin_add_overflow(value, (uint64_t)digit(*p->at), &value)) {
      ptx_fail(p, PTX_INVALID, "the number '%.*s' is too large", ptx_some(p, from, 24), from);
    }
    p->at++;
  }
  if (p->at == digits) ptx_fail(p, PTX_INVALID, "'%.*s' is no number", ptx_some(p, from, 12), from);
  bool is_unsigned = value > INT64_MAX;
  if (p->at < p->end && *p->at == 'U') {
    is_unsigned = true;
    p->at++;
  }
  to->kind = O_INTEGER;
  to->type = is_unsigned ? T_U64 : T_S64;
  to->value = (int64_t)value;
  return true;
}

struct word ptx_string(struct parser *p) {
  ptx_expect(p, '"');
  const char *from = p->at;
  while (p->at < p->end && *p->at != '"' && *p->at != '\n') p->at++;
  struct word word = {from, (uint32_t)(p->at - from)};
  ptx_expect(p, '"');
  return word;
}

static const struct {
  char name[8];
  uint8_t type, bytes;
} types[] = {
    {"b8", T_B8, 1},         {"b16", T_B16, 2},       {"b32", T_B32, 4},       {"b64", T_B64, 8},
    {"b128", T_B128, 16},    {"u8", T_U8, 1},         {"u16", T_U16, 2},       {"u32", T_U32, 4},
    {"u64", T_U64, 8},       {"s8", T_S8, 1},         {"s16", T_S16, 2},       {"s32", T_S32, 4},
    {"s64", T_S64, 8},       {"f16", T_F16, 2},       {"f16x2", T_F16X2, 4},   {"bf16", T_BF16, 2},
    {"bf16x2", T_BF16X2, 4}, {"tf32", T_TF32, 4},     {"f32", T_F32, 4},       {"f64", T_F64, 8},
    {"pred", T_PRED, 0},     {"u16x2", T_U16X2, 4},   {"s16x2", T_S16X2, 4},   {"e4m3", T_E4M3, 1},
    {"e5m2", T_E5M2, 1},     {"e4m3x2", T_E4M3X2, 2}, {"e5m2x2", T_E5M2X2, 2},
};

enum ptx_type ptx_type_of(struct word word) {
  if (word.length > 0 && word.text[0] == '.') {
    word.text++;
    word.length--;
  }
  if (word.length < 2 || word.length > 6) return T_NONE;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (ptx_word_is(word, types[i].name)) return types[i].type;
  }
  return T_NONE;
}

uint32_t ptx_type_bytes(enum ptx_type type) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (types[i].type == type) return types[i].bytes;
  }
  return 0;
}
