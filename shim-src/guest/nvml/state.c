#include "guest/nvml/nvml.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "guest/reentry.h"
#include "guest/process.h"
#include "wire/clock.h"

enum { RETRY_MS = 1000 };

/*
 * The NVML state of this process. The process's lock is held only for a short time: no thread waits for the
 * host with it. A thread that connects holds the process's `connecting`, and takes the lock inside it.
 */
struct state {
  unsigned references; /* count of nvmlInit calls without their nvmlShutdown */
  int64_t retried;     /* time of the last attempt to restore a lost session, monotonic milliseconds */
  struct vgpu_nvml *now;
};

static void in_forked_child(void *parent) {
  /* The other memory of the state leaks in the child, because free() is not allowed there. */
  struct state *state = parent;

  vgpu_session_abandon(state->now->session);
}

/* Adds a user to a session. The caller holds the lock. */
static struct vgpu_nvml *use(struct vgpu_nvml *nvml) {
  nvml->users++;
  return nvml;
}

/*
 * Removes a user of a session. The last one ends the session, without the lock, because that can wait for the
 * host.
 */
static void release(struct vgpu_process *process, struct vgpu_nvml *nvml) {
  pthread_mutex_lock(&process->lock);
  bool last = --nvml->users == 0;
  pthread_mutex_unlock(&process->lock);
  if (!last) return;
  vgpu_session_close(nvml->session);
  free(nvml);
}

/* Tells the host that the program ends, so that the host does not wait for a reconnection. */
__attribute__((destructor)) static void say_goodbye(void) {
  struct vgpu_process *process = vgpu_process_made();

  if (process == NULL || vgpu_inside) return;
  pthread_mutex_lock(&process->lock);
  struct state *state = process->state;
  struct vgpu_nvml *nvml = state == NULL ? NULL : use(state->now); /* never released: the program ends */
  pthread_mutex_unlock(&process->lock);
  if (nvml != NULL) vgpu_session_goodbye(nvml->session);
}

/* Handles are addresses of these bytes. */
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

/*
 * Connects and fetches the facts. NULL: the host did not answer. The session's own time limits apply. The
 * result has one user.
 */
static struct vgpu_nvml *connect_host(void) {
  struct vgpu_nvml *nvml = calloc(1, sizeof *nvml);
  int32_t status = 0;

  if (!nvml || vgpu_session_open(&nvml->session, VGPU_LIBRARY_NVML, NULL) != VGPU_ANSWERED) {
    free(nvml);
    return NULL;
  }
  nvml->users = 1;
  uint32_t count = vgpu_session_welcome(nvml->session)->device_count;
  if (count > 0) {
    enum vgpu_outcome outcome =
        vgpu_session_device_facts(nvml->session, nvml->facts, VGPU_DEVICES_MAX, &count, &status);
    if (outcome != VGPU_ANSWERED || status != VGPU_STATUS_OK) {
      vgpu_session_close(nvml->session);
      free(nvml);
      return NULL;
    }
  }
  nvml->device_count = count;
  return nvml;
}

/* True if NVML was initialised already; the caller then has one more reference. */
static bool initialised_again(struct vgpu_process *process) {
  pthread_mutex_lock(&process->lock);
  struct state *state = process->state;
  if (state) state->references++;
  pthread_mutex_unlock(&process->lock);
  return state != NULL;
}

/* The first nvmlInit. The caller holds `connecting`. */
static int initialise(struct vgpu_process *process) {
  struct state *state = calloc(1, sizeof *state);

  if (!state) return NVML_MEMORY;
  *state = (struct state){.references = 1, .now = connect_host()};
  if (!state->now) {
    free(state);
    return NVML_DRIVER_NOT_LOADED;
  }
  pthread_mutex_lock(&process->lock);
  __atomic_store_n(&process->state, state, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&process->lock);
  return NVML_SUCCESS;
}

static int initialise_once(void) {
  struct vgpu_process *process = vgpu_process();

  if (!process || vgpu_process_on_fork(in_forked_child) != 0) return NVML_MEMORY;
  if (initialised_again(process)) return NVML_SUCCESS;
  pthread_mutex_lock(&process->connecting);
  int result = initialised_again(process) ? NVML_SUCCESS : initialise(process);
  pthread_mutex_unlock(&process->connecting);
  return result;
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags; /* NO_GPUS and NO_ATTACH may be ignored; the real library ignores other flags */
  if (!vgpu_enter()) return NVML_UNKNOWN;
  int result = initialise_once();
  vgpu_leave();
  return result;
}

int nvmlInit_v2(void) {
  return nvmlInitWithFlags(0);
}

int nvmlInit(void) {
  return nvmlInitWithFlags(0);
}

