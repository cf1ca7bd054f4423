#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/cuda/module/code.h"
#include "image/container.h"

/* As nvcc registers it: the container and, in version 2, a NULL-terminated list of more. */
struct wrapper {
  uint32_t magic;
  uint32_t version;
  const void *data;
  const void *const *more;
};

struct container {
  const unsigned char *bytes;
  uint64_t size;
};

struct containers {
  struct container *array;
  unsigned count, capacity;
  /*
   * Set for nvcc -rdc=true: a linked image comes first, if any, then objects, whose machine code cannot run.
   */
  bool parts;
};

static uint32_t architecture_of(const struct vgpu_driver *driver, int32_t ordinal) {
  return driver->facts[ordinal].compute_major * 10 + driver->facts[ordinal].compute_minor;
}

static bool is_object_code(const struct containers *containers, unsigned at, const struct vgpu_entry *entry) {
  return containers->parts && at > 0 && entry->kind == VGPU_ENTRY_ELF;
}

/* The latest machine code and the latest PTX that fit a device. 0: none. */
struct wanted {
  uint32_t elf;
  uint32_t ptx;
};

static void want(const struct containers *containers, uint32_t architecture, struct wanted *wanted) {
  *wanted = (struct wanted){0};
  for (unsigned i = 0; i < containers->count; i++) {
    struct vgpu_entry entry;
    uint64_t offset = 0;
    while (vgpu_fatbin_next(containers->array[i].bytes, containers->array[i].size, &offset, &entry) == 1) {
      if (!vgpu_entry_fits(&entry, architecture) || is_object_code(containers, i, &entry)) continue;
      uint32_t *best = entry.kind == VGPU_ENTRY_ELF ? &wanted->elf : &wanted->ptx;
      if (entry.kind <= VGPU_ENTRY_ELF && entry.architecture > *best) *best = entry.architecture;
    }
  }
}

/* A software device runs PTX, but reads the description of machine code, so it gets both. */
static bool is_wanted(const struct vgpu_driver *driver, const struct vgpu_entry *entry,
                      const struct wanted *wanted) {
  for (int32_t i = 0; i < driver->device_count; i++) {
    if (!vgpu_entry_fits(entry, architecture_of(driver, i))) continue;
    if (entry->kind == VGPU_ENTRY_ELF && entry->architecture == wanted[i].elf) return true;
    if (entry->kind == VGPU_ENTRY_PTX && entry->architecture == wanted[i].ptx &&
        (wanted[i].elf == 0 || driver->facts[i].simulated != 0)) {
      return true;
    }
  }
  return false;
}

/* Finds the entries that fit, and copies them to `to` unless it is NULL. Returns their size in bytes. */
static uint64_t gather(const struct vgpu_driver *driver, const struct containers *containers,
                       const struct wanted *wanted, unsigned char *to) {
  uint64_t size = 0;
  for (unsigned i = 0; i < containers->count; i++) {
    struct vgpu_entry entry;
    uint64_t offset = 0;
    while (vgpu_fatbin_next(containers->array[i].bytes, containers->array[i].size, &offset, &entry) == 1) {
      if (is_object_code(containers, i, &entry) || !is_wanted(driver, &entry, wanted)) continue;
      if (to != NULL) memcpy(to + size, entry.whole, entry.whole_size);
      size += entry.whole_size;
    }
  }
  return size;
}

static int finish(struct vgpu_image *image) {
  vgpu_sha256(image->bytes, image->size, &image->hash);
  return CUDA_SUCCESS;
}

