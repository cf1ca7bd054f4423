#include "guest/nvml/nvml.h"

#include <stdlib.h>
#include <string.h>

#include "guest/process.h"
#include "wire/clock.h"

enum { RETRY_MS = 1000 };

static void in_forked_child(void *state) {
  /* The other memory leaks in the child, because freeing is not allowed there. It is little. */
  struct vgpu_nvml *nvml = state;

  vgpu_session_abandon(nvml->session);
}

/* Tells the host at the end of the program, so that the host need not wait for a reconnection. */
__attribute__((destructor)) static void say_goodbye(void) {
  struct vgpu_process *process = vgpu_process_made();
  const struct vgpu_nvml *nvml = process == NULL ? NULL : __atomic_load_n(&process->state, __ATOMIC_ACQUIRE);

  if (nvml != NULL) vgpu_session_goodbye(nvml->session);
}

/* Handles are addresses of these bytes. Each byte stands for a device; every other address is invalid. */
static const char handles[VGPU_DEVICES_MAX];

nvml_device vgpu_nvml_handle(uint32_t index) {
  return (void *)(uintptr_t)&handles[index];
}

int vgpu_nvml_outcome(enum vgpu_outcome outcome, int32_t status) {
  switch (outcome) {
    case VGPU_ANSWERED:
      break;
    case VGPU_NO_HOST:
      return NVML_DRIVER_NOT_LOADED;
    case VGPU_LOST:
      return NVML_GPU_IS_LOST;
    case VGPU_TOO_LARGE:
      return NVML_UNKNOWN;
  }
  switch (status) {
    case VGPU_STATUS_OK:
      return NVML_SUCCESS;
    case VGPU_STATUS_UNKNOWN: /* an older host */
      return NVML_NOT_SUPPORTED;
    case VGPU_STATUS_INVALID:
      return NVML_INVALID_ARGUMENT;
    case VGPU_STATUS_NO_DEVICE:
      return NVML_NOT_FOUND;
    default:
      return NVML_UNKNOWN;
  }
}

/* Connects and fetches the facts. The session's own time limits apply. */
static int connect_host(struct vgpu_nvml *nvml) {
  struct vgpu_session *session = NULL;
  int32_t status = 0;

  enum vgpu_outcome outcome = vgpu_session_open(&session, VGPU_LIBRARY_NVML, NULL);
  if (outcome != VGPU_ANSWERED) return NVML_DRIVER_NOT_LOADED;

  uint32_t count = vgpu_session_welcome(session)->device_count;
  if (count > 0) {
    outcome = vgpu_session_device_facts(session, nvml->facts, VGPU_DEVICES_MAX, &count, &status);
    if (outcome != VGPU_ANSWERED || status != VGPU_STATUS_OK) {
      vgpu_session_close(session);
      return NVML_DRIVER_NOT_LOADED;
    }
  }
  nvml->session = session;
  nvml->device_count = count;
  return NVML_SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
  struct vgpu_process *process = vgpu_process();
  (void)flags; /* NO_GPUS and NO_ATTACH may be ignored; the real library ignores other flags */

  if (!process || vgpu_process_on_fork(in_forked_child) != 0) return NVML_MEMORY;
  pthread_mutex_lock(&process->lock);
  struct vgpu_nvml *nvml = process->state;
  int result = NVML_SUCCESS;
  if (!nvml) {
    nvml = calloc(1, sizeof *nvml);
    result = nvml ? connect_host(nvml) : NVML_MEMORY;
    if (result != NVML_SUCCESS) free(nvml);
    else __atomic_store_n(&process->state, nvml, __ATOMIC_RELEASE);
  }
  if (result == NVML_SUCCESS) nvml->references++;
  pthread_mutex_unlock(&process->lock);
  return result;
}

int nvmlInit_v2(void) {
  return nvmlInitWithFlags(0);
}