static void shut_down(struct vgpu_process *process) {
  struct vgpu_nvml *nvml = NULL;

  pthread_mutex_lock(&process->lock);
  struct state *state = process->state;
  if (state && --state->references == 0) {
    __atomic_store_n(&process->state, NULL, __ATOMIC_RELEASE);
    nvml = state->now;
    free(state);
  }
  bool used = nvml && nvml->users > 1;
  pthread_mutex_unlock(&process->lock);
  if (used) vgpu_session_dismiss(nvml->session);
  if (nvml) release(process, nvml);
}

/* As in the real library, one call too many is no error. Does not wait for a thread that reconnects. */
int nvmlShutdown(void) {
  struct vgpu_process *process = vgpu_process();

  if (!vgpu_enter()) return NVML_UNKNOWN;
  if (process) shut_down(process);
  vgpu_leave();
  return NVML_SUCCESS;
}

/*
 * Returns the session that a call may use now: the current one unless that is `lost`, the session that the
 * caller uses and that is lost.
 */
static struct vgpu_nvml *current(struct vgpu_process *process, const struct vgpu_nvml *lost, bool *retry,
                                 int *result) {
  struct vgpu_nvml *nvml = NULL;

  *retry = false;
  pthread_mutex_lock(&process->lock);
  struct state *state = process->state;
  if (!state) {
    *result = NVML_UNINITIALIZED;
  } else if (state->now != lost) {
    nvml = use(state->now);
    *result = NVML_SUCCESS;
  } else {
    *retry = state->retried == 0 || vgpu_now_ms() - state->retried >= RETRY_MS;
    *result = NVML_GPU_IS_LOST;
  }
  pthread_mutex_unlock(&process->lock);
  return nvml;
}

/*
 * Puts `fresh` in the place of `lost`. `fresh` is NULL if the host did not answer. The caller holds
 * `connecting`.
 */
static void replace(struct vgpu_process *process, struct vgpu_nvml *lost, struct vgpu_nvml *fresh) {
  struct vgpu_nvml *unused = fresh;

  pthread_mutex_lock(&process->lock);
  struct state *state = process->state;
  if (state && state->now == lost) {
    state->retried = vgpu_now_ms();
    if (fresh) {
      __atomic_store_n(&state->now, fresh, __ATOMIC_RELEASE);
      unused = lost;
    }
  }
  pthread_mutex_unlock(&process->lock);
  if (unused) release(process, unused);
}

/* Connects again in place of `lost`. A thread that arrives meanwhile waits, and gets the same session. */
static struct vgpu_nvml *reconnect(struct vgpu_process *process, struct vgpu_nvml *lost, int *result) {
  bool retry;

  pthread_mutex_lock(&process->connecting);
  struct vgpu_nvml *nvml = current(process, lost, &retry, result);
  if (retry) {
    replace(process, lost, connect_host());
    nvml = current(process, lost, &retry, result);
  }
  pthread_mutex_unlock(&process->connecting);
  return nvml;
}

static struct vgpu_nvml *usable(struct vgpu_process *process, int *result) {
  bool retry;

  *result = NVML_UNINITIALIZED;
  if (!process) return NULL;
  struct vgpu_nvml *nvml = current(process, NULL, &retry, result);
  if (!nvml || !vgpu_session_is_lost(nvml->session)) return nvml;
  struct vgpu_nvml *fresh = reconnect(process, nvml, result);
  release(process, nvml);
  return fresh;
}

struct vgpu_nvml *vgpu_nvml_enter(int *result) {
  *result = NVML_UNKNOWN;
  if (!vgpu_enter()) return NULL;
  struct vgpu_nvml *nvml = usable(vgpu_process(), result);
  if (!nvml) vgpu_leave();
  return nvml;
}

void vgpu_nvml_leave(struct vgpu_nvml *nvml) {
  release(vgpu_process(), nvml);
  vgpu_leave();
}

int vgpu_nvml_ready(void) {
  int result;
  struct vgpu_nvml *nvml = vgpu_nvml_enter(&result);

  if (nvml) vgpu_nvml_leave(nvml);
  return result;
}

bool vgpu_nvml_number(const struct vgpu_nvml *nvml, nvml_device device, uint32_t *number) {
  uintptr_t offset = (uintptr_t)device - (uintptr_t)handles; /* huge for an address before `handles` */

  *number = (uint32_t)offset;
  return offset < nvml->device_count;
}

struct vgpu_nvml *vgpu_nvml_enter_device(nvml_device device, const struct vgpu_device_facts **facts,
                                         uint32_t *index, int *result) {
  struct vgpu_nvml *nvml = vgpu_nvml_enter(result);

  if (!nvml) return NULL;
  if (!vgpu_nvml_number(nvml, device, index)) {
    vgpu_nvml_leave(nvml);
    *result = NVML_INVALID_ARGUMENT;
    return NULL;
  }
  *facts = &nvml->facts[*index];
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

  struct vgpu_nvml *nvml = vgpu_nvml_enter_device(device, &facts, &index, &result);
  if (!nvml) return result;
  *copy = *facts;
  if (number) *number = index;
  vgpu_nvml_leave(nvml);
  return out ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}
