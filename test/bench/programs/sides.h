/* The two libraries that are measured, and what all measurements share. */
#ifndef VGPU_BENCH_SIDES_H
#define VGPU_BENCH_SIDES_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_calls.h"
#include "raw.h"
#include "wire/frame.h"

/* The entry points used, as a program that loads the driver by itself declares them. */
struct driver {
  int (*init)(unsigned flags);
  int (*count)(int *count);
  int (*context)(void **context, unsigned flags, int device);
  int (*synchronize)(void);
  int (*info)(size_t *free, size_t *total);
  int (*allocate)(uint64_t *address, size_t bytes);
  int (*release)(uint64_t address);
  int (*set)(uint64_t address, unsigned char value, size_t bytes);
  int (*to)(uint64_t destination, const void *source, size_t bytes);
  int (*from)(void *destination, uint64_t source, size_t bytes);
  int (*pin)(void **memory, size_t bytes, unsigned flags);
  int (*module)(void **module, const void *image);
  int (*function)(void **function, void *module, const char *name);
  int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                unsigned shared, void *stream, void **parameters, void **extra);
  int (*stream)(void **stream, unsigned flags);
  int (*wait)(void *stream);
  int (*set_async)(uint64_t address, unsigned char value, size_t bytes, void *stream);
  int (*to_async)(uint64_t destination, const void *source, size_t bytes, void *stream);
  int (*from_async)(void *destination, uint64_t source, size_t bytes, void *stream);
  int (*capture)(void *stream, int mode);
  int (*captured)(void *stream, void **graph);
  int (*instantiate)(void **exec, void *graph, unsigned long long flags);
  int (*launch_graph)(void *exec, void *stream);
};

/* The shim, and the same library with the simulated GPU in this process: calls without a transport. */
struct side {
  const char *series;
  struct driver driver;
  uint64_t address;
  void *function, *stream, *exec, *logits;
  unsigned char *pinned; /* LARGEST bytes */
};

extern struct side sides[2];
extern size_t side_count;
extern struct driver cuda; /* of the side whose turn it is */

/* Makes `cuda` that of a side. */
struct side *turn(size_t number);

/* Loads a library into `cuda`; ends the program when it cannot. */
void load(const char *path);

/* Likewise, with a context, as the next side. */
void open_side(const char *series, const char *path);

/* Ends the program for a CUresult other than 0. */
void check(int result, const char *what);

/* Prints a sample, but not of the first round. */
void sample(int round, const char *comparison, const char *series, double value);

/* Copies of growing sizes, plain and pinned (copies.c). */
void copies(int rounds);

/* Times of a stream (streams.c). */
void streams(int rounds);

/* Bytes on the wire of the calls that are timed, and of an answer without values. */
#define ASK (sizeof(struct vgpu_frame) + sizeof(struct vgpu_send_cuMemGetInfo_v2))
#define ANSWER (sizeof(struct vgpu_frame) + sizeof(struct vgpu_reply_cuMemGetInfo_v2))
#define ONEWAY (sizeof(struct vgpu_frame) + sizeof(struct vgpu_send_cuMemsetD8_v2))
#define DONE (sizeof(struct vgpu_frame))

#endif
