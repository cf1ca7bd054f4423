#include "host/backend/software/profile/profile.h"

#include "host/backend/software/profile/profile_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * profiles/devices/device.schema.json is for people and editors; a test checks that it and this code agree.
 */

enum { FILE_SIZE_MAX = 1024 * 1024 };

/* Refuses two devices that programs could not distinguish. */
static int check_distinct(const struct vgpu_reader *reader, const struct vgpu_device_profiles *profiles) {
  for (uint32_t i = 0; i < profiles->count; i++) {
    const struct vgpu_device_profile *a = &profiles->devices[i];
    for (uint32_t j = 0; j < i; j++) {
      const struct vgpu_device_profile *b = &profiles->devices[j];
      if (memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0)
        return vgpu_reader_fail(reader, "devices", "%u and %u have the same uuid", j, i);
      if (a->pci_domain == b->pci_domain && a->pci_bus == b->pci_bus && a->pci_device == b->pci_device)
        return vgpu_reader_fail(reader, "devices", "%u and %u have the same pci.address", j, i);
    }
  }
  return 0;
}

/* Accepts 3 or 4 digits, then one or two groups of 1 to 3 digits after a dot: 580.65.06. */
static bool is_driver_version(const char *text) {
  size_t first = strspn(text, "0123456789");
  int groups = 0;

  if (first < 3 || first > 4) return false;
  for (text += first; *text == '.' && groups < 2; groups++) {
    size_t digits = strspn(++text, "0123456789");
    if (digits < 1 || digits > 3) return false;
    text += digits;
  }
  return groups > 0 && *text == '\0';
}

static int read_versions(const struct vgpu_reader *reader, json_t *root,
                         struct vgpu_device_profiles *profiles) {
  const char *cuda, *driver;

  if (vgpu_reader_text(reader, root, "cudaVersion", &cuda) ||
      vgpu_reader_text(reader, root, "driverVersion", &driver))
    return -1;
  profiles->cuda_version = 13000;
  snprintf(profiles->nvml_version, sizeof profiles->nvml_version, "580.65.06");
  if (cuda) {
    if ((!vgpu_reader_shaped(cuda, "d.d") && !vgpu_reader_shaped(cuda, "dd.d") &&
         !vgpu_reader_shaped(cuda, "ddd.d")) ||
        *cuda == '0')
      return vgpu_reader_fail(reader, "cudaVersion", "\"%.20s\" is not allowed; must look like 13.0", cuda);
    profiles->cuda_version = (int32_t)strtol(cuda, NULL, 10) * 1000 + (cuda[strlen(cuda) - 1] - '0') * 10;
  }
  if (driver) {
    if (!is_driver_version(driver))
      return vgpu_reader_fail(reader, "driverVersion", "\"%.20s\" is not allowed; must look like 580.65.06",
                              driver);
    snprintf(profiles->nvml_version, sizeof profiles->nvml_version, "%s", driver);
  }
  return 0;
}

static int read_root(struct vgpu_reader *reader, json_t *root, struct vgpu_device_profiles *profiles) {
  static const char *const names[] = {"$schema", "schema", "cudaVersion", "driverVersion", "devices", NULL};
  json_t *devices = json_object_get(root, "devices");
  long long schema = 0;
  const char *ignored;

  if (!json_is_object(root)) return vgpu_reader_fail(reader, "", "must be a JSON object");
  if (vgpu_reader_only(reader, root, names) || vgpu_reader_text(reader, root, "$schema", &ignored) ||
      vgpu_reader_need(reader, root, "schema") || vgpu_reader_number(reader, root, "schema", 1, 1, &schema) ||
      vgpu_reader_need(reader, root, "devices") || read_versions(reader, root, profiles))
    return -1;
  if (!json_is_array(devices) || json_array_size(devices) < 1 || json_array_size(devices) > VGPU_DEVICES_MAX)
    return vgpu_reader_fail(reader, "devices", "must be a list of 1 to %u devices", VGPU_DEVICES_MAX);

  profiles->count = (uint32_t)json_array_size(devices);
  for (uint32_t i = 0; i < profiles->count; i++) {
    snprintf(reader->where, sizeof reader->where, "devices[%u]", i);
    if (vgpu_reader_device(reader, json_array_get(devices, i), &profiles->devices[i])) return -1;
  }
  reader->where[0] = '\0';
  return check_distinct(reader, profiles);
}

/*
 * Reads a whole small file. NULL: errno has the reason. Refuses everything except a regular file, because
 * reading could hang.
 */
static char *read_file(const char *path, size_t *size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  char *text = NULL;
  struct stat about;

  if (fd < 0) return NULL;
  if (fstat(fd, &about) == 0) {
    if (!S_ISREG(about.st_mode)) errno = S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
    else if (about.st_size > FILE_SIZE_MAX) errno = EFBIG;
    else text = malloc(FILE_SIZE_MAX + 1);
  }
  for (*size = 0; text && *size <= FILE_SIZE_MAX;) {
    ssize_t got = read(fd, text + *size, FILE_SIZE_MAX + 1 - *size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got < 0) {
        free(text);
        text = NULL;
      }
      break;
    }
    *size += (size_t)got;
  }
  int why = errno;
  close(fd);
  errno = why;
  if (text && *size > FILE_SIZE_MAX) {
    free(text);
    text = NULL;
    errno = EFBIG;
  }
  return text;
}

int vgpu_device_profiles_read(const char *path, const char *text, size_t size,
                              struct vgpu_device_profiles *profiles, char *error, size_t error_size) {
  struct vgpu_reader reader = {.file = path, .error = error, .error_size = error_size};
  json_error_t why;
  json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);

  if (!root) {
    snprintf(error, error_size, "%s:%d:%d: not JSON: %s", path, why.line, why.column, why.text);
    return -1;
  }
  memset(profiles, 0, sizeof *profiles);
  int result = read_root(&reader, root, profiles);
  json_decref(root);
  return result;
}

static bool is_path(const char *name) {
  size_t length = strlen(name);

  return strchr(name, '/') || (length > 5 && strcmp(name + length - 5, ".json") == 0);
}

int vgpu_device_profiles_load(const char *name_or_path, const char *const *directories,
                              struct vgpu_device_profiles *profiles, char *error, size_t error_size) {
  char path[PATH_MAX];
  char *text = NULL;
  size_t size = 0;

  if (is_path(name_or_path)) {
    text = read_file(name_or_path, &size);
    if (!text) {
      snprintf(error, error_size, "%s: %s", name_or_path, strerror(errno));
      return -1;
    }
    snprintf(path, sizeof path, "%s", name_or_path);
  } else {
    char searched[256] = "";
    for (; directories && *directories && !text; directories++) {
      int length = snprintf(path, sizeof path, "%s/%s.json", *directories, name_or_path);
      if (length < 0 || (size_t)length >= sizeof path) continue;
      text = read_file(path, &size);
      if (!text && errno != ENOENT && errno != ENOTDIR) {
        snprintf(error, error_size, "%s: %s", path, strerror(errno));
        return -1;
      }
      size_t used = strlen(searched);
      snprintf(searched + used, sizeof searched - used, "%s%s", used ? ", " : "", *directories);
    }
    if (!text) {
      snprintf(error, error_size,
               "no device profile named \"%s\" in %s; give a name from there without .json, or "
               "a path",
               name_or_path, *searched ? searched : "(no directory)");
      return -1;
    }
  }
  int result = vgpu_device_profiles_read(path, text, size, profiles, error, error_size);
  free(text);
  return result;
}
