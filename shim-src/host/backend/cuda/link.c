/* Links images with the linker of the host's driver. */
#include <stdlib.h>
#include <string.h>

#include "cuda_results.h"
#include "host/backend/common/link_inputs.h"
#include "host/backend/common/made_images.h"
#include "host/backend/cuda/load.h"
#include "host/backend/cuda/session.h"
#include "image/elf_text.h"

static int32_t add(const struct vgpu_driver_api *api, void *state, const struct vgpu_linked_input *input) {
  uint64_t length;
  /* The driver cannot use an image that a software device has linked, but it can use the text in it. */
  const char *text =
      input->type == VGPU_LINK_CUBIN ? vgpu_elf_text(input->bytes, input->size, &length) : NULL;
  if (text != NULL) {
    return VGPU_DRIVER(api, cuLinkAddData_v2, state, VGPU_LINK_PTX, (void *)(uintptr_t)text, length + 1,
                       input->name, 0, NULL, NULL);
  }
  return VGPU_DRIVER(api, cuLinkAddData_v2, state, (int32_t)input->type, (void *)(uintptr_t)input->bytes,
                     input->size, input->name, 0, NULL, NULL);
}

/* The result belongs to the link, so it is copied. */
static int32_t complete(struct vgpu_cuda_load *load, void *state) {
  void *image = NULL;
  int32_t result = VGPU_DRIVER(load->api, cuLinkComplete, state, &image, &load->linked);
  if (result != CUDA_SUCCESS) return result;
  if (load->linked == 0) return CUDA_ERROR_UNKNOWN;
  load->object = malloc(load->linked);
  if (load->object == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(load->object, image, load->linked);
  return CUDA_SUCCESS;
}

int32_t vgpu_cuda_link(struct vgpu_cuda_load *load) {
  void *state = NULL;
  int32_t result = VGPU_DRIVER(load->api, cuLinkCreate_v2, load->options.count, load->options.names,
                               load->options.values, &state);
  if (result != CUDA_SUCCESS) return result;
  const unsigned char *inputs = (const unsigned char *)load->image;
  struct vgpu_linked_input input;
  uint64_t offset = 0;
  while (result == CUDA_SUCCESS && vgpu_link_inputs_next(inputs, load->image_size, &offset, &input) == 1)
    result = add(load->api, state, &input);
  if (result == CUDA_SUCCESS) result = complete(load, state);
  VGPU_DRIVER(load->api, cuLinkDestroy, state);
  return result;
}

int32_t vgpu_cuda_link_images(struct vgpu_worker *worker, const struct vgpu_send_link_images *send,
                              struct vgpu_reply_link_images *reply, struct vgpu_bulk *bulk) {
  const struct vgpu_hash hash = {{send->hash_0, send->hash_1, send->hash_2, send->hash_3}};
  struct vgpu_cuda_load *load;
  int32_t result = vgpu_cuda_load(worker, VGPU_LOAD_LINK, send->context, &hash, send->bytes, bulk, &load,
                                  &reply->missing, &reply->result);
  if (result != CUDA_SUCCESS) return result;
  if (load != NULL && reply->result == CUDA_SUCCESS) {
    reply->bytes = load->linked;
    reply->result = vgpu_made_images_keep(worker, load->object, load->linked, &reply->number);
    load->object = NULL;
  }
  vgpu_cuda_load_end(worker, load, &reply->info_bytes, &reply->error_bytes, bulk);
  return CUDA_SUCCESS;
}
