#ifndef VGPU_PTX_IMAGE_H
#define VGPU_PTX_IMAGE_H

#include "host/backend/software/ptx/run/warp.h"
#include "host/backend/software/ptx/texture/operands.h"
#include "host/backend/software/ptx/texture/sample.h"

/* 0 if the instruction lacks it. */
uint64_t ptx_image_operand(const struct place *at, uint32_t index, uint32_t lane, uint32_t bytes);
unsigned char *ptx_image_result(const struct place *at, uint32_t index, uint32_t lane, uint32_t bytes);
/* 0 if the instruction has no level of detail. */
float ptx_image_detail(const struct place *at, uint32_t lane, const struct ptx_texture *image,
                       const struct ptx_texture *sampler);

/* lanes_sample.c: one texture for all lanes. False: not possible for this instruction. */
bool ptx_sample_together(const struct place *at, uint32_t mask, const struct ptx_reading *reading);
/* surface.c: false: a fault was raised. */
bool ptx_surface(const struct place *at, uint32_t lane, const struct ptx_texture *surface);

#endif
