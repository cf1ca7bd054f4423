/* Addressing, filtering, levels: arithmetic only, without lanes. */
#ifndef VGPU_PTX_SAMPLE_H
#define VGPU_PTX_SAMPLE_H

#include "host/backend/software/ptx/texture.h"

/* Four channels: floats, or integers unchanged. Missing channels are 0, 0 and 1. */
union ptx_channels {
  float f[4];
  uint32_t u[4];
};

/* The settings that are the same for all samples of an instruction. */
struct ptx_reading {
  /* `image` is read as `sampler` says. They are the same unless an instruction names both. */
  const struct ptx_texture *image, *sampler;
  uint32_t axes; /* 1 to 3; a cube has 2 in its face */
  bool integers; /* coordinates count texels: no filter, no normalization */
  bool gather;   /* reads the four texels around, channel `component` of each */
  uint32_t component;
  /* filled by ptx_begin_reading */
  bool floats, filtered;
  uint8_t mode[3];
  const struct ptx_level *level;
  uint32_t size[3];
};

struct ptx_sample {
  uint32_t layer; /* of the image; for a cube layer * 6 + face */
  union {
    float f;
    int32_t i;
  } at[3];
  int32_t offset[3]; /* texels */
  float level;
};

bool ptx_reads_floats(const struct ptx_texture *texture);
/* Reads one texel. The caller has checked that it exists. */
void ptx_fetch(const struct ptx_texture *texture, const struct ptx_level *level, uint32_t x, uint32_t y,
               uint32_t z, union ptx_channels *to);
void ptx_border(const struct ptx_reading *reading, union ptx_channels *to);
void ptx_begin_reading(struct ptx_reading *reading);
/* Returns the level for a level of detail. *weight is the weight of the next level. */
uint32_t ptx_choose_level(const struct ptx_reading *reading, float detail, float *weight);
void ptx_read_level(struct ptx_reading *reading, uint32_t level);
void ptx_sample(struct ptx_reading *reading, const struct ptx_sample *sample, union ptx_channels *to);
/* Returns which face of a cube a direction meets. `within` is the place in the face, from 0 to 1. */
uint32_t ptx_cube_face(const float direction[3], float within[2]);

#endif
