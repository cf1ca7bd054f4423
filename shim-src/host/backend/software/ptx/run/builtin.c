/* Functions that CUDA provides to kernels: printf, assert, malloc, free; launches are in children.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/run/warp.h"

#define MAX_TEXT 1024u
#define MOST_WIDTH 500 /* with the digits of the largest double less than 2 * MAX_TEXT */
#define MOST_ARGUMENTS 32u

/* Returns a parameter of the call, as the caller stored it. */
uint64_t ptx_argument(const struct place *at, uint32_t lane, uint32_t index) {
  uint64_t value;
  ptx_argument_bytes(at, lane, index, &value, sizeof value);
  return value;
}
void ptx_argument_bytes(const struct place *at, uint32_t lane, uint32_t index, void *to, size_t bytes) {
  const uint32_t *x = at->split->frame->function->x + at->in->x;
  uint32_t returns = x[0];
  const uint32_t *entry = x + 1 + 2 * returns + 1 + 2 * index;
  memcpy(to, at->registers + entry[0] + lane * entry[1], bytes);
}
uint32_t ptx_argument_room(const struct place *at, uint32_t index) {
  const uint32_t *x = at->split->frame->function->x + at->in->x;
  return x[1 + 2 * x[0] + 1 + 2 * index + 1];
}
void ptx_give_result(const struct place *at, uint32_t lane, uint64_t value, uint32_t bytes) {
  const uint32_t *x = at->split->frame->function->x + at->in->x;
  if (x[0] == 0) return;
  memcpy(at->registers + x[1] + lane * x[2], &value, bytes);
}

static bool read_text(const struct place *at, uint32_t lane, uint64_t address, char *to, size_t size) {
  size_t length = 0;
  while (length + 1 < size) {
    const unsigned char *c = ptx_resolve(at, S_GENERIC, lane, address + length, 1);
    if (c == NULL) return false;
    if (*c == 0) break;
    to[length++] = (char)*c;
  }
  to[length] = 0;
  return true;
}

struct output {
  char text[4 * MAX_TEXT];
  size_t length;
};

static void append(struct output *o, const char *text, int length) {
  if (length < 0) return;
  size_t room = sizeof o->text - o->length, n = (size_t)length;
  if (n > room) n = room;
  memcpy(o->text + o->length, text, n);
  o->length += n;
}

/* One conversion of a format: from % to its letter, without length modifiers. */
struct conversion {
  char spec[24];
  size_t length;
  uint32_t bytes; /* of an integer: 1, 2, 4, 8 */
};

struct arguments {
  uint64_t next;
  uint32_t count; /* that were read */
};

static bool argument(const struct place *at, uint32_t lane, struct arguments *from, uint32_t bytes,
                     uint64_t *value) {
  from->next = (from->next + bytes - 1) / bytes * bytes;
  const unsigned char *memory = ptx_resolve(at, S_GENERIC, lane, from->next, bytes);
  if (memory == NULL) return false;
  from->next += bytes;
  from->count++;
  *value = 0;
  memcpy(value, memory, bytes);
  return true;
}

/* Returns a value of fewer bytes than its argument has: `%hd`, `%hhu`. */
static uint64_t narrow(uint64_t value, uint32_t bytes, bool is_signed) {
  uint32_t bits = 64 - 8 * bytes;
  return is_signed ? (uint64_t)((int64_t)(value << bits) >> bits) : value << bits >> bits;
}

static bool convert(const struct place *at, uint32_t lane, struct output *o, const struct conversion *c,
                    struct arguments *from) {
  const char *spec = c->spec;
  char letter = spec[c->length - 1], piece[2 * MAX_TEXT], text[MAX_TEXT];
  bool floats = strchr("aAeEfFgG", letter) != NULL, string = letter == 's', pointer = letter == 'p';
  uint64_t value;
  if (!argument(at, lane, from, floats || string || pointer || c->bytes == 8 ? 8 : 4, &value)) return false;
  int n;
  if (string) {
    if (value == 0) snprintf(text, sizeof text, "(null)");
    else if (!read_text(at, lane, value, text, sizeof text)) return false;
    n = snprintf(piece, sizeof piece, spec, text);
  } else if (floats) {
    double d;
    memcpy(&d, &value, 8);
    n = snprintf(piece, sizeof piece, spec, d);
  } else if (pointer) {
    snprintf(text, sizeof text, "0x%" PRIx64, value);
    char with[sizeof c->spec];
    snprintf(with, sizeof with, "%.*ss", (int)(c->length - 1), spec);
    n = snprintf(piece, sizeof piece, with, text);
  } else if (letter == 'c') {
    n = snprintf(piece, sizeof piece, spec, (int)value);
  } else {
    char with[sizeof c->spec + 2];
    snprintf(with, sizeof with, "%.*sll%c", (int)(c->length - 1), spec, letter);
    n = snprintf(piece, sizeof piece, with, narrow(value, c->bytes, letter == 'd' || letter == 'i'));
  }
  append(o, piece, n < (int)sizeof piece ? n : (int)sizeof piece - 1);
  return true;
}

