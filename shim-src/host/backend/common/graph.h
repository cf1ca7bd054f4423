#ifndef VGPU_HOST_COMMON_GRAPH_H
#define VGPU_HOST_COMMON_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "host/backend/dispatch.h"

struct vgpu_graph_frame {
  const struct vgpu_dispatch_row *row; /* NULL: an empty frame */
  uint32_t bulk_size;
  unsigned char *bytes; /* body, then bulk */
};

/* Two frames: `to` is later, and waits for `from`. */
struct vgpu_graph_edge {
  uint32_t from, to;
};

struct vgpu_exec_object {
  struct vgpu_exec_object *next; /* next of the session */
  uint64_t number;
  uint64_t context;
  bool ready;
  bool has_conditions; /* values in memory decide which frames run */
  struct vgpu_graph_frame *frames;
  uint32_t count;
  struct vgpu_graph_edge *edges; /* sorted by `to` */
  uint32_t edge_count;
  bool has_edges;    /* false: each frame waits for the one before it */
  uint32_t launches; /* since the last change */
  void *graph;       /* a graph of the device; NULL: the frames are run one by one */
  uint64_t kernels;  /* count of kernels that one launch runs */
  bool launched;
  uint64_t last_stream; /* of the last launch */
  void *mark;           /* of the device; NULL: none was needed so far */
  bool marked;          /* the mark follows the last launch; else the device orders the next one */
};

/*
 * True for work that is the same at each launch and that only the device does. Calls that record an event,
 * return bytes or free memory are run one by one.
 */
bool vgpu_graph_recordable(const struct vgpu_graph_frame *frame);

/* True if an executable has conditions. False also if there is no executable of that number. */
bool vgpu_graph_is_conditional(struct vgpu_worker *worker, uint64_t number);

/*
 * A condition among the frames. Its bodies follow, each of which is a graph_body frame with the count of the
 * frames after it.
 */
struct vgpu_condition {
  uint64_t context, handle;
  uint32_t kind; /* CUgraphConditionalNodeType */
  uint32_t bodies;
};
enum { VGPU_CONDITION_IF = 0, VGPU_CONDITION_WHILE = 1, VGPU_CONDITION_SWITCH = 2 };

/* Returns the opcode of a frame; 0: an empty frame. */
static inline uint32_t vgpu_frame_opcode(const struct vgpu_graph_frame *frame) {
  return frame->row == NULL ? 0 : frame->row->opcode;
}
/* Reads a frame that is a condition. vgpu_frame_body reads a graph_body frame. */
struct vgpu_condition vgpu_frame_condition(const struct vgpu_graph_frame *frame);
uint32_t vgpu_frame_body(const struct vgpu_graph_frame *frame);

/*
 * Call this when all frames have arrived: sets has_conditions, and checks that the conditions are valid.
 * Returns a CUresult.
 */
int32_t vgpu_conditions_check(struct vgpu_exec_object *exec);
/* True if the frame `new` may replace the frame `old` in an executable with conditions. */
bool vgpu_conditions_fit(const struct vgpu_graph_frame *old, const struct vgpu_graph_frame *new);
/* Runs an executable with conditions on a device that has no conditional graphs. Returns a CUresult. */
int32_t vgpu_conditions_launch(struct vgpu_worker *worker, const struct vgpu_exec_object *exec,
                               uint64_t stream);
/*
 * Runs one frame at once, without waiting for its stream. `stream` replaces the stream in the frame. Returns
 * a CUresult.
 */
int32_t vgpu_frame_run(struct vgpu_worker *worker, const struct vgpu_graph_frame *frame, uint64_t stream);

#endif
