/* Uploads and programs: what an image becomes. */
#include "host/backend/software/code/code.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_handlers.h"
#include "host/session/worker.h"
#include "image/container.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };

/* An image that is on its way, or here and not yet loaded. */
struct vgpu_upload {
  struct vgpu_upload *next;
  struct vgpu_hash hash;
  uint64_t size;
  uint64_t have;
  unsigned char *bytes;
};

uint64_t vgpu_code_limit(const struct vgpu_worker *worker) {
  uint64_t code = worker->code_options->session_bytes, memory = vgpu_worker_memory_limit(worker);
  return memory != 0 && memory < code ? memory : code;
}

bool vgpu_code_take(struct vgpu_worker *worker, uint64_t bytes) {
  uint64_t limit = vgpu_code_limit(worker);
  if (bytes > limit || worker->code.bytes > limit - bytes) return false;
  worker->code.bytes += bytes;
  return true;
}

void vgpu_code_give(struct vgpu_worker *worker, uint64_t bytes) {
  worker->code.bytes -= bytes < worker->code.bytes ? bytes : worker->code.bytes;
}

static struct vgpu_upload **find_upload(struct vgpu_worker *worker, const struct vgpu_hash *hash) {
  struct vgpu_upload **link = &worker->code.uploads;
  while (*link != NULL && memcmp(&(*link)->hash, hash, sizeof *hash) != 0) link = &(*link)->next;
  return link;
}

static void drop_upload(struct vgpu_worker *worker, struct vgpu_upload **link) {
  struct vgpu_upload *upload = *link;
  *link = upload->next;
  vgpu_code_give(worker, upload->size);
  free(upload->bytes);
  free(upload);
}

void vgpu_code_forget_upload(struct vgpu_worker *worker, const struct vgpu_hash *hash) {
  struct vgpu_upload **link = find_upload(worker, hash);
  if (*link != NULL) drop_upload(worker, link);
}

static int32_t begin_upload(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size) {
  if (size == 0 || size > VGPU_IMAGE_MAX) return INVALID_VALUE;
  if (!vgpu_code_take(worker, size)) return OUT_OF_MEMORY;
  struct vgpu_upload *upload = malloc(sizeof *upload);
  unsigned char *bytes = malloc(size);
  if (upload == NULL || bytes == NULL) {
    free(upload);
    free(bytes);
    vgpu_code_give(worker, size);
    return OUT_OF_MEMORY;
  }
  *upload = (struct vgpu_upload){.next = worker->code.uploads, .hash = *hash, .size = size, .bytes = bytes};
  worker->code.uploads = upload;
  return SUCCESS;
}

int32_t vgpu_host_image_piece(struct vgpu_worker *worker, const struct vgpu_send_image_piece *send,
                              struct vgpu_bulk *bulk) {
  struct vgpu_hash hash = {{send->hash_0, send->hash_1, send->hash_2, send->hash_3}};
  if (send->offset == 0) {
    vgpu_code_forget_upload(worker, &hash);
    int32_t result = begin_upload(worker, &hash, send->bytes);
    if (result != SUCCESS) return result;
  }
  struct vgpu_upload **link = find_upload(worker, &hash);
  struct vgpu_upload *upload = *link;
  if (upload == NULL || upload->have != send->offset || upload->size != send->bytes ||
      bulk->in_size > upload->size - upload->have || bulk->in_size == 0) {
    if (upload != NULL) drop_upload(worker, link);
    return INVALID_VALUE;
  }
  memcpy(upload->bytes + upload->have, bulk->in, bulk->in_size);
  upload->have += bulk->in_size;
  if (upload->have < upload->size) return SUCCESS;
  struct vgpu_hash made;
  vgpu_sha256(upload->bytes, upload->size, &made);
  if (memcmp(&made, &hash, sizeof made) != 0) {
    drop_upload(worker, link);
    return INVALID_VALUE;
  }
  vgpu_images_put(worker->code_options->images, &worker->peer, &hash, upload->bytes, upload->size);
  return SUCCESS;
}

