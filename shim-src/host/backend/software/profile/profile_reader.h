/* Errors name the file, the field and what is allowed. */
#ifndef VGPU_HOST_SOFTWARE_PROFILE_READER_H
#define VGPU_HOST_SOFTWARE_PROFILE_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_device_profile;

struct vgpu_reader {
  const char *file;
  char *error;
  size_t error_size;
  char where[160]; /* "devices[0]": the object being read */
};

/* Writes "FILE: devices[0].memory: what is wrong" to reader->error. Always returns -1. */
int vgpu_reader_fail(const struct vgpu_reader *reader, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns -1 if a member of the object is not in `names`, which ends with NULL; else 0. */
int vgpu_reader_only(const struct vgpu_reader *reader, json_t *object, const char *const *names);

/* Returns -1 if the field is missing; else 0. */
int vgpu_reader_need(const struct vgpu_reader *reader, json_t *object, const char *name);

/* *text is NULL if the field is absent. Returns -1 if the field is not a string; else 0. */
int vgpu_reader_text(const struct vgpu_reader *reader, json_t *object, const char *name, const char **text);

/*
 * Does not change *number if the field is absent. Returns -1 if the field is not a whole number from low to
 * high; else 0.
 */
int vgpu_reader_number(const struct vgpu_reader *reader, json_t *object, const char *name, long long low,
                       long long high, long long *number);

/*
 * True if all of `text` matches `shape`: h is a hexadecimal digit (lower case), d a decimal digit, any other
 * character itself.
 */
bool vgpu_reader_shaped(const char *text, const char *shape);

/* Reads one element of "devices". reader->where is the place of the element ("devices[0]"). */
int vgpu_reader_device(struct vgpu_reader *reader, json_t *object, struct vgpu_device_profile *device);

#endif
