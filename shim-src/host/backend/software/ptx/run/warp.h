#ifndef VGPU_PTX_WARP_H
#define VGPU_PTX_WARP_H

#include <pthread.h>
#include <string.h>

#include "host/backend/software/ptx/alu/alu.h"
#include "host/backend/software/ptx/modes.h"
#include "host/backend/software/ptx/program.h"
#include "host/backend/software/ptx/texture.h"

#define FULL 0xffffffffu
#define PTX_CLUSTER_MOST 16u
#define MAX_DEPTH 1024 /* of calls and nested divergence in a warp */

/* A function's registers for one warp. The parameters of its calls are in front of them. */
struct frame {
  struct frame *next; /* when free */
  struct frame *made; /* frame that its worker made before this one */
  uint32_t users;     /* count of splits that use it */
  uint32_t number;    /* of the function */
  uint32_t depth;
  uint32_t local_base;
  bool settled; /* the results of the first instructions are in its registers: settle.c */
  bool grows;   /* lanes have allocated memory after the function's own */
  const struct ptx_function *function;
  uint32_t grown[PTX_LANES]; /* bytes allocated, if it grows: stack.c */
  _Alignas(64) unsigned char registers[];
};

/* SPLIT_EVENT: waits at an instruction until an event makes it try again. */
enum split_state { SPLIT_READY, SPLIT_BARRIER, SPLIT_WARP, SPLIT_JOIN, SPLIT_EVENT };

/*
 * Lanes of a warp at the same instruction. When they diverge, each part becomes a split of its own; the old
 * one is their parent and continues at `reconvergence` with the lanes that came. Splits run in turn, so that
 * a lane that waits for another one does not wait forever; for the same reason see ptx_release.
 */
struct split {
  struct split *parent;
  struct split *made; /* split that was made before this one for its warp */
  struct frame *frame;
  uint32_t mask, pc;
  uint32_t reconvergence; /* in its parent's code; PTX_NO_PC: where the function returns */
  uint32_t arrived, children;
  uint32_t spun; /* how often a loop that may wait was repeated, see SPIN_* */
  uint8_t state;
  uint8_t barrier; /* where it waits in SPLIT_BARRIER */
  bool timed;      /* the last repetition has read the clock */
  uint64_t look;   /* worker.looks when ptx_region_waiting() last came here */
};

struct worker;
struct block;

/* A turn uses two cache lines, the first one and that of `own`: a block's registers can fill the L1 cache. */
struct warp {
  _Alignas(64) struct block *block;
  uint32_t number;
  uint32_t exists, exited; /* lanes */
  uint32_t leaf_count, at;
  uint32_t at_cluster; /* lanes at the cluster's barrier, in a phase that is not over */
  bool fresh;          /* it has not begun, and has no leaf yet */
  struct split *free_splits;
  struct frame *frame; /* while compiled code runs the block: of a warp that waits at a barrier; else NULL */
  struct split *leaves[PTX_LANES];
  _Alignas(64) struct split own; /* the first split that it takes */
  struct split *made;            /* all others, in use or free */
  uint32_t split_count;
  uint32_t spun, seen;              /* SPIN_* counts of the warp while it has no split */
  uint64_t products;                /* count of wgmma instructions that it has run */
  uint16_t launch_error[PTX_LANES]; /* cudaError_t of the last launch from here that failed */
  uint32_t tid[3][PTX_LANES];
};

struct barrier {
  uint32_t arrived;  /* threads */
  uint32_t expected; /* threads; 0: all of the block */
  uint32_t count;    /* count of true predicates */
  uint32_t asked;    /* threads that gave a predicate */
};

/* Blocks that are resident together and can use each other's shared memory. */
struct cluster {
  struct block *blocks[PTX_CLUSTER_MOST]; /* by rank */
  uint32_t count;
  uint32_t arrived; /* threads at the cluster's barrier */
  struct cluster *next;
};

struct block {
  struct worker *worker;
  struct cluster *cluster; /* `alone`, or the cluster that it is in */
  struct cluster alone;
  bool over;
  bool waits;  /* a loop may have waited for another block, see resident_blocks.h */
  bool events; /* a split may be in SPLIT_EVENT */
  bool timed;  /* a loop has read the clock again and again: the block may wait until a time */
  struct launch_state *launch;
  uint32_t id[3];
  struct warp *warps;
  uint32_t warp_count, threads, live;
  uint32_t together;     /* where all warps continue in compiled code; PTX_NO_PC: they have splits */
  unsigned char *shared; /* in shared_memory, aligned */
  void *shared_memory;
  unsigned char *local;
  struct barrier barriers[PTX_BARRIERS];
  uint32_t arrived_at;       /* bit n: threads have arrived at barrier n */
  struct block_check *check; /* NULL: no checks */
  struct block *next;
};

