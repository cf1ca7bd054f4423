#ifndef VGPU_PTX_MODES_H
#define VGPU_PTX_MODES_H

/* K_LOAD, K_STORE: */
#define ML_NARROW 1u /* the address has 32 bits */
#define ML_SIGNED 2u
#define ML_REGISTER(m) ((m) >> 4 & 15u) /* bytes of each register */
#define ML_VOLATILE 256u                /* also relaxed, acquire, release: other threads may access it */

#define MF_SC 1u /* K_FENCE: sequentially consistent; otherwise acquire and release */

enum { STACK_ALLOCATE, STACK_SAVE, STACK_RESTORE };

enum ptx_atomic { A_AND, A_OR, A_XOR, A_CAS, A_EXCH, A_ADD, A_INC, A_DEC, A_MIN, A_MAX, A_ATOMICS, A_ARRIVE };
/* A_ARRIVE is an operation of mbarriers: decode_mbarrier.c */
#define MA_OPERATION(m) ((m) >> 4 & 15u)
#define MA_FLUSHES 256u /* sums of f32 in device memory flush subnormals, as the ISA says */

enum { BAR_SYNC, BAR_ARRIVE, BAR_POPC, BAR_AND, BAR_OR };
#define MB_NEGATED 8u
#define CLUSTER_BARRIER 16u /* only in checks: no instruction uses this number */
#define PTX_BARRIERS 17u

enum { SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX };
enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };
#define MW_SYNC 16u /* has a member mask, in x */
#define MW_NEGATED 32u
#define MW_NAN 64u        /* floats: a NaN of any lane is the result */
#define MW_MAGNITUDE 128u /* floats: without their signs */

/*
 * The weight of one repetition of a loop that may wait: with a plain load, with an atomic or ordered load,
 * with a nanosleep. SPIN_CLOCK is no weight: the loop has read the clock.
 */
enum { SPIN_LOAD = 1, SPIN_ORDERED = 256, SPIN_SLEEP = 2048, SPIN_CLOCK = 1 << 16, SPIN_MOST = 1 << 17 };

enum { P_AND, P_OR, P_XOR, P_NOT, P_MOV };

/* Functions that CUDA provides. From BUILTIN_BUFFER on: what kernels launch, run/children.c. */
enum ptx_builtin {
  BUILTIN_NONE,
  BUILTIN_VPRINTF,
  BUILTIN_MALLOC,
  BUILTIN_FREE,
  BUILTIN_ASSERT,
  BUILTIN_BUFFER,
  BUILTIN_BUFFER_V2,
  BUILTIN_LAUNCH,
  BUILTIN_LAUNCH_V2,
  BUILTIN_MAKE,  /* a stream or an event: a number */
  BUILTIN_ORDER, /* order of streams and events, which children.c keeps in any case */
  BUILTIN_LAST_ERROR,
  BUILTIN_PEEK_ERROR,
  BUILTIN_ERROR_TEXT,
  BUILTIN_ERROR_NAME,
  BUILTIN_RUNTIME_MALLOC,
  BUILTIN_RUNTIME_FREE,
  BUILTIN_COPY,
  BUILTIN_FILL,
  BUILTIN_SET_CONDITIONAL,
  /* From here on: run/device_calls.c. */
  BUILTIN_COPY_ROWS,
  BUILTIN_COPY_BOX,
  BUILTIN_FILL_ROWS,
  BUILTIN_FILL_BOX,
  BUILTIN_DEVICE,
  BUILTIN_DEVICE_COUNT,
  BUILTIN_DEVICE_ATTRIBUTE,
  BUILTIN_DEVICE_LIMIT,
  BUILTIN_CACHE_CONFIG,
  BUILTIN_SHARED_CONFIG,
  BUILTIN_RUNTIME_VERSION,
  BUILTIN_NOT_OFFERED, /* a call that returns cudaErrorNotSupported */
};

#endif
