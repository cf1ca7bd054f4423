/*
 * Constant expressions with C's operators. Types of results ("Summary of Constant Expression Evaluation
 * Rules"): ~ & | ^ and % are unsigned, ! and comparisons signed, others unsigned if an operand is.
 * https://docs.nvidia.com/cuda/parallel-thread-execution/#constant-expressions
 */
#include <string.h>

#include "host/backend/software/ptx/text/parser.h"

#define MAX_DEPTH 64u

/* Longer operators come before those with which they begin. */
enum operation {
  OR_ELSE,
  AND_THEN,
  EQ,
  NE,
  LE,
  GE,
  SHL,
  SHR,
  LT,
  GT,
  OR,
  XOR,
  AND,
  ADD,
  SUB,
  MUL,
  DIV,
  REM,
  OPERATIONS
};

static const struct {
  char text[3];
  uint8_t level;
} binaries[OPERATIONS] = {
    [OR_ELSE] = {"||", 1}, [AND_THEN] = {"&&", 2}, [EQ] = {"==", 6},  [NE] = {"!=", 6}, [LE] = {"<=", 7},
    [GE] = {">=", 7},      [SHL] = {"<<", 8},      [SHR] = {">>", 8}, [LT] = {"<", 7},  [GT] = {">", 7},
    [OR] = {"|", 3},       [XOR] = {"^", 4},       [AND] = {"&", 5},  [ADD] = {"+", 9}, [SUB] = {"-", 9},
    [MUL] = {"*", 10},     [DIV] = {"/", 10},      [REM] = {"%", 10},
};

static void conditional(struct parser *p, struct operand *to, uint32_t depth);

static void need_integer(struct parser *p, const struct operand *o) {
  if (o->kind != O_INTEGER) ptx_fail(p, PTX_INVALID, "an integer expected in a constant expression");
}

static double wide(const struct operand *o) {
  double d;
  float f;
  uint32_t bits = (uint32_t)o->value;
  memcpy(&d, &o->value, sizeof d);
  memcpy(&f, &bits, sizeof f);
  return o->type == T_F32 ? (double)f : d;
}

static void set_integer(struct operand *to, uint64_t value, bool is_signed) {
  *to = (struct operand){.kind = O_INTEGER, .type = is_signed ? T_S64 : T_U64, .value = (int64_t)value};
}

static void set_double(struct operand *to, double value) {
  *to = (struct operand){.kind = O_FLOAT, .type = T_F64};
  memcpy(&to->value, &value, sizeof value);
}

/* Reads the (.s64) or (.u64) of a cast. */
static bool cast(struct parser *p, enum ptx_type *type) {
  const char *before = p->at;
  uint32_t line = p->line;
  struct word word;
  if (ptx_accept(p, '(') && ptx_directive(p, &word) && ptx_accept(p, ')')) {
    *type = ptx_type_of(word);
    if (*type == T_S64 || *type == T_U64) return true;
  }
  p->at = before;
  p->line = line;
  return false;
}

static void unary(struct parser *p, struct operand *to, uint32_t depth) {
  if (depth > MAX_DEPTH) ptx_fail(p, PTX_INVALID, "a constant expression is nested too deep");
  ptx_skip(p);
  enum ptx_type type;
  char c = p->at < p->end ? *p->at : 0;
  if (c == '+' || c == '-' || c == '~' || c == '!') {
    p->at++;
    unary(p, to, depth + 1);
    if (c == '-' && to->kind == O_FLOAT) to->value ^= to->type == T_F32 ? (int64_t)0x80000000 : INT64_MIN;
    else if (c == '-') to->value = (int64_t)(0 - (uint64_t)to->value);
    if (c != '~' && c != '!') return;
    need_integer(p, to);
    if (c == '~') set_integer(to, ~(uint64_t)to->value, false);
    else set_integer(to, to->value == 0, true);
  } else if (c == '(' && cast(p, &type)) {
    unary(p, to, depth + 1);
    need_integer(p, to);
    to->type = (uint8_t)type;
  } else if (c == '(') {
    p->at++;
    conditional(p, to, depth + 1);
    ptx_expect(p, ')');
  } else if (!ptx_literal(p, to)) {
    struct word word = ptx_need_word(p, "a number");
    if (!ptx_word_is(word, "WARP_SZ"))
      ptx_fail(p, PTX_INVALID, "'%.*s' in a constant expression", (int)word.length, word.text);
    set_integer(to, PTX_LANES, true);
  }
}

/* Returns the operator here; OPERATIONS: there is none, or it binds less than `least`. */
static enum operation operator_here(struct parser *p, uint32_t least) {
  ptx_skip(p);
  size_t left = (size_t)(p->end - p->at);
  if (left == 0 || *p->at == ',' || *p->at == ';' || *p->at == ']') return OPERATIONS;
  for (enum operation i = 0; i < OPERATIONS; i++) {
    size_t length = strlen(binaries[i].text);
    if (left < length || memcmp(p->at, binaries[i].text, length) != 0) continue;
    return binaries[i].level < least ? OPERATIONS : i;
  }
  return OPERATIONS;
}

