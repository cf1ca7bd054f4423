/* Functions that kernels call and CUDA provides: printf, assert, malloc, free; launches are in children.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/software/ptx/run/warp.h"

#define MAX_TEXT 1024u

/* A parameter of the call, as the caller stored it. */
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
void ptx_give_result(const struct place *at, uint32_t lane, uint64_t value, uint32_t bytes) {
  const uint32_t *x = at->split->frame->function->x + at->in->x;
  if (x[0] == 0) return;
  memcpy(at->registers + x[1] + lane * x[2], &value, bytes);
}

/* A string in the memory of the device, cut at the size given. */
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

/* One conversion, `spec` from % to its letter without length modifiers; arguments lie one after the other. */
static bool conversion(const struct place *at, uint32_t lane, struct output *o, char *spec, size_t length,
                       bool wide, uint64_t *from) {
  char letter = spec[length - 1], piece[512], text[MAX_TEXT];
  bool floats = strchr("aAeEfFgG", letter) != NULL, string = letter == 's', pointer = letter == 'p';
  uint32_t bytes = floats || string || pointer || wide ? 8 : 4;
  *from = (*from + bytes - 1) / bytes * bytes;
  const unsigned char *memory = ptx_resolve(at, S_GENERIC, lane, *from, bytes);
  if (memory == NULL) return false;
  *from += bytes;
  uint64_t value = 0;
  memcpy(&value, memory, bytes);
  if (string) {
    if (value == 0) snprintf(text, sizeof text, "(null)");
    else if (!read_text(at, lane, value, text, sizeof text)) return false;
    append(o, piece, 0);
    char longer[MAX_TEXT + 512];
    int n = snprintf(longer, sizeof longer, spec, text);
    append(o, longer, n < (int)sizeof longer ? n : (int)sizeof longer - 1);
    return true;
  }
  int n;
  if (floats) {
    double d;
    memcpy(&d, &value, 8);
    n = snprintf(piece, sizeof piece, spec, d);
  } else if (pointer) {
    n = snprintf(piece, sizeof piece, "0x%" PRIx64, value);
  } else if (letter == 'c') {
    n = snprintf(piece, sizeof piece, spec, (int)value);
  } else {
    char with[40];
    snprintf(with, sizeof with, "%.*sll%c", (int)(length - 1), spec, letter);
    bool is_signed = letter == 'd' || letter == 'i';
    if (bytes == 4) value = is_signed ? (uint64_t)(int64_t)(int32_t)value : (uint32_t)value;
    n = snprintf(piece, sizeof piece, with, value);
  }
  append(o, piece, n < (int)sizeof piece ? n : (int)sizeof piece - 1);
  return true;
}

/* The format is the guest's: only conversions known here reach the host's printf, with widths of 3 digits at
 * most. */
static bool format(const struct place *at, uint32_t lane, struct output *o, const char *text,
                   uint64_t arguments) {
  for (const char *c = text; *c != 0;) {
    if (*c != '%') {
      append(o, c++, 1);
      continue;
    }
    if (c[1] == '%') {
      append(o, c, 1);
      c += 2;
      continue;
    }
    char spec[24] = "%";
    size_t length = 1, digits = 0;
    bool wide = false;
    const char *look = c + 1;
    while (*look != 0 && strchr("-+ #0", *look) != NULL && length < 6) spec[length++] = *look++;
    for (int part = 0; part < 2; part++) {
      digits = 0;
      while (*look >= '0' && *look <= '9') {
        if (digits++ < 2) spec[length++] = *look;
        look++;
      }
      if (part == 0 && *look == '.') spec[length++] = *look++;
      else break;
    }
    while (*look == 'l' || *look == 'h' || *look == 'z' || *look == 'j' || *look == 't' || *look == 'q') {
      if (*look != 'h') wide = true;
      look++;
    }
    if (*look == 0 || strchr("diouxXcspaAeEfFgG", *look) == NULL) {
      append(o, c++, 1);
      continue;
    }
    spec[length++] = *look++;
    spec[length] = 0;
    if (!conversion(at, lane, o, spec, length, wide, &arguments)) return false;
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
  if (!read_text(at, lane, ptx_argument(at, lane, 0), text, sizeof text)) return false;
  struct output o;
  o.length = 0;
  if (!format(at, lane, &o, text, ptx_argument(at, lane, 1))) return false;
  print(at, o.text, o.length);
  ptx_give_result(at, lane, (uint64_t)o.length, 4);
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
