/*
 * Arithmetic on 32 lanes at a time, compiled for several processors. Every operation is exact where the PTX
 * ISA says so, under the rounding mode and denormal handling in the instruction's `control` (fpu.h).
 */
#ifndef VGPU_PTX_ALU_H
#define VGPU_PTX_ALU_H

#include "host/backend/software/ptx/program.h"

enum ptx_operation {
  OP_NONE,
  OP_MOV,
  OP_ADD,
  OP_SUB,
  OP_MUL,
  OP_MUL_HI,
  OP_MUL_WIDE,
  OP_MAD,
  OP_MAD_HI,
  OP_MAD_WIDE,
  OP_FMA,
  OP_DIV,
  OP_REM,
  OP_ABS,
  OP_NEG,
  OP_MIN,
  OP_MAX,
  OP_AND,
  OP_OR,
  OP_XOR,
  OP_NOT,
  OP_CNOT,
  OP_SHL,
  OP_SHR,
  OP_POPC,
  OP_CLZ,
  OP_BREV,
  OP_BFE,
  OP_BFI,
  OP_BFIND,
  OP_PRMT,
  OP_LOP3,
  OP_SHF_L,
  OP_SHF_R,
  OP_SAD,
  OP_DP4A,
  OP_DP2A,
  OP_MUL24,
  OP_MAD24,
  OP_MUL24_HI,
  OP_MAD24_HI,
  OP_MAD24_HI_SAT,
  OP_SELP,
  OP_SLCT,
  OP_ADD_SAT,
  OP_SUB_SAT,
  OP_MAD_HI_SAT,
  OP_SATURATE,
  OP_RELU,
  OP_DIV_APPROX,
  OP_SQRT,
  OP_RCP,
  OP_RSQRT,
  OP_SIN,
  OP_COS,
  OP_LG2,
  OP_EX2,
  OP_TANH,
  OP_COPYSIGN,
  OP_PACK,
  OP_LOW,
  OP_HIGH,
  OP_CVT_PAIR,
  OP_FNS,
  OP_SZEXT,
  OP_BMSK,
  OP_VIDEO,
  OP_VIDEO_SIMD,
  OP_CVT_PACK,
  OP_OPERATIONS
};

/* m of OP_VIDEO_SIMD. */
enum {
  V_ADD,
  V_SUB,
  V_AVRG,
  V_ABSDIFF,
  V_MIN,
  V_MAX,
  V_EQ,
  V_NE,
  V_LT,
  V_LE,
  V_GT,
  V_GE,
  V_OPERATION = 15,
  V_QUAD = 16, /* four bytes; otherwise two halves */
  V_SIGNED_A = 32,
  V_SIGNED_B = 64,
  V_SIGNED_D = 128,
  V_SAT = 256,
  V_SUM = 512, /* results are added to c; otherwise they replace parts of it */
  V_MASK = 12, /* from this bit on, one bit for each part of d */
};

enum ptx_comparison {
  C_EQ,
  C_NE,
  C_LT,
  C_LE,
  C_GT,
  C_GE,
  C_EQU,
  C_NEU,
  C_LTU,
  C_LEU,
  C_GTU,
  C_GEU,
  C_NUM,
  C_NAN,
  C_FINITE,
  C_INFINITE,
  C_NUMBER,
  C_NOTANUMBER,
  C_NORMAL,
  C_SUBNORMAL,
  C_COMPARISONS
};

/* m of conversions and of float operations. */
enum {
  M_ROUND = 7,
  M_RN = 1,
  M_RZ,
  M_RM,
  M_RP,
  M_RNA, /* to floats */
  M_SAT = 8,
  M_FTZ = 16,
  M_RELU = 32,
  M_NAN = 64,
  M_XORSIGN = 128,
  M_WRAP = 256,
  M_SHIFTAMT = 512,
  M_SIGNED_A = 1024,
  M_SIGNED_B = 2048,
  M_HIGH = 4096,
  M_INTEGRAL = 8192,
};

/* How to find the places of 32 addresses in one range of memory. */
struct ptx_reach {
  uint64_t offset;        /* added to each address */
  uint64_t base;          /* subtracted from it; the result is the place in memory */
  uint64_t limit;         /* highest place that is allowed */
  uint64_t align;         /* bits that must not be set in an address */
  uint64_t lane_distance; /* distance between the local memories of two lanes */
  uint32_t shift;         /* log2 of the step from lane to lane in the frequent shape */
  uint32_t lane;          /* a lane that is active */
  bool narrow;            /* the addresses have 32 bits */
  bool loads;             /* bytes beside the accessed ones may be read */
};
/* A half is 16 lanes. */
enum {
  REACH_OUTSIDE = 1,   /* an address is out of bounds or not aligned */
  REACH_NO_HALVES = 2, /* the lanes of a half do not have the same place */
  REACH_NO_STEPS = 4,  /* the lanes of a half do not have a constant step */
};
/*
 * Writes the places of the lanes of `mask` to to[]; other lanes get an allowed place. Returns the shape of
 * the addresses.
 */
typedef uint32_t ptx_reach_lanes(uint64_t *to, const void *address, uint32_t mask,
                                 const struct ptx_reach *reach);
