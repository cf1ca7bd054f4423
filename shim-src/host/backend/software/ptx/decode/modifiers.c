/* An ignored modifier would make the result wrong without an error, so unknown ones are refused. */
#include <stdio.h>
#include <string.h>

#include "host/backend/software/ptx/decode/decode.h"

static bool listed(const char *words, struct word part) {
  while (*words == ' ') {
    words++;
    size_t length = strcspn(words, " ");
    if (length == part.length && memcmp(words, part.text, length) == 0) return true;
    words += length;
  }
  return false;
}

static bool is_shape(struct word part) {
  return part.length > 3 && part.text[0] == 'm' && part.text[1] >= '0' && part.text[1] <= '9';
}

/*
 * True for a word such as u33 or f7: a letter of the scalar types and a width that no type has. A newer ISA
 * may have wider types, but each width is a power of two.
 */
static bool is_no_type(struct word part) {
  uint32_t width = 0;
  if (part.length < 2 || part.length > 6 || strchr("usbf", part.text[0]) == NULL) return false;
  for (uint32_t i = 1; i < part.length; i++) {
    if (part.text[i] < '0' || part.text[i] > '9') return false;
    width = width * 10 + (uint32_t)(part.text[i] - '0');
  }
  return part.text[1] == '0' || (width & (width - 1)) != 0;
}

void ptx_check_modifiers(struct parser *p, const char *known) {
  for (uint32_t i = 1; i < p->part_count; i++) {
    if (!is_no_type(p->parts[i])) continue;
    char why[32];
    snprintf(why, sizeof why, "the type .%.*s", (int)p->parts[i].length, p->parts[i].text);
    ptx_wrong(p, why);
  }
  if (known == NULL) return;
  int types = known[0] - '0';
  for (uint32_t i = 1; i < p->part_count; i++) {
    struct word part = p->parts[i];
    if (listed(known + 1, part)) continue;
    if (ptx_type_of(part) != T_NONE && types-- > 0) continue;
    if (is_shape(part) && strstr(known, PTX_SHAPE) != NULL) continue;
    char why[96];
    bool type = ptx_type_of(part) != T_NONE;
    snprintf(why, sizeof why, "the %s .%.*s", type ? "type" : "modifier", (int)part.length, part.text);
    ptx_refuse(p, why);
  }
}
