/* A text that grows up to a limit. */
#ifndef VGPU_PTX_COMPILE_TEXT_H
#define VGPU_PTX_COMPILE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct ptx_text {
  char *bytes;
  size_t used, room;
  bool full; /* something did not fit */
};

__attribute__((format(printf, 2, 3))) static inline void ptx_say(struct ptx_text *text, const char *format,
                                                                 ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text->bytes + text->used, text->room - text->used, format, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length >= text->room - text->used) text->full = true;
  else text->used += (size_t)length;
}

#endif