static int filter(const struct vgpu_driver *driver, const struct containers *containers,
                  struct vgpu_image *image) {
  struct wanted wanted[VGPU_DEVICES_MAX];
  for (int32_t i = 0; i < driver->device_count; i++) want(containers, architecture_of(driver, i), &wanted[i]);
  uint64_t content = gather(driver, containers, wanted, NULL);
  if (content == 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (content > VGPU_IMAGE_MAX) return CUDA_ERROR_INVALID_IMAGE;
  image->size = VGPU_FATBIN_HEADER + content;
  image->bytes = malloc(image->size);
  if (image->bytes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint32_t magic = VGPU_FATBIN_MAGIC;
  const uint16_t version_and_header[2] = {1, VGPU_FATBIN_HEADER};
  memcpy(image->bytes, &magic, sizeof magic);
  memcpy(image->bytes + 4, version_and_header, sizeof version_and_header);
  memcpy(image->bytes + 8, &content, sizeof content);
  gather(driver, containers, wanted, image->bytes + VGPU_FATBIN_HEADER);
  image->container = true;
  return finish(image);
}

/*
 * Returns the size that a container states; 0: the container is not valid. `limit` is the number of bytes
 * that can be read.
 */
static uint64_t container_size(const unsigned char *bytes, uint64_t limit) {
  uint16_t header;
  uint64_t content;
  memcpy(&header, bytes + 6, sizeof header);
  memcpy(&content, bytes + 8, sizeof content);
  if (content > VGPU_IMAGE_MAX || header + content > limit) return 0;
  return header + content;
}

static int add_container(struct containers *containers, const void *bytes, uint64_t limit) {
  if (vgpu_image_kind(bytes, limit) != VGPU_IMAGE_FATBIN || limit < VGPU_FATBIN_HEADER)
    return CUDA_ERROR_INVALID_IMAGE;
  uint64_t size = container_size(bytes, limit), offset = 0;
  if (size == 0) return CUDA_ERROR_INVALID_IMAGE;
  struct vgpu_entry entry;
  int more;
  while ((more = vgpu_fatbin_next(bytes, size, &offset, &entry)) == 1) continue;
  if (more < 0) return CUDA_ERROR_INVALID_IMAGE;
  if (containers->count == containers->capacity) {
    unsigned bigger = containers->capacity == 0 ? 16 : containers->capacity * 2;
    void *moved = realloc(containers->array, bigger * sizeof *containers->array);
    if (moved == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    containers->array = moved;
    containers->capacity = bigger;
  }
  containers->array[containers->count++] = (struct container){bytes, size};
  return CUDA_SUCCESS;
}

static int end_with(struct containers *containers, int result) {
  free(containers->array);
  return result;
}

static int copy(const void *bytes, uint64_t size, struct vgpu_image *image) {
  if (size == 0 || size > VGPU_IMAGE_MAX) return CUDA_ERROR_INVALID_IMAGE;
  image->size = size;
  image->bytes = malloc(size);
  if (image->bytes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(image->bytes, bytes, size);
  return finish(image);
}

static int take(const struct vgpu_driver *driver, const void *code, uint64_t limit,
                struct vgpu_image *image) {
  struct containers containers = {0};
  int result;
  switch (vgpu_image_kind(code, limit)) {
    case VGPU_IMAGE_FATBIN:
      result = add_container(&containers, code, limit);
      if (result == CUDA_SUCCESS) result = filter(driver, &containers, image);
      return end_with(&containers, result);
    case VGPU_IMAGE_ELF:
      return copy(code, vgpu_elf_length(code, limit), image);
    case VGPU_IMAGE_PTX:
      return copy(code, strnlen(code, limit), image);
    case VGPU_IMAGE_NONE:
      break;
  }
  return CUDA_ERROR_INVALID_IMAGE;
}

static int take_wrapper(const struct vgpu_driver *driver, const struct wrapper *wrapper,
                        struct vgpu_image *image) {
  if (wrapper->version != 1 && wrapper->version != 2) return CUDA_ERROR_INVALID_IMAGE;
  if (wrapper->version == 1 || wrapper->more == NULL) {
    return wrapper->data == NULL ? CUDA_ERROR_INVALID_IMAGE
                                 : take(driver, wrapper->data, VGPU_IMAGE_MAX, image);
  }
  struct containers containers = {.parts = true};
  int result = CUDA_SUCCESS;
  if (wrapper->data != NULL) result = add_container(&containers, wrapper->data, VGPU_IMAGE_MAX);
  for (size_t i = 0; result == CUDA_SUCCESS && wrapper->more[i] != NULL; i++)
    result = add_container(&containers, wrapper->more[i], VGPU_IMAGE_MAX);
  if (result == CUDA_SUCCESS) result = filter(driver, &containers, image);
  return end_with(&containers, result);
}

int vgpu_image_take(const struct vgpu_driver *driver, const void *code, struct vgpu_image *image) {
  *image = (struct vgpu_image){0};
  const unsigned char *bytes = code;
  /* The magic 0x466243b1, byte by byte: a text may end here. */
  if (bytes[0] == 0xb1 && bytes[1] == 0x43 && bytes[2] == 0x62 && bytes[3] == 0x46) {
    return take_wrapper(driver, code, image);
  }
  return take(driver, code, VGPU_IMAGE_MAX, image);
}

int vgpu_image_take_bytes(const struct vgpu_driver *driver, const void *bytes, uint64_t size,
                          struct vgpu_image *image) {
  *image = (struct vgpu_image){0};
  return take(driver, bytes, size, image);
}

void vgpu_image_free(struct vgpu_image *image) {
  free(image->bytes);
  image->bytes = NULL;
}

int vgpu_image_read_file(const char *path, unsigned char **bytes, uint64_t *size) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  struct statx about;
  if (descriptor < 0) return CUDA_ERROR_FILE_NOT_FOUND;
  int result = CUDA_ERROR_INVALID_IMAGE;
  unsigned char *read_bytes = NULL;
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &about) == 0 && S_ISREG(about.stx_mode) &&
      about.stx_size > 0 && about.stx_size <= VGPU_IMAGE_MAX) {
    read_bytes = malloc((size_t)about.stx_size + 1);
    result = read_bytes == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  }
  size_t have = 0;
  while (result == CUDA_SUCCESS && have < (size_t)about.stx_size) {
    ssize_t got = read(descriptor, read_bytes + have, (size_t)about.stx_size - have);
    if (got <= 0) result = CUDA_ERROR_INVALID_IMAGE;
    else have += (size_t)got;
  }
  close(descriptor);
  if (result != CUDA_SUCCESS) {
    free(read_bytes);
    return result;
  }
  read_bytes[have] = '\0'; /* PTX text ends with a zero */
  *bytes = read_bytes;
  *size = have;
  return CUDA_SUCCESS;
}
