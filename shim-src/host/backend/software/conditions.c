/* A condition is a word of device memory, which kernels write. Its handle is the word's address. */
#include <stdlib.h>
#include <string.h>

#include "cuda_handlers.h"
#include "host/session/worker.h"
#include "host/backend/software/kernel/run.h"
#include "host/backend/software/software.h"
#include "cuda_results.h"

#define ASSIGN_DEFAULT 1u /* CU_GRAPH_COND_ASSIGN_DEFAULT */

struct vgpu_software_condition {
  struct vgpu_software_condition *next;
  uint64_t graph, context, address;
  uint32_t value; /* initial value at each launch, if the flag is set */
  uint32_t flags;
};

int32_t
vgpu_software_cuGraphConditionalHandleCreate(struct vgpu_worker *worker,
                                             const struct vgpu_send_cuGraphConditionalHandleCreate *send,
                                             struct vgpu_reply_cuGraphConditionalHandleCreate *reply) {
  if (send->flags > ASSIGN_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_software_condition *made = calloc(1, sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct vgpu_software_condition){.next = software_of(worker)->conditions,
                                           .graph = send->graph,
                                           .context = send->context,
                                           .value = send->value,
                                           .flags = send->flags};
  int32_t result = vgpu_device_allocate(worker, send->context, sizeof made->value, &made->address);
  unsigned char *word = result != CUDA_SUCCESS ? NULL
                                               : vgpu_memory_to_write(&software_of(worker)->memory,
                                                                      made->address, sizeof made->value);
  if (word == NULL) {
    if (result == CUDA_SUCCESS) vgpu_device_free(worker, made->address);
    free(made);
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
  }
  memcpy(word, &made->value, sizeof made->value);
  software_of(worker)->conditions = made;
  reply->handle = made->address;
  return CUDA_SUCCESS;
}

int32_t vgpu_software_graph_values(struct vgpu_worker *worker, const struct vgpu_send_graph_values *send) {
  if (find_context(worker, send->context) == NULL && send->context != 0) return CUDA_ERROR_INVALID_CONTEXT;
  const struct vgpu_software_condition *condition = software_of(worker)->conditions;
  for (; send->assign != 0 && condition != NULL; condition = condition->next) {
    if (condition->graph != send->graph || (condition->flags & ASSIGN_DEFAULT) == 0) continue;
    unsigned char *word =
        vgpu_memory_to_write(&software_of(worker)->memory, condition->address, sizeof condition->value);
    if (word == NULL) return CUDA_ERROR_INVALID_HANDLE;
    memcpy(word, &condition->value, sizeof condition->value);
  }
  return CUDA_SUCCESS;
}

bool vgpu_software_condition_value(struct vgpu_worker *worker, uint64_t handle, uint32_t *value) {
  const struct vgpu_software_condition *condition = software_of(worker)->conditions;
  while (condition != NULL && condition->address != handle) condition = condition->next;
  const unsigned char *word =
      condition == NULL ? NULL : vgpu_memory_at(&software_of(worker)->memory, handle, sizeof *value);
  if (word != NULL) memcpy(value, word, sizeof *value);
  return word != NULL;
}

int32_t vgpu_software_graph_conditions_drop(struct vgpu_worker *worker,
                                            const struct vgpu_send_graph_conditions_drop *send) {
  for (struct vgpu_software_condition **link = &software_of(worker)->conditions; *link != NULL;) {
    struct vgpu_software_condition *condition = *link;
    if (condition->graph != send->graph) {
      link = &condition->next;
      continue;
    }
    *link = condition->next;
    vgpu_device_free(worker, condition->address);
    free(condition);
  }
  return CUDA_SUCCESS;
}

void vgpu_software_conditions_forget(struct vgpu_worker *worker, uint64_t context) {
  for (struct vgpu_software_condition **link = &software_of(worker)->conditions; *link != NULL;) {
    struct vgpu_software_condition *condition = *link;
    if (condition->context != context) {
      link = &condition->next;
      continue;
    }
    *link = condition->next;
    free(condition);
  }
}
