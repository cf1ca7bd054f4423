/* Lane operations for one kind of processor. meson compiles this file with PTX_VARIANT _base, _v3 and _v4. */
#include "host/backend/software/ptx/alu/lanes.h"

#include "host/backend/software/ptx/alu/alu_integer.h"
#include "host/backend/software/ptx/alu/alu_float.h"
#include "host/backend/software/ptx/alu/alu_function.h"
#include "host/backend/software/ptx/alu/alu_half.h"
#include "host/backend/software/ptx/alu/alu_convert.h"
#include "host/backend/software/ptx/alu/alu_compare.h"
#include "host/backend/software/ptx/alu/alu_matrix.h"
#include "host/backend/software/ptx/alu/alu_memory.h"
#include "host/backend/software/ptx/alu/alu_texture.h"

#define SIX(name)                                                                                            \
  {                                                                                                          \
    [T_U16] = name##_u16, [T_S16] = name##_s16, [T_U32] = name##_u32, [T_S32] = name##_s32,                  \
    [T_U64] = name##_u64, [T_S64] = name##_s64
#define FLOATS(name) [T_F32] = name##_f32, [T_F64] = name##_f64
#define HALVES(name)                                                                                         \
  [T_F16] = name##_f16, [T_F16X2] = name##_f16x2, [T_BF16] = name##_bf16, [T_BF16X2] = name##_bf16x2
#define BITS(name) [T_B16] = name##_b16, [T_B32] = name##_b32, [T_B64] = name##_b64
/* Types that are only bits. */
#define ALL_BITS(name)                                                                                       \
  BITS(name), [T_U16] = name##_b16, [T_S16] = name##_b16, [T_U32] = name##_b32, [T_S32] = name##_b32,        \
              [T_U64] = name##_b64, [T_S64] = name##_b64, [T_F16] = name##_b16, [T_BF16] = name##_b16,       \
              [T_F16X2] = name##_b32, [T_BF16X2] = name##_b32, [T_F32] = name##_b32, [T_F64] = name##_b64,   \
              [T_U16X2] = name##_b32, [T_S16X2] = name##_b32, [T_TF32] = name##_b32, [T_B8] = name##_b16,    \
              [T_U8] = name##_b16, [T_S8] = name##_b16

#define FROM_ALL(to)                                                                                         \
  [T_U8] = cvt_##to##_u8, [T_S8] = cvt_##to##_s8, [T_U16] = cvt_##to##_u16, [T_S16] = cvt_##to##_s16,        \
  [T_U32] = cvt_##to##_u32, [T_S32] = cvt_##to##_s32, [T_U64] = cvt_##to##_u64, [T_S64] = cvt_##to##_s64,    \
  [T_F16] = cvt_##to##_f16, [T_BF16] = cvt_##to##_bf16, [T_F32] = cvt_##to##_f32, [T_F64] = cvt_##to##_f64

#define COMPARE_INTEGERS(name)                                                                               \
  [T_U16] = name##_u16, [T_S16] = name##_s16, [T_U32] = name##_u32, [T_S32] = name##_s32,                    \
  [T_U64] = name##_u64, [T_S64] = name##_s64, [T_B16] = name##_u16, [T_B32] = name##_u32,                    \
  [T_B64] = name##_u64
#define COMPARE_FLOATS(name)                                                                                 \
  [T_F32] = name##_f32, [T_F64] = name##_f64, [T_F16] = name##_f16, [T_BF16] = name##_bf16
#define COMPARE_PAIRS(name)                                                                                  \
  { [T_F16X2] = name##_f16x2, [T_BF16X2] = name##_bf16x2 }

const struct ptx_alu PTX_VARIANT_NAME(ptx_alu) = {.operation = {[OP_MOV] = {ALL_BITS(mov)},
                                                                [OP_ADD] = SIX(add),
                                                                FLOATS(add),
                                                                HALVES(add),
                                                                [T_U16X2] = add_u16x2,
                                                                [T_S16X2] = add_u16x2},
                                                  [OP_SUB] = SIX(sub),
                                                  FLOATS(sub),
                                                  HALVES(sub)},
                     [OP_MUL] = SIX(mul), FLOATS(mul), HALVES(mul)
}
, [OP_MUL_HI] = SIX(mul_hi)
}
,
    [OP_MUL_WIDE] =
        {[T_U16] = mul_wide_u16, [T_S16] = mul_wide_s16, [T_U32] = mul_wide_u32, [T_S32] = mul_wide_s32},
    [OP_MAD] = SIX(mad)
}
, [OP_MAD_HI] = SIX(mad_hi)
}
,
    [OP_MAD_WIDE] =
        {[T_U16] = mad_wide_u16, [T_S16] = mad_wide_s16, [T_U32] = mad_wide_u32, [T_S32] = mad_wide_s32},
    [OP_FMA] = {FLOATS(fma), HALVES(fma)}, [OP_DIV] = SIX(div), FLOATS(div)
}
, [OP_REM] = SIX(rem)
}
, [OP_ABS] = {[T_S16] = abs_s16, [T_S32] = abs_s32, [T_S64] = abs_s64, FLOATS(abs), HALVES(abs)},
  [OP_NEG] = {[T_S16] = neg_s16, [T_S32] = neg_s32, [T_S64] = neg_s64, FLOATS(neg), HALVES(neg)},
  [OP_MIN] = SIX(min), FLOATS(min), HALVES(min), [T_U16X2] = min_u16x2, [T_S16X2] = min_s16x2
}
, [OP_MAX] = SIX(max), FLOATS(max), HALVES(max), [T_U16X2] = max_u16x2, [T_S16X2] = max_s16x2
}
, [OP_AND] = {BITS(and)}, [OP_OR] = {BITS(or)}, [OP_XOR] = {BITS(xor)}, [OP_NOT] = {BITS(not )},
  [OP_CNOT] = {BITS(cnot)}, [OP_SHL] = {BITS(shl)},
  [OP_SHR] = {[T_B16] = shr_u16, [T_B32] = shr_u32, [T_B64] = shr_u64, [T_U16] = shr_u16, [T_U32] = shr_u32,
              [T_U64] = shr_u64, [T_S16] = shr_s16, [T_S32] = shr_s32, [T_S64] = shr_s64},
  [OP_POPC] = {[T_B32] = popc_b32, [T_B64] = popc_b64}, [OP_CLZ] = {[T_B32] = clz_b32, [T_B64] = clz_b64},
  [OP_BREV] = {[T_B32] = brev_b32, [T_B64] = brev_b64},
  [OP_BFE] = {[T_U32] = bfe_u32, [T_S32] = bfe_s32, [T_U64] = bfe_u64, [T_S64] = bfe_s64},
  [OP_BFI] = {[T_B32] = bfi_b32, [T_B64] = bfi_b64},
  [OP_BFIND] = {[T_U32] = bfind_u32, [T_S32] = bfind_s32, [T_U64] = bfind_u64, [T_S64] = bfind_s64},
  [OP_PRMT] = {[T_B32] = prmt_b32}, [OP_LOP3] = {[T_B32] = lop3_b32}, [OP_SHF_L] = {[T_B32] = shf_l_b32},
  [OP_SHF_R] = {[T_B32] = shf_r_b32}, [OP_SAD] = SIX(sad)
}
, [OP_DP4A] = {[T_B32] = dp4a_b32}, [OP_DP2A] = {[T_B32] = dp2a_b32},
  [OP_MUL24] = {[T_U32] = mul24_u32, [T_S32] = mul24_s32},
  [OP_MAD24] = {[T_U32] = mad24_u32, [T_S32] = mad24_s32},
  [OP_MUL24_HI] = {[T_U32] = mul24_hi_u32, [T_S32] = mul24_hi_s32},
  [OP_MAD24_HI_SAT] = {[T_S32] = mad24_hi_sat_s32},
  [OP_MAD24_HI] = {[T_U32] = mad24_hi_u32, [T_S32] = mad24_hi_s32}, [OP_SELP] = {ALL_BITS(selp)},
  /* by the type of c, and the operands' size: T_S* with an integer c, T_F* with a float */
    [OP_SLCT] = {[T_S16] = slct_s_b16, [T_S32] = slct_s_b32, [T_S64] = slct_s_b64,
                 [T_F16] = slct_f_b16, [T_F32] = slct_f_b32, [T_F64] = slct_f_b64},
  [OP_ADD_SAT] = {[T_S32] = add_sat_s32}, [OP_SUB_SAT] = {[T_S32] = sub_sat_s32},
  [OP_MAD_HI_SAT] = {[T_S32] = mad_hi_sat_s32}, [OP_SATURATE] = {[T_F32] = saturate_f32},
  [OP_RELU] = {[T_F32] = relu_f32}, [OP_DIV_APPROX] = {[T_F32] = div_approx_f32}, [OP_SQRT] = {FLOATS(sqrt)},
  [OP_RCP] = {FLOATS(rcp)}, [OP_RSQRT] = {FLOATS(rsqrt)}, [OP_SIN] = {[T_F32] = sin_f32},
  [OP_COS] = {[T_F32] = cos_f32}, [OP_LG2] = {[T_F32] = lg2_f32}, [OP_EX2] = {[T_F32] = ex2_f32, HALVES(ex2)},
  [OP_TANH] = {[T_F32] = tanh_f32, HALVES(tanh)}, [OP_COPYSIGN] = {FLOATS(copysign)},
  [OP_PACK] = {[T_B16] = pack_b16, [T_B32] = pack_b32, [T_B64] = pack_b64},
  [OP_LOW] = {[T_B32] = low_b32, [T_B64] = low_b64}, [OP_HIGH] = {[T_B32] = high_b32, [T_B64] = high_b64},
  [OP_CVT_PAIR] = {[T_F16X2] = cvt_pair_f16x2,
                   [T_BF16X2] = cvt_pair_bf16x2,
                   [T_E4M3X2] = cvt_pair_e4m3x2,
                   [T_E5M2X2] = cvt_pair_e5m2x2},
  [OP_FNS] = {[T_B32] = fns_b32}, [OP_SZEXT] = {[T_U32] = szext_u32, [T_S32] = szext_s32},
  [OP_BMSK] = {[T_B32] = bmsk_b32}, [OP_VIDEO] = {[T_B32] = video_b32},
  [OP_VIDEO_SIMD] = {[T_B32] = video_simd_b32}, [OP_CVT_PACK] = {[T_B32] = cvt_pack_b32},
}
,
    .convert =
        {
            [T_U8] = {FROM_ALL(u8)},
            [T_S8] = {FROM_ALL(s8)},
            [T_U16] = {FROM_ALL(u16)},
            [T_S16] = {FROM_ALL(s16)},
            [T_U32] = {FROM_ALL(u32)},
            [T_S32] = {FROM_ALL(s32), [T_TF32] = cvt_s32_f32_fast_rz},
            [T_U64] = {FROM_ALL(u64)},
            [T_S64] = {FROM_ALL(s64)},
            [T_F16] = {FROM_ALL(f16)},
            [T_BF16] = {FROM_ALL(bf16)},
            [T_F32] = {FROM_ALL(f32)},
            [T_F64] = {FROM_ALL(f64)},
            [T_TF32] = {[T_F32] = cvt_tf32_f32},
            [T_F16X2] = {[T_E4M3X2] = cvt_f16x2_e4m3x2, [T_E5M2X2] = cvt_f16x2_e5m2x2},
            [T_E4M3X2] = {[T_F16X2] = cvt_e4m3x2_f16x2},
            [T_E5M2X2] = {[T_F16X2] = cvt_e5m2x2_f16x2},
},
    .matrix_f32 = matrix_f32, .matrix_f64 = matrix_f64, .matrix_u32 = matrix_u32, .turn_u32 = turn_u32,
    .turn_u64 = turn_u64, .narrow_f16 = narrow_f16, .reach = reach_lanes,
    .straight = {{ALL_STRAIGHT(load_wide), ALL_STRAIGHT(load_narrow)},
                 {ALL_STRAIGHT(store_wide), ALL_STRAIGHT(store_narrow)}},
    .gather = {ALL_LOADS(gather)}, .scatter = {ALL_STORES(scatter)}, .gather_whole = {ALL_WHOLE_LOADS},
    .scatter_whole = {ALL_WHOLE_STORES}, .deal = {ALL_LOADS(deal)}, .collect = {ALL_STORES(collect)},
    .blend = {[1] = blend_u16, [2] = blend_u32, [3] = blend_u64}, .texel_axis = texel_axis,
    .texel_places = texel_places, .texel_bytes = texel_bytes, .texel_add = texel_add,
    .widen = {[T_F16] = widen_f16,   [T_BF16] = widen_bf16, [T_TF32] = widen_tf32, [T_E4M3] = widen_e4m3,
              [T_E5M2] = widen_e5m2, [T_S8] = widen_s8,     [T_U8] = widen_u8},
    .compare_pair =
        {
            [C_EQ] = COMPARE_PAIRS(eq),   [C_NE] = COMPARE_PAIRS(ne),   [C_LT] = COMPARE_PAIRS(lt),
            [C_LE] = COMPARE_PAIRS(le),   [C_GT] = COMPARE_PAIRS(gt),   [C_GE] = COMPARE_PAIRS(ge),
            [C_EQU] = COMPARE_PAIRS(equ), [C_NEU] = COMPARE_PAIRS(neu), [C_LTU] = COMPARE_PAIRS(ltu),
            [C_LEU] = COMPARE_PAIRS(leu), [C_GTU] = COMPARE_PAIRS(gtu), [C_GEU] = COMPARE_PAIRS(geu),
            [C_NUM] = COMPARE_PAIRS(num), [C_NAN] = COMPARE_PAIRS(nan),
},
    .spread = {[1] = spread_u16, [2] = spread_u32, [3] = spread_u64}, .spread_pair = spread_pair,
    .compare = {
        [C_EQ] = {COMPARE_INTEGERS(eq), COMPARE_FLOATS(eq)},
        [C_NE] = {COMPARE_INTEGERS(ne), COMPARE_FLOATS(ne)},
        [C_LT] = {COMPARE_INTEGERS(lt), COMPARE_FLOATS(lt)},
        [C_LE] = {COMPARE_INTEGERS(le), COMPARE_FLOATS(le)},
        [C_GT] = {COMPARE_INTEGERS(gt), COMPARE_FLOATS(gt)},
        [C_GE] = {COMPARE_INTEGERS(ge), COMPARE_FLOATS(ge)},
        [C_EQU] = {COMPARE_FLOATS(equ)},
        [C_NEU] = {COMPARE_FLOATS(neu)},
        [C_LTU] = {COMPARE_FLOATS(ltu)},
        [C_LEU] = {COMPARE_FLOATS(leu)},
        [C_GTU] = {COMPARE_FLOATS(gtu)},
        [C_GEU] = {COMPARE_FLOATS(geu)},
        [C_NUM] = {COMPARE_FLOATS(num)},
        [C_NAN] = {COMPARE_FLOATS(nan)},
        [C_FINITE] = {FLOATS(finite)},
        [C_INFINITE] = {FLOATS(infinite)},
        [C_NUMBER] = {FLOATS(number)},
        [C_NOTANUMBER] = {FLOATS(notanumber)},
        [C_NORMAL] = {FLOATS(normal)},
        [C_SUBNORMAL] = {FLOATS(subnormal)},
},
}
;
