/*
 * --check: races in shared memory, and reads of memory that was never written. Only such a launch checks each
 * access by itself.
 *
 * Barriers order the accesses of a block's threads: each warp has a clock, which advances when threads meet;
 * bar.warp.sync orders the lanes of a warp. Atomics, and volatile or ordered accesses, are no races, and
 * order the threads that use the address. A doubtful case is not reported: each finding is true, but a launch
 * without findings can have faults.
 */
#ifndef VGPU_PTX_CHECK_H
#define VGPU_PTX_CHECK_H

#include "host/backend/software/ptx/run/warp.h"

#define CHECK_WARPS 32u
#define MEETING_PLACES 64u

struct seen {
  uint32_t time; /* 0: no access since the block began */
  uint32_t line;
  uint16_t thread;
};

struct shadow {
  struct seen writer, reader[2]; /* the last reader, and the last reader of another thread */
};

/* The clocks of all warps, as one warp knows them. */
struct clocks {
  uint32_t of[CHECK_WARPS];
};

struct block_check {
  bool race, init;
  uint32_t now, born;
  struct clocks known[CHECK_WARPS];    /* by each warp */
  struct clocks arrived[PTX_BARRIERS]; /* of the threads that came to a barrier */
  struct clocks gone;                  /* of the threads that ended, for which no barrier waits */
  struct {
    uint64_t address;
    struct clocks clocks;
  } places[MEETING_PLACES];                /* addresses where atomics were done */
  uint32_t (*pairs)[PTX_LANES][PTX_LANES]; /* for each warp: when two lanes met last */
  struct shadow *shared;                   /* for each byte */
  unsigned char *shared_written, *local_written;
  uint64_t local_bytes;
};

/* Findings at the same place are reported once. */
#define CHECK_SITES 64u
struct ptx_kernel_findings {
  struct {
    uint32_t kind, line, other;
  } sites[CHECK_SITES];
  uint32_t site_count;
  uint64_t rest, told_rest;
};

struct block_check *ptx_check_new(const struct launch_state *launch, uint32_t warps);
void ptx_check_free(struct block_check *check);
void ptx_check_begin(struct block *block);

/* Called before the access is made. `block` is the one whose memory is used. */
void ptx_check_shared(const struct place *at, struct block *block, uint32_t lane, uint64_t offset,
                      uint32_t bytes);
/* Notes that a call fills this local memory with a parameter. */
void ptx_check_filled(const struct block *block, uint64_t offset, uint32_t bytes);
void ptx_check_local(const struct place *at, uint32_t lane, uint64_t offset, uint32_t bytes);
void ptx_check_global(const struct place *at, uint32_t lane, uint64_t address, uint32_t bytes,
                      unsigned char *written);

/* These events order accesses. */
void ptx_check_arrive(struct warp *warp, uint32_t barrier);
/* `all`: the barrier counted threads that had ended as present. */
void ptx_check_pass(struct warp *warp, uint32_t barrier, bool all);
void ptx_check_open(struct block *block, uint32_t barrier); /* after all have passed */
void ptx_check_gone(struct warp *warp);
void ptx_check_met(struct warp *warp, uint32_t lanes);

enum check_kind {
  CHECK_READ_WRITE,
  CHECK_WRITE_READ,
  CHECK_WRITE_WRITE,
  CHECK_SHARED,
  CHECK_LOCAL,
  CHECK_GLOBAL
};
void ptx_check_found(const struct place *at, enum check_kind kind, uint32_t lane, uint64_t address,
                     uint32_t bytes, const struct seen *other);
void ptx_check_end(struct launch_state *launch);

#endif
