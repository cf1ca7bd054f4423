#include "host/backend/software/order/place.h"

#include <string.h>

#include "cuda_calls.h"
#include "host/backend/common/graph.h"
#include "host/backend/software/software.h"

#define NON_BLOCKING 1u /* CU_STREAM_NON_BLOCKING */

uint64_t vgpu_place_launched(const void *body) {
  struct vgpu_send_cuGraphLaunch send;
  memcpy(&send, body, sizeof send);
  return send.exec;
}

static struct vgpu_place place_of(struct vgpu_worker *worker, uint64_t context, uint64_t stream) {
  struct vgpu_place place = {.context = context, .stream = stream, .legacy = stream < 2};
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, stream, VGPU_HANDLE_STREAM);
  if (handle != NULL) place.context = handle->context;
  place.blocking = handle == NULL || (handle->flags & NON_BLOCKING) == 0;
  if (place.legacy) place.stream = 0;
  place.primary = owner_of(worker, place.context);
  return place;
}

/*
 * A call that changes or destroys an executable belongs to no stream, but must run after waiting launches of
 * the executable.
 */
static bool place_of_exec(struct vgpu_worker *worker, uint64_t exec, struct vgpu_place *place) {
  if (!vgpu_graph_is_conditional(worker, exec)) return false;
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, exec, VGPU_HANDLE_EXEC);
  *place = (struct vgpu_place){.context = handle->context, .stream = exec, .exec = exec};
  return true;
}

bool vgpu_place_owns(const struct vgpu_handle *event) {
  return event != NULL && event->object == NULL;
}

/* A call that unloads code must run after the kernels that were launched before. */
static bool place_of_unload(struct vgpu_worker *worker, uint64_t number, enum vgpu_handle_type type,
                            struct vgpu_place *place) {
  const struct vgpu_handle *handle = vgpu_handles_find(&worker->handles, number, type);
  if (handle == NULL) return false;
  *place = (struct vgpu_place){.context = handle->context, .after_all = true};
  return true;
}

bool vgpu_place_find(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                     struct vgpu_place *place) {
  uint64_t first = 0, stream = 0;
  if (row->send_size >= sizeof first) memcpy(&first, body, sizeof first);
  if (row->stream >= 0) {
    memcpy(&stream, (const unsigned char *)body + row->stream, sizeof stream);
    *place = place_of(worker, first, stream);
    if (row->opcode == VGPU_OP_cuGraphLaunch) place->exec = vgpu_place_launched(body);
    return true;
  }
  switch (row->opcode) {
    case VGPU_OP_cuGraphExecDestroy:
      return place_of_exec(worker, first, place);
    case VGPU_OP_graph_node_set: {
      struct vgpu_send_graph_node_set send;
      memcpy(&send, body, sizeof send);
      return place_of_exec(worker, send.exec, place);
    }
    case VGPU_OP_graph_conditions_drop:
      *place = (struct vgpu_place){.conditions = true};
      return true;
    case VGPU_OP_cuEventDestroy_v2: {
      const struct vgpu_handle *event = vgpu_handles_find(&worker->handles, first, VGPU_HANDLE_EVENT);
      /* Other sessions see by a shared event's count that it was recorded. */
      if (event == NULL || vgpu_place_owns(event) || vgpu_event_pending(event) == 0) return false;
      *place = place_of(worker, event->context, event->stream);
      return true;
    }
    case VGPU_OP_cuCtxSynchronize:
      *place = (struct vgpu_place){.context = first, .whole = true};
      return true;
    case VGPU_OP_cuModuleUnload:
      return place_of_unload(worker, first, VGPU_HANDLE_MODULE, place);
    case VGPU_OP_cuLibraryUnload:
      return place_of_unload(worker, first, VGPU_HANDLE_LIBRARY, place);
    case VGPU_OP_cuCtxRecordEvent:
      *place = place_of(worker, first, 0);
      place->whole = true;
      return true;
    case VGPU_OP_cuCtxWaitEvent:
      *place = place_of(worker, first, 0);
      place->first = true;
      return true;
    /* These calls work on the default stream without naming it. */
    case VGPU_OP_cuArrayDestroy:
    case VGPU_OP_cuTexObjectDestroy:
    case VGPU_OP_cuSurfObjectDestroy:
    case VGPU_OP_cuMemFree_v2:
    case VGPU_OP_cuMemcpyDtoD_v2:
    case VGPU_OP_cuMemcpyDtoH_v2:
    case VGPU_OP_cuMemcpyHtoD_v2:
    case VGPU_OP_cuMemsetD16_v2:
    case VGPU_OP_cuMemsetD32_v2:
    case VGPU_OP_cuMemsetD8_v2:
      *place = place_of(worker, first, 0);
      return true;
    default:
      return false;
  }
}

bool vgpu_place_ordered(const struct vgpu_place *first, const struct vgpu_place *second) {
  if (second->after_all) return true;
  if (first->after_all) return false;
  if (second->whole) return first->context == second->context || first->primary == second->context;
  if (first->first && (first->context == second->context || first->context == second->primary)) return true;
  if (first->exec != 0 && (first->exec == second->exec || second->conditions)) return true;
  if (first->context != second->context) return false;
  if (first->stream == second->stream) return true;
  return (first->legacy && second->blocking) || (second->legacy && first->blocking);
}
