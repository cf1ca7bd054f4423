/* Every input must have a PTX text, or be the only one. cubin_write.h writes the result. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/backend/common/link_inputs.h"
#include "host/backend/common/made_images.h"
#include "host/backend/software/code/cubin_write.h"
#include "host/backend/software/code/device_runtime.h"
#include "host/backend/software/code/module.h"
#include "image/link_ptx.h"

struct linking {
  const struct vgpu_program_target *target;
  struct vgpu_ptx_text *texts;
  char **made; /* texts that were taken from images, for free() */
  uint32_t count;
  bool device_runtime;                   /* libcudadevrt.a was given */
  struct vgpu_linked_input machine_code; /* an input that has no text; `bytes` NULL: all have one */
  char *why;
  size_t why_size;
};

static void add_text(struct linking *linking, const char *text, size_t size, const char *name) {
  linking->texts[linking->count++] = (struct vgpu_ptx_text){.text = text, .size = size, .name = name};
}

static int32_t refuse(struct linking *linking, const struct vgpu_linked_input *input, const char *what) {
  snprintf(linking->why, linking->why_size,
           "'%s' cannot be linked: %s needs NVIDIA's linker, which a simulated device does not have",
           input->name, what);
  return CUDA_ERROR_NOT_SUPPORTED;
}

static int32_t add_image(struct linking *linking, const struct vgpu_linked_input *input) {
  unsigned char *copy = input->size > linking->target->memory_limit ? NULL : malloc(input->size + 1);
  if (copy == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(copy, input->bytes, input->size + 1);
  struct vgpu_program program;
  int32_t result =
      vgpu_program_read(copy, input->size, linking->target, &program, linking->why, linking->why_size);
  if (result != CUDA_SUCCESS) return result;
  if (program.ptx == NULL) {
    linking->machine_code = *input;
  } else {
    linking->made[linking->count] = program.ptx;
    add_text(linking, program.ptx, strlen(program.ptx), input->name);
    program.ptx = NULL;
  }
  vgpu_program_free(&program);
  return CUDA_SUCCESS;
}

static int32_t add_input(struct linking *linking, const struct vgpu_linked_input *input) {
  switch (input->type) {
    case VGPU_LINK_PTX:
      add_text(linking, (const char *)input->bytes, strnlen((const char *)input->bytes, input->size),
               input->name);
      return CUDA_SUCCESS;
    case VGPU_LINK_CUBIN:
    case VGPU_LINK_FATBIN:
      return add_image(linking, input);
    case VGPU_LINK_LIBRARY:
      if (!vgpu_is_device_runtime(input->bytes, input->size)) return refuse(linking, input, "a library");
      linking->device_runtime = true;
      return CUDA_SUCCESS;
    case VGPU_LINK_OBJECT:
      return refuse(linking, input, "an object");
    default:
      return refuse(linking, input, "NVVM code");
  }
}

static bool needs_runtime(const struct linking *linking) {
  for (uint32_t i = 0; linking->device_runtime && i < linking->count; i++) {
    if (vgpu_uses_device_runtime(linking->texts[i].text)) return true;
  }
  return false;
}

/* Joins the texts to one: *text is zero-terminated, for free(). Returns a CUresult. */
static int32_t join(struct linking *linking, char **text) {
  if (needs_runtime(linking))
    add_text(linking, vgpu_device_runtime, strlen(vgpu_device_runtime), "the device runtime");
  size_t size;
  if (linking->count == 1) *text = strndup(linking->texts[0].text, linking->texts[0].size);
  else *text = vgpu_ptx_link(linking->texts, linking->count, &size, linking->why, linking->why_size);
  if (*text != NULL) return CUDA_SUCCESS;
  return linking->count == 1 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

static int32_t write_image(struct linking *linking, char *text, unsigned char **image, uint64_t *size) {
  struct vgpu_program program;
  int32_t result = vgpu_program_read((unsigned char *)text, strlen(text), linking->target, &program,
                                     linking->why, linking->why_size);
  if (result != CUDA_SUCCESS) return result;
  *image = vgpu_cubin_write(&program, linking->target, size, linking->why, linking->why_size);
  vgpu_program_free(&program);
  return *image == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* The only input is machine code: it is the result. */
static int32_t copy_only(const struct vgpu_linked_input *input, unsigned char **image, uint64_t *size) {
  *image = malloc(input->size);
  if (*image == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(*image, input->bytes, input->size);
  *size = input->size;
  return CUDA_SUCCESS;
}

static int32_t link_all(struct linking *linking, const unsigned char *inputs, uint64_t bytes,
                        unsigned char **image, uint64_t *size) {
  struct vgpu_linked_input input;
  uint64_t offset = 0;
  uint32_t images = 0;
  int32_t result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && vgpu_link_inputs_next(inputs, bytes, &offset, &input) == 1) {
    result = add_input(linking, &input);
    images += input.type != VGPU_LINK_LIBRARY;
  }
  if (result != CUDA_SUCCESS) return result;
  if (images == 0) return CUDA_ERROR_INVALID_VALUE;
  if (linking->machine_code.bytes != NULL) {
    return images == 1 ? copy_only(&linking->machine_code, image, size)
                       : refuse(linking, &linking->machine_code, "machine code without PTX");
  }
  char *text = NULL;
  result = join(linking, &text);
  return result == CUDA_SUCCESS ? write_image(linking, text, image, size) : result;
}

static int32_t link_inputs(struct vgpu_worker *worker, uint32_t device, const unsigned char *inputs,
                           uint64_t bytes, uint64_t *number, uint64_t *size, char *why, size_t why_size) {
  const struct vgpu_program_target target = vgpu_programs_target(worker, device);
  uint32_t count = vgpu_link_inputs_count(inputs, bytes);
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  struct linking linking = {.target = &target,
                            .texts = calloc(count + 1, sizeof *linking.texts), /* and the device runtime */
                            .made = calloc(count, sizeof *linking.made),
                            .why = why,
                            .why_size = why_size};
  unsigned char *image = NULL;
  int32_t result = CUDA_ERROR_OUT_OF_MEMORY;
  if (linking.texts != NULL && linking.made != NULL) result = link_all(&linking, inputs, bytes, &image, size);
  for (uint32_t i = 0; linking.made != NULL && i < count; i++) free(linking.made[i]);
  free(linking.made);
  free(linking.texts);
  return result == CUDA_SUCCESS ? vgpu_made_images_keep(worker, image, *size, number) : result;
}

int32_t vgpu_software_link_images(struct vgpu_worker *worker, const struct vgpu_send_link_images *send,
                                  struct vgpu_reply_link_images *reply, struct vgpu_bulk *bulk) {
  const struct vgpu_load_reply answer = {&reply->result, &reply->missing, &reply->info_bytes,
                                         &reply->error_bytes};
  uint32_t device = vgpu_programs_device(worker, send->context);
  if (device == UINT32_MAX) return CUDA_ERROR_INVALID_CONTEXT;
  const struct vgpu_hash hash = {{send->hash_0, send->hash_1, send->hash_2, send->hash_3}};
  char why[512] = "";
  unsigned char *inputs = vgpu_code_take_image(worker, &hash, send->bytes);
  int32_t result = VGPU_CODE_MISSING;
  if (inputs != NULL)
    result = link_inputs(worker, device, inputs, send->bytes, &reply->number, &reply->bytes, why, sizeof why);
  free(inputs);
  return vgpu_code_answer_load(answer, result, result == CUDA_SUCCESS ? "" : why, bulk);
}