/* Sets the result of a comparison. `less`, `equal`, `greater`: all false for a NaN. False: no comparison. */
static bool comparison(struct operand *to, enum operation operation, bool less, bool equal, bool greater) {
  const bool results[OPERATIONS] = {[EQ] = equal,   [NE] = !equal,        [LT] = less,
                                    [GT] = greater, [LE] = less || equal, [GE] = greater || equal};
  if (binaries[operation].level != binaries[EQ].level && binaries[operation].level != binaries[LT].level)
    return false;
  set_integer(to, results[operation], true);
  return true;
}

static void of_doubles(struct parser *p, enum operation operation, struct operand *to,
                       const struct operand *right) {
  if (to->kind != right->kind) ptx_fail(p, PTX_INVALID, "a constant expression of integers and floats");
  double a = wide(to), b = wide(right);
  switch (operation) {
    case ADD:
      set_double(to, a + b);
      return;
    case SUB:
      set_double(to, a - b);
      return;
    case MUL:
      set_double(to, a * b);
      return;
    case DIV:
      set_double(to, a / b);
      return;
    default:
      if (!comparison(to, operation, (a < b), a == b, (a > b))) need_integer(p, to);
  }
}

static void of_integers(struct parser *p, enum operation operation, struct operand *to, uint64_t b,
                        bool is_signed) {
  uint64_t a = (uint64_t)to->value;
  int64_t x = (int64_t)a, y = (int64_t)b;
  bool first_signed = to->type == T_S64;
  if ((operation == DIV || operation == REM) && b == 0)
    ptx_fail(p, PTX_INVALID, "a constant expression divides by zero");
  switch (operation) {
    case ADD:
      set_integer(to, a + b, is_signed);
      return;
    case SUB:
      set_integer(to, a - b, is_signed);
      return;
    case MUL:
      set_integer(to, a * b, is_signed);
      return;
    case DIV:
      if (!is_signed) set_integer(to, a / b, false);
      else set_integer(to, y == -1 ? 0 - a : (uint64_t)(x / y), true);
      return;
    case REM:
      set_integer(to, a % b, true);
      return;
    case SHL: /* ptxas takes the count modulo 64 */
      set_integer(to, a << (b & 63), first_signed);
      return;
    case SHR:
      set_integer(to, first_signed ? (uint64_t)(x >> (b & 63)) : a >> (b & 63), first_signed);
      return;
    case AND:
      set_integer(to, a & b, false);
      return;
    case OR:
      set_integer(to, a | b, false);
      return;
    case XOR:
      set_integer(to, a ^ b, false);
      return;
    case AND_THEN:
      set_integer(to, a != 0 && b != 0, true);
      return;
    case OR_ELSE:
      set_integer(to, a != 0 || b != 0, true);
      return;
    default:
      comparison(to, operation, is_signed ? x < y : a < b, a == b, is_signed ? x > y : a > b);
  }
}

static void binary(struct parser *p, struct operand *to, uint32_t least, uint32_t depth) {
  unary(p, to, depth);
  for (enum operation operation; (operation = operator_here(p, least)) != OPERATIONS;) {
    p->at += strlen(binaries[operation].text);
    struct operand right = {0};
    binary(p, &right, binaries[operation].level + 1u, depth + 1);
    if (to->kind == O_FLOAT || right.kind == O_FLOAT) of_doubles(p, operation, to, &right);
    else of_integers(p, operation, to, (uint64_t)right.value, to->type == T_S64 && right.type == T_S64);
  }
}

static void conditional(struct parser *p, struct operand *to, uint32_t depth) {
  binary(p, to, 0, depth);
  if (!ptx_accept(p, '?')) return;
  need_integer(p, to);
  bool first = to->value != 0;
  struct operand other = {0};
  conditional(p, to, depth + 1);
  ptx_expect(p, ':');
  conditional(p, &other, depth + 1);
  need_integer(p, to);
  need_integer(p, &other);
  bool is_signed = to->type == T_S64 && other.type == T_S64;
  set_integer(to, (uint64_t)(first ? to : &other)->value, is_signed);
}

/* True if a constant begins here, after signs and parentheses. Otherwise it may be a register or a name. */
static bool begins(struct parser *p) {
  ptx_skip(p);
  const char *before = p->at;
  uint32_t line = p->line;
  while (p->at < p->end && *p->at != 0 && strchr("+-~!(", *p->at) != NULL) {
    p->at++;
    ptx_skip(p);
  }
  char c = p->at < p->end ? *p->at : 0;
  bool constant = (c >= '0' && c <= '9') || (c == 'W' && ptx_word_is(ptx_word(p), "WARP_SZ")) ||
                  (c == '.' && p->at > before && p->at[-1] == '(');
  p->at = before;
  p->line = line;
  return constant;
}

bool ptx_number(struct parser *p, struct operand *to) {
  if (!begins(p)) return false;
  conditional(p, to, 0);
  if (to->kind == O_INTEGER) to->type = T_NONE;
  return true;
}

int64_t ptx_integer(struct parser *p) {
  struct operand number = {0};
  if (!ptx_number(p, &number) || number.kind != O_INTEGER) {
    ptx_fail(p, PTX_INVALID, "an integer expected before '%.*s'", ptx_some(p, p->at, 12), p->at);
  }
  return number.value;
}

bool ptx_addend(struct parser *p, int64_t *value) {
  ptx_skip(p);
  if (p->at >= p->end || (*p->at != '+' && *p->at != '-')) return false;
  *value = (int64_t)((uint64_t)*value + (uint64_t)ptx_integer(p));
  return true;
}