/* Images travel alike, whoever loads them. */
int32_t vgpu_real_image_piece(struct vgpu_worker *worker, const struct vgpu_send_image_piece *send,
                              struct vgpu_bulk *bulk) {
  return vgpu_host_image_piece(worker, send, bulk);
}

unsigned char *vgpu_code_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size) {
  struct vgpu_upload *upload = *find_upload(worker, hash);
  if (upload == NULL || upload->size != size || upload->have != size) {
    if (size == 0 || size > vgpu_code_limit(worker)) return NULL;
    return vgpu_images_get(worker->code_options->images, &worker->peer, hash, size);
  }
  unsigned char *copy = malloc(size);
  if (copy != NULL) memcpy(copy, upload->bytes, size);
  return copy;
}

static struct vgpu_loaded *find_loaded(struct vgpu_worker *worker, const struct vgpu_hash *hash,
                                       uint64_t size, uint32_t architecture) {
  struct vgpu_loaded *loaded = worker->code.loaded;
  while (loaded != NULL && (loaded->size != size || loaded->architecture != architecture ||
                            memcmp(&loaded->hash, hash, sizeof *hash) != 0)) {
    loaded = loaded->next;
  }
  return loaded;
}

/* CUdevice_attribute numbers. */
enum { MAX_THREADS_PER_BLOCK = 1, SHARED_PER_BLOCK = 8, REGISTERS_PER_BLOCK = 12 };

static struct vgpu_program_target target_of(struct vgpu_worker *worker, uint32_t device) {
  const struct vgpu_device_profile *profile = &worker->profiles->devices[device];
  return (struct vgpu_program_target){.architecture = profile->compute_major * 10 + profile->compute_minor,
                                      .max_threads = profile->attributes[MAX_THREADS_PER_BLOCK],
                                      .shared_block = profile->attributes[SHARED_PER_BLOCK],
                                      .registers_block = profile->attributes[REGISTERS_PER_BLOCK],
                                      .memory_limit = vgpu_code_limit(worker) - worker->code.bytes};
}

int32_t vgpu_code_load(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size,
                       uint32_t device, struct vgpu_loaded **result, char *why, size_t why_size) {
  struct vgpu_program_target target = target_of(worker, device);
  struct vgpu_loaded *loaded = find_loaded(worker, hash, size, target.architecture);
  if (loaded != NULL) {
    loaded->users++;
    *result = loaded;
    return SUCCESS;
  }
  unsigned char *image = vgpu_code_image(worker, hash, size);
  if (image == NULL) return VGPU_CODE_MISSING;
  loaded = malloc(sizeof *loaded);
  if (loaded == NULL) {
    free(image);
    return OUT_OF_MEMORY;
  }
  *loaded =
      (struct vgpu_loaded){.hash = *hash, .size = size, .architecture = target.architecture, .users = 1};
  int32_t status = vgpu_program_read(image, size, &target, &loaded->program, why, why_size);
  free(image);
  if (status == SUCCESS && !vgpu_code_take(worker, loaded->program.bytes)) {
    vgpu_program_free(&loaded->program);
    status = OUT_OF_MEMORY;
  }
  if (status != SUCCESS) {
    free(loaded);
    return status;
  }
  loaded->next = worker->code.loaded;
  worker->code.loaded = loaded;
  *result = loaded;
  return SUCCESS;
}

void vgpu_code_release(struct vgpu_worker *worker, struct vgpu_loaded *loaded) {
  if (loaded == NULL || --loaded->users > 0) return;
  struct vgpu_loaded **link = &worker->code.loaded;
  while (*link != loaded) link = &(*link)->next;
  *link = loaded->next;
  vgpu_code_give(worker, loaded->program.bytes);
  vgpu_program_free(&loaded->program);
  free(loaded);
}