struct launch_state {
  const struct ptx_module *module;
  uint32_t function; /* number of the kernel's */
  const struct ptx_kernel_info *info;
  const struct ptx_launch *launch;
  uint32_t shared_bytes, dynamic_offset;
  uint32_t own_shared;      /* without the reserved part, */
  uint32_t reserved_offset; /* which begins here */
  uint32_t local_bytes;     /* per thread */
  bool rows;                /* each row of the block has a multiple of 16 threads */
  uint32_t threads;         /* that run blocks, at most */
  uint64_t frame_limit;     /* bytes of frames that one worker may make */
  struct ptx_kernel_findings *findings;
  uint32_t cluster[3], cluster_blocks; /* 1: no clusters */
  uint64_t blocks, next_block;         /* of blocks, or of clusters, which one thread runs as a whole */
  uint64_t deadline;                   /* monotonic nanoseconds; 0: none */
  uint64_t begun;
  int stop;
  pthread_mutex_t lock; /* protects the fault and the printed text */
  struct ptx_fault fault;
};

#define TEXTURE_CACHE 8u

#define SHUFFLE_CACHE 16u
struct shuffled {
  uint64_t key; /* of the instruction: its constants and its kind */
  uint32_t inside, from[PTX_LANES];
};

#define PTX_SERVE_NS 1000000u /* between two calls of ptx_launch.serve */

struct worker {
  struct launch_state *launch;
  const struct ptx_alu *alu;
  const unsigned char *constants;              /* of the module */
  struct ptx_region regions[PTX_REGION_CACHE]; /* by pc */
  uint8_t crooked[PTX_REGION_CACHE];           /* by pc: accesses that need not be tried as a straight one */
  struct {
    uint64_t object; /* 0: none */
    struct ptx_texture texture;
  } textures[TEXTURE_CACHE];               /* by object */
  struct shuffled shuffled[SHUFFLE_CACHE]; /* by pc */
  struct frame **free_frames;              /* by function */
  struct frame *made;                      /* all frames, in use or free */
  uint64_t frame_bytes;
  struct block *spare;
  uint64_t turn;        /* start of its turn, if it has turns */
  uint64_t served;      /* when it last had time for other things, see ptx_launch.serve */
  bool helps;           /* it is not the thread that launched */
  uint32_t control;     /* present setting of the processor's float unit */
  unsigned char *apart; /* saved registers of lanes that wait elsewhere while compiled code runs */
  size_t apart_bytes;
  struct ptx_written **written; /* of region.c, by function and entry; NULL: not needed yet */
  uint64_t looks;               /* calls of ptx_region_waiting() */
  uint32_t ran;                 /* warps, since it last had time for other things */
  uint64_t stepped;             /* instructions for which compiled code has called the interpreter */
  uint64_t saved;               /* registers, while compiled code ran for a part of the warp */
  _Alignas(64) unsigned char scratch[PTX_LANES * 8];
};

enum run { RUN_DONE, RUN_BLOCKED, RUN_YIELD, RUN_FAULT };

/* The present instruction, and where its operands are. */
struct place {
  struct warp *warp;
  struct split *split;
  struct worker *worker;
  unsigned char *registers;
  const unsigned char *constants;
  const struct ptx_instruction *in;
  uint32_t pc;
};

static inline const unsigned char *ptx_operand(const struct place *at, uint32_t reference) {
  const unsigned char *bank = (reference & 1) != 0 ? at->constants : at->registers;
  return bank + (reference & ~3u);
}

static inline uint32_t ptx_predicate(const struct place *at, uint32_t reference) {
  uint32_t value;
  memcpy(&value, ptx_operand(at, reference), 4);
  return value;
}

/* x86-64 without extensions has no instruction for it: `__builtin_popcount` is a call there. */
static inline uint32_t ptx_count(uint32_t lanes) {
  return lanes == FULL ? PTX_LANES : (uint32_t)__builtin_popcount(lanes);
}

/* The element at `from`, extended to 64 bits as the instruction says. */
static inline uint64_t ptx_extended(const struct ptx_instruction *in, const unsigned char *from) {
  uint64_t value = 0;
  memcpy(&value, from, in->size);
  if ((in->m & ML_SIGNED) == 0 || in->size == 8) return value;
  uint32_t shift = 64 - in->size * 8u;
  return (uint64_t)((int64_t)(value << shift) >> shift);
}

/* The lanes of `mask` that the instruction's guard names. */
static inline uint32_t ptx_guarded(const struct place *at, uint32_t mask) {
  uint32_t guard = at->in->guard;
  if (guard == 0) return mask;
  uint32_t p = ptx_predicate(at, guard & ~3u);
  return (guard & 2) != 0 ? mask & ~p : mask & p;
}

