/* Executable graphs, as the files that check them and carry them out share them. */
#ifndef VGPU_HOST_COMMON_GRAPH_H
#define VGPU_HOST_COMMON_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "host/backend/dispatch.h"

struct vgpu_graph_frame {
  const struct vgpu_dispatch_row *row; /* NULL: nothing is done in this place */
  uint32_t bulk_size;
  unsigned char *bytes; /* body, then bulk */
};

struct vgpu_exec_object {
  struct vgpu_exec_object *next; /* of the session */
  uint64_t number;
  uint64_t context;
  bool ready;
  bool has_conditions; /* what comes next is decided by values in memory */
  struct vgpu_graph_frame *frames;
  uint32_t count;
  uint32_t launches; /* since it was last changed */
  void *graph;       /* the device's own; NULL: the frames are carried out */
  uint64_t kernels;  /* that a launch of it runs */
};

/*
 * Work that is the same each time it is done, and none of which is of the host: what records an event, brings
 * bytes along or gives memory back is done by its own call.
 */
bool vgpu_graph_recordable(const struct vgpu_graph_frame *frame);

/* Whether an executable has conditions; false, too, if there is none of that number. */
bool vgpu_graph_is_conditional(struct vgpu_worker *worker, uint64_t number);

/*
 * A condition among the frames. Its bodies follow: of each a graph_body with as many frames as are behind it.
 */
struct vgpu_condition {
  uint64_t context, handle;
  uint32_t kind; /* CUgraphConditionalNodeType */
  uint32_t bodies;
};
enum { VGPU_CONDITION_IF = 0, VGPU_CONDITION_WHILE = 1, VGPU_CONDITION_SWITCH = 2 };

/* The opcode of a frame, without its bytes; 0: no call. */
static inline uint32_t vgpu_frame_opcode(const struct vgpu_graph_frame *frame) {
  return frame->row == NULL ? 0 : frame->row->opcode;
}
/* Read a frame that is a condition, one that is a body, and one that names the owner of conditions. */
struct vgpu_condition vgpu_frame_condition(const struct vgpu_graph_frame *frame);
uint32_t vgpu_frame_body(const struct vgpu_graph_frame *frame);

/* All frames have come: says in has_conditions whether there are conditions, and that they make sense. */
int32_t vgpu_conditions_check(struct vgpu_exec_object *exec);
/* Whether a frame may take another's place in an executable with conditions. */
bool vgpu_conditions_fit(const struct vgpu_graph_frame *old, const struct vgpu_graph_frame *new);
/* Carries out an executable that has conditions, on a device that has none of its own. A CUresult. */
int32_t vgpu_conditions_launch(struct vgpu_worker *worker, const struct vgpu_exec_object *exec,
                               uint64_t stream);
/* One frame at once, without waiting for its stream; the stream takes the place of that in the frame. */
int32_t vgpu_frame_run(struct vgpu_worker *worker, const struct vgpu_graph_frame *frame, uint64_t stream);

#endif
