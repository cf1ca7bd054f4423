/* A lane's side of textures and surfaces. */
#ifndef VGPU_PTX_IMAGE_H
#define VGPU_PTX_IMAGE_H

#include "host/backend/software/ptx/run/warp.h"
#include "host/backend/software/ptx/texture/operands.h"
#include "host/backend/software/ptx/texture/sample.h"

/* A lane's operand of `bytes`; 0 when the instruction has none. */
uint64_t ptx_image_operand(const struct place *at, uint32_t index, uint32_t lane, uint32_t bytes);
/* The lane's result or value number `index`. */
unsigned char *ptx_image_result(const struct place *at, uint32_t index, uint32_t lane, uint32_t bytes);
/* The level of detail that the lane asks for; 0 when the instruction says none. */
float ptx_image_detail(const struct place *at, uint32_t lane, const struct ptx_texture *image,
                       const struct ptx_texture *sampler);

/* lanes_sample.c: all lanes' samples of one texture, where it has a way for them at once; false: it has not.
 */
bool ptx_sample_together(const struct place *at, uint32_t mask, const struct ptx_reading *reading);
/* surface.c: false: a fault was raised. */
bool ptx_surface(const struct place *at, uint32_t lane, const struct ptx_texture *surface);

#endif