static inline void ptx_set_predicate(const struct place *at, uint32_t reference, uint32_t value,
                                     uint32_t mask) {
  unsigned char *to = at->registers + (reference & ~3u);
  uint32_t old;
  memcpy(&old, to, 4);
  old = (old & ~mask) | (value & mask);
  memcpy(to, &old, 4);
}

static inline uint32_t ptx_combined(const struct place *at, uint32_t t) {
  const struct ptx_instruction *in = at->in;
  uint32_t how = in->m & 3;
  if (how == 0) return t;
  uint32_t c = ptx_predicate(at, in->c);
  if ((in->m & 4) != 0) c = ~c;
  return how == 1 ? t & c : how == 2 ? t | c : t ^ c;
}

/* Runs K_SETP. */
static inline void ptx_compare_lanes(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t t = in->u.compare(ptx_operand(at, in->a), ptx_operand(at, in->b));
  const uint32_t first = ptx_combined(at, t);
  if (in->x_count > 0)
    ptx_set_predicate(at, at->split->frame->function->x[in->x], ptx_combined(at, ~t), mask);
  ptx_set_predicate(at, in->d, first, mask);
}

/* Stops the launch with a fault of this lane. Always returns RUN_FAULT. */
enum run ptx_raise(const struct place *at, enum ptx_status status, uint32_t lane, uint64_t address,
                   const char *text);

#define PTX_TURNS 2000u /* of a leaf: how often it branches, or begins */
/*
 * Interprets a warp that has leaves, for `budget` turns of them; `turns` are left of the first one. `seen` of
 * SPIN_* lasts beyond a split: a loop that waits can do its loads and atomics in a function that it calls.
 */
enum run ptx_run_warp(struct warp *warp, uint32_t budget, uint32_t turns, uint32_t seen);

struct frame *ptx_new_frame(struct worker *worker, uint32_t function);
static inline void ptx_free_frame(struct worker *worker, struct frame *frame) {
  frame->next = worker->free_frames[frame->number];
  worker->free_frames[frame->number] = frame;
}
struct split *ptx_new_split(struct warp *warp, struct frame *frame);
struct split *ptx_new_leaf(struct warp *warp, struct split *parent, struct frame *frame, uint32_t mask,
                           uint32_t pc, uint32_t reconvergence);
void ptx_remove_leaf(struct warp *warp, const struct split *split);
void ptx_end_split(struct warp *warp, struct split *split);
bool ptx_unite(struct warp *warp, struct split *split);
void ptx_arrive(struct split *split, uint32_t lanes);
void ptx_leave(struct warp *warp, struct split *split, uint32_t lanes);
bool ptx_release(struct warp *warp, const struct split *leaf);
bool ptx_release_waiting(struct block *block);
bool ptx_part_lanes(struct warp *warp, struct split *split, uint32_t lanes);
bool ptx_diverge(struct warp *warp, struct split *split, uint32_t taken, uint32_t target, uint32_t next,
                 uint32_t join);

bool ptx_call(const struct place *at, struct split *split, uint32_t mask, uint32_t next);
void ptx_give_back(struct split *split, uint32_t lanes); /* gives return values to the split that waits */

enum run ptx_barrier(const struct place *at, struct split *split, uint32_t mask);
void ptx_open_barriers(struct block *block);
/* After threads have ended. */
static inline void ptx_settle_barriers(struct block *block) {
  if (block->events || block->arrived_at != 0 || block->cluster->arrived != 0) ptx_open_barriers(block);
}
/* RUN_DONE: the split continues at its pc. RUN_BLOCKED: it waits. RUN_FAULT: there are too many splits. */
enum run ptx_meet(const struct place *at, struct split *split, uint32_t mask, bool force);
void ptx_alone(const struct place *at, uint32_t mask); /* an operation without member masks */

void ptx_set_lanes(const struct place *at, uint32_t mask);
void ptx_carry(const struct place *at, uint32_t mask);
void ptx_predicates(const struct place *at, uint32_t mask);
void ptx_kernel_parameter(const struct place *at, uint32_t mask);
void ptx_call_parameter(const struct place *at, uint32_t mask, bool load);
void ptx_window(const struct place *at, uint32_t mask);

/*
 * stack.c: runs K_STACK; false: a fault was raised. ptx_stack_top returns where the memory after the stacks
 * of some lanes begins.
 */
bool ptx_stack(const struct place *at, struct frame *frame, uint32_t mask);
uint32_t ptx_stack_top(const struct frame *frame, uint32_t lanes);

/* settle.c: runs the first instructions of a kernel for a new warp, once in each frame. */
void ptx_settle_frame(struct warp *warp, struct frame *frame);