int nvmlInit(void) {
  return nvmlInitWithFlags(0);
}

/* A call too many is not an error in the real library either. */
int nvmlShutdown(void) {
  struct vgpu_process *process = vgpu_process();

  if (!process) return NVML_SUCCESS;
  pthread_mutex_lock(&process->lock);
  struct vgpu_nvml *nvml = process->state;
  if (nvml && --nvml->references == 0) {
    __atomic_store_n(&process->state, NULL, __ATOMIC_RELEASE);
    vgpu_session_close(nvml->session);
    free(nvml);
  }
  pthread_mutex_unlock(&process->lock);
  return NVML_SUCCESS;
}

static void reconnect(struct vgpu_nvml *nvml) {
  int64_t now = vgpu_now_ms();
  struct vgpu_session *lost = nvml->session;

  if (nvml->retried != 0 && now - nvml->retried < RETRY_MS) return;
  if (connect_host(nvml) == NVML_SUCCESS) vgpu_session_close(lost);
  nvml->retried = vgpu_now_ms();
}

struct vgpu_nvml *vgpu_nvml_enter(int *result) {
  struct vgpu_process *process = vgpu_process();

  *result = NVML_UNINITIALIZED;
  if (!process) return NULL;
  pthread_mutex_lock(&process->lock);
  struct vgpu_nvml *nvml = process->state;
  if (nvml && vgpu_session_is_lost(nvml->session)) {
    reconnect(nvml);
    if (vgpu_session_is_lost(nvml->session)) {
      *result = NVML_GPU_IS_LOST;
      nvml = NULL;
    }
  }
  if (!nvml) {
    pthread_mutex_unlock(&process->lock);
    return NULL;
  }
  *result = NVML_SUCCESS;
  return nvml;
}

void vgpu_nvml_leave(void) {
  pthread_mutex_unlock(&vgpu_process()->lock);
}

struct vgpu_nvml *vgpu_nvml_enter_device(nvml_device device, const struct vgpu_device_facts **facts,
                                         uint32_t *index, int *result) {
  struct vgpu_nvml *nvml = vgpu_nvml_enter(result);

  if (!nvml) return NULL;
  uintptr_t offset = (uintptr_t)device - (uintptr_t)handles; /* huge for an address before them */
  if (offset >= nvml->device_count) {
    vgpu_nvml_leave();
    *result = NVML_INVALID_ARGUMENT;
    return NULL;
  }
  *index = (uint32_t)offset;
  *facts = &nvml->facts[offset];
  return nvml;
}

int vgpu_nvml_usage(struct vgpu_nvml *nvml, uint32_t index, struct vgpu_usage_reply *usage) {
  int32_t status = 0;
  enum vgpu_outcome outcome = vgpu_session_device_usage(nvml->session, index, usage, &status);

  return vgpu_nvml_outcome(outcome, status);
}

int vgpu_nvml_text(char *to, unsigned size, const char *text) {
  size_t length = strlen(text) + 1;

  if (!to) return NVML_INVALID_ARGUMENT;
  if (length > size) return NVML_INSUFFICIENT_SIZE;
  memcpy(to, text, length);
  return NVML_SUCCESS;
}

int vgpu_nvml_attribute(const struct vgpu_device_facts *facts, unsigned attribute, int32_t *value) {
  if (!(facts->attribute_known[attribute / 8] >> (attribute % 8) & 1)) return NVML_NOT_SUPPORTED;
  *value = facts->attributes[attribute];
  return NVML_SUCCESS;
}

int vgpu_nvml_facts(nvml_device device, const void *out, struct vgpu_device_facts *copy, uint32_t *number) {
  const struct vgpu_device_facts *facts;
  uint32_t index;
  int result;

  if (!vgpu_nvml_enter_device(device, &facts, &index, &result)) return result;
  *copy = *facts;
  if (number) *number = index;
  vgpu_nvml_leave();
  return out ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}
