#ifndef VGPU_PTX_IMAGE_H
#define VGPU_PTX_IMAGE_H

#include "host/backend/software/ptx/run/warp.h"
#include "host/backend/software/ptx/texture/operands.h"
#include "host/backend/software/ptx/texture/sample.h"

/* Returns a lane's operand of `bytes` bytes; 0 if the instruction lacks it. */
uint64_t ptx_image_operand(const struct place *at, uint32_t index, uint32_t lane, uint32_t bytes);
/* Returns the place of the lane's result or value number `index`. */
unsigned char *ptx_image_result(const struct place *at, uint32_t index, uint32_t lane, uint32_t bytes);
/* Returns the level of detail of the lane; 0 if the instruction has none. */
float ptx_image_detail(const struct place *at, uint32_t lane, const struct ptx_texture *image,
                       const struct ptx_texture *sampler);

/* lanes_sample.c: samples one texture for all lanes at once. False: not possible for this instruction. */
bool ptx_sample_together(const struct place *at, uint32_t mask, const struct ptx_reading *reading);
/* surface.c: false: a fault was raised. */
bool ptx_surface(const struct place *at, uint32_t lane, const struct ptx_texture *surface);

#endif