/* access.c: false: a fault was raised. */
bool ptx_load(const struct place *at, uint32_t mask);
bool ptx_store(const struct place *at, uint32_t mask);
/* Runs cp.async of all lanes at once. False: nothing was done, and the lanes must be resolved one by one. */
bool ptx_copy_lanes(const struct place *at, uint32_t mask);
/*
 * If the addresses of all lanes are aligned and in one range of memory, returns that range, with offsets in
 * to[]. NULL: the lanes must be resolved one by one.
 */
unsigned char *ptx_in_one(const struct place *at, uint32_t mask, uint32_t bytes, uint64_t *to,
                          uint32_t *shape);

/* atomic_lanes.c. False: nothing was done, and the lanes must be resolved one by one. */
bool ptx_atomic_lanes(const struct place *at, uint32_t mask);

bool ptx_atomic(const struct place *at, uint32_t mask);
bool ptx_copy_async(const struct place *at, uint32_t mask);
/* Combines the value at `to` with b (and c), by size, type and m of `in`. Returns the old value. */
uint64_t ptx_exchange(const struct ptx_instruction *in, unsigned char *to, uint64_t b, uint64_t c);

bool ptx_bulk(const struct place *at, uint32_t mask);

bool ptx_texture(const struct place *at, uint32_t mask);

bool ptx_wgmma(const struct place *at, uint32_t mask);
/* True if the other warps of the group have run as many wgmma as this warp. */
bool ptx_wgmma_done(const struct warp *warp);

/*
 * Returns the block of the cluster whose shared memory contains an offset in the window; *offset becomes the
 * offset within the block. NULL: it is not a block of the cluster.
 */
struct block *ptx_shared_block(const struct place *at, uint64_t *offset);
uint32_t ptx_cluster_rank(const struct block *block);
void ptx_cluster_arrive(struct warp *warp, uint32_t lanes);
void ptx_cluster_leave(struct warp *warp, uint32_t lanes);
void ptx_cluster_settle(struct block *block); /* after threads have come or ended */

void ptx_addresses(const struct place *at, uint64_t *to); /* of all lanes */
/* Raises the fault of an access. Always returns false. */
bool ptx_refuse_access(const struct place *at, enum ptx_status status, uint32_t lane, uint64_t address,
                       uint32_t bytes, const char *where);
unsigned char *ptx_in_global(const struct place *at, uint32_t lane, uint64_t address, uint32_t bytes);
/* Returns the memory of a lane's generic or other address; NULL: a fault was raised. */
unsigned char *ptx_resolve(const struct place *at, enum ptx_space space, uint32_t lane, uint64_t address,
                           uint32_t bytes);

/* Copies the lanes of `mask` from one register to another, `bytes` bytes each. */
static inline void ptx_blend(const struct worker *worker, void *d, const void *from, uint32_t mask,
                             uint32_t bytes) {
  worker->alu->blend[__builtin_ctz(bytes)](d, from, mask);
}

/* Lanes that wait at the same operation. Their instructions are most often the same. */
struct meeting {
  uint32_t count;
  struct {
    struct place at;
    uint32_t mask;
  } parties[PTX_LANES];
};
/* Runs the operation for the lanes of `group`, which all have the same member mask. */
void ptx_together(const struct meeting *meeting, uint32_t group);
void ptx_special(const struct place *at);

bool ptx_matrix(const struct place *at, uint32_t mask);

uint64_t ptx_heap_take(struct ptx_heap *heap, uint64_t bytes); /* 0: there is no room */
bool ptx_heap_give(struct ptx_heap *heap, uint64_t address);   /* false: no allocation begins there */

/* children.c: runs BUILTIN_BUFFER and those after it in the enum. */
bool ptx_child_call(const struct place *at, uint32_t lane, uint32_t builtin);
/* device_calls.c: runs BUILTIN_COPY_ROWS and those after it in the enum. */
bool ptx_device_call(const struct place *at, uint32_t lane, uint32_t builtin);

/* launch.c: true if a grid of this kernel is possible; false: `fault` has the reason. */
bool ptx_launch_possible(const struct ptx_launch *launch, const struct ptx_kernel_info *info,
                         struct ptx_fault *fault);

uint64_t ptx_argument(const struct place *at, uint32_t lane, uint32_t index);
/*
 * Reads at most the 16 bytes that the smallest parameter takes, or the bytes that the caller knows to be
 * there.
 */
void ptx_argument_bytes(const struct place *at, uint32_t lane, uint32_t index, void *to, size_t bytes);
/* Returns how many bytes of a parameter can be read. */
uint32_t ptx_argument_room(const struct place *at, uint32_t index);
void ptx_give_result(const struct place *at, uint32_t lane, uint64_t value, uint32_t bytes);
bool ptx_builtin(const struct place *at, uint32_t mask, const struct ptx_function *callee);

uint64_t ptx_now(void);

#endif
