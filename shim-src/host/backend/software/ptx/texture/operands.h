#ifndef VGPU_PTX_TEXTURE_OPERANDS_H
#define VGPU_PTX_TEXTURE_OPERANDS_H

/* K_TEXTURE and K_SURFACE: m is made of these. */
enum ptx_image_operation {
  IMAGE_SAMPLE,
  IMAGE_GATHER,
  IMAGE_ASK, /* txq, suq: the query is in bits 8 to 15 */
  SURFACE_LOAD,
  SURFACE_STORE,
  SURFACE_REDUCE, /* an enum ptx_atomic is in bits 4 to 7, as for atomics */
  IMAGE_TYPE,     /* istypep: to the predicate d */
};
#define IMAGE_OPERATION(m) ((m)&7u)
#define IMAGE_INTEGERS 8u /* coordinates are integers */
#define IMAGE_SURFACES 8u /* of IMAGE_TYPE: asks for a surface; otherwise for a texture */
#define IMAGE_ATOMIC_SHIFT 4u
#define IMAGE_QUESTION(m) ((m) >> 8 & 255u)
#define IMAGE_QUESTION_SHIFT 8u
#define IMAGE_AXES(m) ((m) >> 16 & 3u)
#define IMAGE_AXES_SHIFT 16u
#define IMAGE_LAYERED (1u << 18)
#define IMAGE_CUBE (1u << 19)
#define IMAGE_LEVEL (1u << 20)    /* the level of detail is given, */
#define IMAGE_GRADIENT (1u << 21) /* or follows from derivatives */
#define IMAGE_COMPONENT(m) ((m) >> 22 & 3u)
#define IMAGE_COMPONENT_SHIFT 22u
#define IMAGE_FORMATTED                                                                                      \
  (1u << 24)                    /* sust.p: values are converted, and x counts elements instead of bytes      \
                                 */
#define IMAGE_PACKED (1u << 25) /* two halves to a register */
#define IMAGE_OUTSIDE(m) ((m) >> 26 & 3u)
#define IMAGE_OUTSIDE_SHIFT 26u

enum ptx_outside { OUTSIDE_TRAP, OUTSIDE_CLAMP, OUTSIDE_ZERO };

enum ptx_question {
  ASK_WIDTH,
  ASK_HEIGHT,
  ASK_DEPTH,
  ASK_ARRAY_SIZE,
  ASK_LEVELS,
  ASK_SAMPLES,
  ASK_DATA_TYPE,
  ASK_ORDER,
  ASK_NORMALIZED,
  ASK_FILTER,
  ASK_ADDRESS_0,
  ASK_ADDRESS_1,
  ASK_ADDRESS_2,
  ASK_LAYOUT,
  ASK_UNNORMALIZED,
  QUESTIONS
};

/* Operands in the list; an operand that the instruction lacks is PTX_NONE. Results or values follow. */
enum ptx_image_operand {
  IMAGE_OBJECT,  /* 64 bits, as are samplers */
  IMAGE_SAMPLER, /* of an instruction that names both */
  IMAGE_LAYER,
  IMAGE_X,
  IMAGE_Y,
  IMAGE_Z,
  IMAGE_DETAIL,
  IMAGE_DX, /* three of each */
  IMAGE_DY = IMAGE_DX + 3,
  IMAGE_OFFSET = IMAGE_DY + 3,
  IMAGE_MORE = IMAGE_OFFSET + 3
};

#endif
