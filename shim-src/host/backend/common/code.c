#include "host/backend/common/code.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_handlers.h"
#include "cuda_results.h"
#include "host/session/images.h"
#include "host/session/worker.h"
#include "image/container.h"

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
  if (size == 0 || size > VGPU_IMAGE_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (!vgpu_code_take(worker, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgpu_upload *upload = malloc(sizeof *upload);
  unsigned char *bytes = malloc(size);
  if (upload == NULL || bytes == NULL) {
    free(upload);
    free(bytes);
    vgpu_code_give(worker, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *upload = (struct vgpu_upload){.next = worker->code.uploads, .hash = *hash, .size = size, .bytes = bytes};
  worker->code.uploads = upload;
  return CUDA_SUCCESS;
}

int32_t vgpu_common_image_piece(struct vgpu_worker *worker, const struct vgpu_send_image_piece *send,
                                struct vgpu_bulk *bulk) {
  struct vgpu_hash hash = {{send->hash_0, send->hash_1, send->hash_2, send->hash_3}};
  if (send->offset == 0) {
    vgpu_code_forget_upload(worker, &hash);
    int32_t result = begin_upload(worker, &hash, send->bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  struct vgpu_upload **link = find_upload(worker, &hash);
  struct vgpu_upload *upload = *link;
  if (upload == NULL || upload->have != send->offset || upload->size != send->bytes ||
      bulk->in_size > upload->size - upload->have || bulk->in_size == 0) {
    if (upload != NULL) drop_upload(worker, link);
    return CUDA_ERROR_INVALID_VALUE;
  }
  memcpy(upload->bytes + upload->have, bulk->in, bulk->in_size);
  upload->have += bulk->in_size;
  if (upload->have < upload->size) return CUDA_SUCCESS;
  struct vgpu_hash made;
  vgpu_sha256(upload->bytes, upload->size, &made);
  if (memcmp(&made, &hash, sizeof made) != 0) {
    drop_upload(worker, link);
    return CUDA_ERROR_INVALID_VALUE;
  }
  vgpu_images_put(worker->code_options->images, worker->slot, &worker->peer, &hash, upload->bytes,
                  upload->size);
  return CUDA_SUCCESS;
}

static struct vgpu_upload **find_finished(struct vgpu_worker *worker, const struct vgpu_hash *hash,
                                          uint64_t size) {
  struct vgpu_upload **link = find_upload(worker, hash), *upload = *link;
  return upload == NULL || upload->size != size || upload->have != size ? NULL : link;
}

static unsigned char *from_cache(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size) {
  if (size == 0 || size > vgpu_code_limit(worker)) return NULL;
  return vgpu_images_get(worker->code_options->images, worker->slot, &worker->peer, hash, size);
}

unsigned char *vgpu_code_take_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size) {
  struct vgpu_upload **link = find_finished(worker, hash, size);
  if (link == NULL) return from_cache(worker, hash, size);
  unsigned char *bytes = (*link)->bytes;
  (*link)->bytes = NULL;
  drop_upload(worker, link);
  return bytes;
}

unsigned char *vgpu_code_copy_image(struct vgpu_worker *worker, const struct vgpu_hash *hash, uint64_t size) {
  struct vgpu_upload **link = find_finished(worker, hash, size);
  if (link == NULL) return from_cache(worker, hash, size);
  unsigned char *copy = malloc(size);
  if (copy != NULL) memcpy(copy, (*link)->bytes, size);
  return copy;
}
