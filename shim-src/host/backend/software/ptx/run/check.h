/*
 * The checks of a launch with --check: races in shared memory, and reads of memory that was never written.
 * Each access of such a launch is checked by itself; other launches are not checked.
 *
 * Barriers order the accesses of a block's threads: there is a clock for each warp, advanced wherever threads
 * meet, and bar.warp.sync orders the lanes of a warp. Atomics, and loads and stores that are volatile or
 * ordered, are no races, and they order the threads that meet there. A doubtful case is not reported: each
 * finding is true, but no finding proves nothing.
 */
#ifndef VGPU_PTX_CHECK_H
#define VGPU_PTX_CHECK_H

#include "host/backend/software/ptx/run/warp.h"

#define CHECK_WARPS 32u
#define MEETING_PLACES 64u

struct seen {
  uint32_t time; /* before the block's beginning: nothing */
  uint32_t line;
  uint16_t thread;
};

struct shadow {
  struct seen writer, reader[2]; /* the last, and the last by another thread */
};

/* The clocks of all warps, as one of them knows them. */
struct clocks {
  uint32_t of[CHECK_WARPS];
};

struct block_check {
  bool race, init;
  uint32_t now, born;
  struct clocks known[CHECK_WARPS];    /* by each warp */
  struct clocks arrived[PTX_BARRIERS]; /* by those who came to a barrier */
  struct clocks gone;                  /* by those who ended: no barrier waits for them */
  struct {
    uint64_t address;
    struct clocks clocks;
  } places[MEETING_PLACES];                /* where atomics were done */
  uint32_t (*pairs)[PTX_LANES][PTX_LANES]; /* of each warp: when two lanes met last */
  struct shadow *shared;                   /* for each byte */
  unsigned char *shared_written, *local_written;
  uint64_t local_bytes;
};

/* Findings at the same place are told once. */
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

/* Before the access is made. `memory` holds what is there. */
void ptx_check_shared(const struct place *at, uint32_t lane, uint64_t offset, uint32_t bytes,
                      const unsigned char *memory);
void ptx_check_local(const struct place *at, uint32_t lane, uint64_t offset, uint32_t bytes);
void ptx_check_global(const struct place *at, uint32_t lane, uint64_t address, uint32_t bytes,
                      unsigned char *written);

/* The events that order accesses. */
void ptx_check_arrive(struct warp *warp, uint32_t barrier);
/* `all`: the barrier counted the threads that had ended as there. */
void ptx_check_pass(struct warp *warp, uint32_t barrier, bool all);
void ptx_check_open(struct block *block, uint32_t barrier); /* after all have passed */
void ptx_check_gone(struct warp *warp);
void ptx_check_met(struct warp *warp, uint32_t lanes);

/* check_report.c */
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
