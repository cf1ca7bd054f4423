/*
 * The handles of one session: numbers that the guest chooses, each with a type. A number that is unknown, or
 * of another type, is not found.
 */
#ifndef VGPU_HOST_HANDLES_H
#define VGPU_HOST_HANDLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vgpu_handle_type {
  VGPU_HANDLE_CONTEXT = 1,
  VGPU_HANDLE_STREAM = 2,
  VGPU_HANDLE_EVENT = 3,
  VGPU_HANDLE_POOL = 4,
  VGPU_HANDLE_ARRAY = 5,
  VGPU_HANDLE_RESOURCES = 6, /* descriptor of resources of a device */
  VGPU_HANDLE_MODULE = 16,
  VGPU_HANDLE_FUNCTION = 17,
  VGPU_HANDLE_LIBRARY = 18,
  VGPU_HANDLE_KERNEL = 19,
  VGPU_HANDLE_EXEC = 20,
};

#define VGPU_FIRST_HANDLE 3u /* smaller numbers are the default streams */

struct vgpu_handle {
  uint64_t number; /* 0: the place is free */
  enum vgpu_handle_type type;
  uint32_t device;
  uint64_t context; /* of a context: its own number */
  uint32_t flags;
  uint32_t stack; /* --device software: a context's CU_LIMIT_STACK_SIZE; 0: not set. --device cuda: bytes of
                     local memory that a kernel loaded in the context needs */
  bool waits;     /* --device cuda, a context: a stream may wait for a value of a later call */
  bool recorded;  /* event */
  int64_t nanoseconds; /* event: when recorded */
  void *driver;        /* --device cuda: the driver's own handle */
  uint64_t
      owner;    /* --device cuda: number of its module or library; a green context: of its primary; 0: none */
  uint32_t sms; /* --device software: multiprocessors of a descriptor or a green context; 0: all */
  bool primary; /* --device cuda: a context that is retained, not created */
  void *object; /* module, function, library, kernel, exec, pool: the object itself; --device cuda: the green
                   context */
  uint32_t pending; /* event: records that its stream has not reached yet */
  uint64_t stream;  /* event: stream of its last record, while pending */
  uint64_t awaited; /* event: its last record if that is queued (software/order/queue.c); 0: it is not */
};

/*
 * Returns the pending records. For an event that other sessions share, `object` has the count that all of
 * them see.
 */
static inline uint32_t vgpu_event_pending(const struct vgpu_handle *event) {
  return event->object == NULL ? event->pending
                               : __atomic_load_n((uint32_t *)event->object, __ATOMIC_ACQUIRE);
}
static inline void vgpu_event_pending_add(struct vgpu_handle *event, int32_t change) {
  if (event->object == NULL) event->pending += (uint32_t)change;
  else __atomic_add_fetch((uint32_t *)event->object, (uint32_t)change, __ATOMIC_ACQ_REL);
}

struct vgpu_handles {
  struct vgpu_handle *places;
  size_t capacity; /* 0 or a power of two */
  size_t count;
  size_t limit;
};

/*
 * Adds a handle. Returns its place, valid until the next add or remove. NULL: the number is used, or there is
 * no room.
 */
struct vgpu_handle *vgpu_handles_add(struct vgpu_handles *handles, uint64_t number,
                                     enum vgpu_handle_type type);
struct vgpu_handle *vgpu_handles_find(struct vgpu_handles *handles, uint64_t number,
                                      enum vgpu_handle_type type);
bool vgpu_handles_remove(struct vgpu_handles *handles, uint64_t number, enum vgpu_handle_type type);

/* Removes all handles of a context, including the context's own. */
void vgpu_handles_remove_context(struct vgpu_handles *handles, uint64_t context);

#endif