/* Reads a width or a precision: digits, or * for an argument; at most MOST_WIDTH. */
static bool number(const struct place *at, uint32_t lane, const char **look, struct conversion *c,
                   struct arguments *from) {
  int32_t n = 0;
  if (**look == '*') {
    uint64_t value;
    if (!argument(at, lane, from, 4, &value)) return false;
    n = (int32_t)value;
    (*look)++;
  } else if (**look < '0' || **look > '9') {
    return true;
  }
  while (**look >= '0' && **look <= '9') {
    if (n <= MOST_WIDTH) n = n * 10 + (**look - '0');
    (*look)++;
  }
  if (c->spec[c->length - 1] == '.' && n < 0) {
    c->length--; /* a negative precision is none */
    return true;
  }
  if (n > MOST_WIDTH) n = MOST_WIDTH;
  if (n < -MOST_WIDTH) n = -MOST_WIDTH;
  c->length += (size_t)snprintf(c->spec + c->length, sizeof c->spec - c->length, "%d", n);
  return true;
}

/*
 * The format is the guest's: only known conversions reach the host's printf. After 32 arguments, the most of
 * CUDA's printf, the rest is printed as it is.
 */
static bool format(const struct place *at, uint32_t lane, struct output *o, const char *text,
                   struct arguments *from) {
  for (const char *c = text; *c != 0;) {
    if (*c != '%' || from->count >= MOST_ARGUMENTS) {
      append(o, c++, 1);
      continue;
    }
    if (c[1] == '%') {
      append(o, c, 1);
      c += 2;
      continue;
    }
    struct conversion to = {.spec = "%", .length = 1, .bytes = 4};
    struct arguments before = *from;
    const char *look = c + 1;
    while (*look != 0 && strchr("-+ #0", *look) != NULL && to.length < 6) to.spec[to.length++] = *look++;
    if (!number(at, lane, &look, &to, from)) return false;
    if (*look == '.') {
      to.spec[to.length++] = *look++;
      if (!number(at, lane, &look, &to, from)) return false;
    }
    for (; *look != 0 && strchr("lhzjtq", *look) != NULL; look++)
      to.bytes = *look != 'h' ? 8 : to.bytes > 1 ? to.bytes / 2 : 1;
    if (*look == 0 || strchr("diouxXcspaAeEfFgG", *look) == NULL) {
      *from = before;
      append(o, c++, 1);
      continue;
    }
    to.spec[to.length++] = *look++;
    to.spec[to.length] = 0;
    if (!convert(at, lane, o, &to, from)) return false;
    c = look;
  }
  return true;
}

static void print(const struct place *at, const char *text, size_t length) {
  struct launch_state *l = at->worker->launch;
  if (l->launch->print == NULL || length == 0) return;
  pthread_mutex_lock(&l->lock);
  l->launch->print(l->launch->user, text, length);
  pthread_mutex_unlock(&l->lock);
}

static bool kernel_printf(const struct place *at, uint32_t lane) {
  char text[MAX_TEXT];
  if (ptx_argument(at, lane, 0) == 0) {
    ptx_give_result(at, lane, UINT32_MAX, 4);
    return true;
  }
  if (!read_text(at, lane, ptx_argument(at, lane, 0), text, sizeof text)) return false;
  struct output o;
  o.length = 0;
  struct arguments from = {.next = ptx_argument(at, lane, 1)};
  if (!format(at, lane, &o, text, &from)) return false;
  print(at, o.text, o.length);
  /* CUDA's printf returns the number of arguments, C's the number of characters. */
  ptx_give_result(at, lane, from.count, 4);
  return true;
}

static bool kernel_assert(const struct place *at, uint32_t lane) {
  char message[256], file[256], function[256], text[1024];
  if (!read_text(at, lane, ptx_argument(at, lane, 0), message, sizeof message) ||
      !read_text(at, lane, ptx_argument(at, lane, 1), file, sizeof file) ||
      !read_text(at, lane, ptx_argument(at, lane, 3), function, sizeof function)) {
    return false;
  }
  const uint32_t *b = at->warp->block->id;
  int n =
      snprintf(text, sizeof text, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
               file, (uint32_t)ptx_argument(at, lane, 2), function, b[0], b[1], b[2], at->warp->tid[0][lane],
               at->warp->tid[1][lane], at->warp->tid[2][lane], message);
  print(at, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
  ptx_raise(at, PTX_ASSERT, lane, 0, message);
  return false;
}

bool ptx_builtin(const struct place *at, uint32_t mask, const struct ptx_function *callee) {
  struct ptx_heap *heap = at->worker->launch->launch->heap;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    switch (callee->builtin_number) {
      case BUILTIN_VPRINTF:
        if (!kernel_printf(at, lane)) return false;
        break;
      case BUILTIN_MALLOC:
        ptx_give_result(at, lane, ptx_heap_take(heap, ptx_argument(at, lane, 0)), 8);
        break;
      case BUILTIN_FREE: {
        uint64_t address = ptx_argument(at, lane, 0);
        if (address != 0 && !ptx_heap_give(heap, address)) {
          ptx_raise(at, PTX_ILLEGAL_ADDRESS, lane, address, "free of what malloc did not give");
          return false;
        }
        break;
      }
      case BUILTIN_ASSERT:
        return kernel_assert(at, lane);
      default:
        if (!ptx_child_call(at, lane, callee->builtin_number)) return false;
    }
  }
  return true;
}
