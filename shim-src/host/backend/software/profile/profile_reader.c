#include "host/backend/software/profile/profile_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int vgpu_reader_fail(const struct vgpu_reader *reader, const char *field, const char *format, ...) {
  char what[512];
  va_list arguments;

  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  const char *dot = *reader->where && *field ? "." : "";
  const char *colon = *reader->where || *field ? ": " : "";
  snprintf(reader->error, reader->error_size, "%s: %s%s%s%s%s", reader->file, reader->where, dot, field,
           colon, what);
  return -1;
}

int vgpu_reader_only(const struct vgpu_reader *reader, json_t *object, const char *const *names) {
  const char *key;
  json_t *value;

  json_object_foreach(object, key, value) {
    const char *const *name = names;
    while (*name && strcmp(*name, key) != 0) name++;
    if (*name) continue;
    char allowed[256] = "";
    for (name = names; *name; name++) {
      size_t used = strlen(allowed);
      snprintf(allowed + used, sizeof allowed - used, "%s%s", used ? ", " : "", *name);
    }
    return vgpu_reader_fail(reader, key, "unknown field; allowed: %s", allowed);
  }
  return 0;
}

int vgpu_reader_need(const struct vgpu_reader *reader, json_t *object, const char *name) {
  if (json_object_get(object, name)) return 0;
  return vgpu_reader_fail(reader, name, "missing");
}

int vgpu_reader_text(const struct vgpu_reader *reader, json_t *object, const char *name, const char **text) {
  json_t *value = json_object_get(object, name);

  *text = NULL;
  if (!value) return 0;
  if (!json_is_string(value)) return vgpu_reader_fail(reader, name, "must be a string");
  *text = json_string_value(value);
  if (strlen(*text) != json_string_length(value))
    return vgpu_reader_fail(reader, name, "must not contain a zero byte");
  return 0;
}

int vgpu_reader_number(const struct vgpu_reader *reader, json_t *object, const char *name, long long low,
                       long long high, long long *number) {
  json_t *value = json_object_get(object, name);

  if (!value) return 0;
  if (!json_is_integer(value))
    return vgpu_reader_fail(reader, name, "must be a whole number from %lld to %lld", low, high);
  long long found = json_integer_value(value);
  if (found < low || found > high)
    return vgpu_reader_fail(reader, name, "%lld is not allowed; must be from %lld to %lld", found, low, high);
  *number = found;
  return 0;
}

bool vgpu_reader_shaped(const char *text, const char *shape) {
  for (; *shape; shape++, text++) {
    bool decimal = *text >= '0' && *text <= '9';
    bool right = *shape == 'h'   ? decimal || (*text >= 'a' && *text <= 'f')
                 : *shape == 'd' ? decimal
                                 : *text == *shape;
    if (!right) return false;
  }
  return *text == '\0';
}