/*
 * Load registers from memory, and store them. The shape must hold for all lanes; `mask` chooses which are
 * written.
 */
typedef void ptx_gather(void *d, const unsigned char *memory, const uint64_t *to, uint32_t shape,
                        uint32_t mask);
typedef void ptx_scatter(unsigned char *memory, const void *a, const uint64_t *to, uint32_t shape,
                         uint32_t mask);
/* A range of memory, and how addresses of the guest become places in it. */
struct ptx_straight {
  unsigned char *memory;
  uint64_t size, base, offset; /* the offset is added to an address, and the base subtracted */
};
/* An access of 32 lanes that have one of two simple shapes. False: nothing was done. */
typedef bool ptx_straight_access(void *registers, const void *address, const struct ptx_straight *straight);
/* Copy one element of the lanes' vectors, which have `count` elements, to a register, and back. */
typedef void ptx_deal(void *d, const void *vectors, uint32_t count, uint32_t mask);
typedef void ptx_collect(void *vectors, const void *a, uint32_t count);
typedef void ptx_blend_lanes(void *d, const void *from, uint32_t mask);

enum ptx_beyond { AXIS_CLAMP, AXIS_BORDER, AXIS_WRAP, AXIS_MIRROR };
struct ptx_axis {
  uint32_t size;
  enum ptx_beyond turned; /* normalized coordinates: wrapped, mirrored, or as they are */
  enum ptx_beyond beyond; /* the texel that is read beyond the edge */
  bool integers, normalized, filtered;
};
struct ptx_texels {
  int32_t at[2][PTX_LANES]; /* -1: the border; the second only if it is filtered, as are weights */
  float weight[2][PTX_LANES];
};

struct ptx_alu {
  ptx_lanes *operation[OP_OPERATIONS][T_TYPES];
  ptx_lanes *convert[T_TYPES][T_TYPES]; /* [to][from]; 8-bit values lie in 16 bits */
  ptx_compare *compare[C_COMPARISONS][T_TYPES];
  ptx_compare_pair *compare_pair[C_COMPARISONS][T_TYPES];
  /* Write `yes` to the lanes of t, and 0 to the others: [register 1, 2, 4, 8]; pairs as ptx_compare_pair. */
  void (*spread[4])(void *d, uint64_t t, uint64_t yes);
  void (*spread_pair)(void *d, uint64_t t, uint64_t yes);
  /* d = c + a b, with rows (a multiple of 4), columns (a multiple of 8) and depth; d may be c */
  void (*matrix_f32)(float *d, const float *c, const float *a, const float *b, uint32_t rows,
                     uint32_t columns, uint32_t depth);
  void (*matrix_u32)(uint32_t *d, const uint32_t *c, const uint32_t *a, const uint32_t *b, uint32_t rows,
                     uint32_t columns, uint32_t depth);
  /* each element by fma, in order */
  void (*matrix_f64)(double *d, const double *c, const double *a, const double *b, uint32_t rows,
                     uint32_t columns, uint32_t depth);
  /* Transpose n rows (a multiple of 8) of k elements (a multiple of 4). */
  void (*turn_u32)(uint32_t *to, const uint32_t *from, uint32_t n, uint32_t k);
  void (*turn_u64)(uint64_t *to, const uint64_t *from, uint32_t n, uint32_t k);
  /* Converts elements of a matrix to floats (from 16 bits and less, or tf32) or to 32-bit integers. The count
   * is a multiple of 8. */
  void (*widen[T_TYPES])(uint32_t *to, const void *from, uint32_t count, bool negate);
  void (*narrow_f16)(uint16_t *to, const uint32_t *from, uint32_t count);
  ptx_reach_lanes *reach;
  ptx_straight_access *straight[2][2][4]; /* [store][32-bit addresses][bytes 1, 2, 4, 8]; NULL: none */
  ptx_gather *gather[4][2][4];            /* [memory 1, 2, 4, 8][signed][register 1, 2, 4, 8] */
  ptx_scatter *scatter[4][4];             /* [memory][register] */
  /* Vectors of 2, 4, 8, 16 bytes ([log2]) in memory order, each by one access (single.h). */
  ptx_gather *gather_whole[5];
  ptx_scatter *scatter_whole[5];
  ptx_deal *deal[4][2][4];
  ptx_collect *collect[4][4];
  ptx_blend_lanes *blend[4]; /* [register 1, 2, 4, 8] */
  /* alu_texture.h; offsets may be NULL */
  void (*texel_axis)(struct ptx_texels *to, const void *coordinates, const int32_t *offsets,
                     const struct ptx_axis *axis);
  /* Gives the places of texels in an image. Lanes in the returned mask have no texel, and get the first
   * place. */
  uint32_t (*texel_places)(uint64_t *to, const int32_t *x, const int32_t *y, const int32_t *z, uint32_t bytes,
                           uint64_t row, uint64_t slice);
  void (*texel_bytes)(uint32_t (*to)[PTX_LANES], const uint32_t *words, uint32_t channels, bool floats);
  void (*texel_add)(float (*sum)[PTX_LANES], const float (*texel)[PTX_LANES], const float *weight);
};

extern const struct ptx_alu ptx_alu_base, ptx_alu_v3, ptx_alu_v4;
const struct ptx_alu *ptx_alu_best(void);

#endif
