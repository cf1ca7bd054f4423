/*
 * User objects: objects of the program that live as long as the program, a graph or an executable has a
 * reference to them. They exist only in the guest; the host does not know them.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/graph/graph.h"

enum { NO_DESTRUCTOR_SYNC = 1 }; /* CUuserObject_flags */
enum { MOVE = 1 };               /* CUuserObjectRetain_flags */

struct user_object {
  uint64_t references; /* references of the program, of graphs and of executables; under graph_lock */
  void (*destroy)(void *data);
  void *data;
};

struct vgpu_hold {
  struct user_object *object;
  uint64_t count;
};

static struct user_object *find(struct vgpu_driver *driver, const void *handle) {
  pthread_mutex_lock(&driver->lock);
  bool live = vgpu_objects_has(&driver->objects, handle, VGPU_OBJECT_USER);
  pthread_mutex_unlock(&driver->lock);
  return live ? (struct user_object *)(uintptr_t)handle : NULL;
}

/*
 * Drops references. The last one calls the program's destructor on a thread of this library, because the
 * calling thread may hold a lock that the destructor takes.
 */
static void drop(struct vgpu_driver *driver, struct user_object *object, uint64_t count) {
  object->references -= count;
  if (object->references > 0) return;
  pthread_mutex_lock(&driver->lock);
  vgpu_objects_remove(&driver->objects, object, VGPU_OBJECT_USER);
  pthread_mutex_unlock(&driver->lock);
  if (!vgpu_host_functions_detached(driver, 0, object->destroy, object->data)) object->destroy(object->data);
  free(object);
}

static struct vgpu_hold *hold_of(const struct vgpu_holds *holds, const struct user_object *object) {
  for (size_t i = 0; i < holds->count; i++) {
    if (holds->list[i].object == object) return &holds->list[i];
  }
  return NULL;
}

/* Moves references of the caller to `holds`. */
static bool hold(struct vgpu_holds *holds, struct user_object *object, uint64_t count) {
  struct vgpu_hold *found = hold_of(holds, object);
  if (found == NULL) {
    struct vgpu_hold *grown = realloc(holds->list, (holds->count + 1) * sizeof *grown);
    if (grown == NULL) return false;
    holds->list = grown;
    found = &grown[holds->count++];
    *found = (struct vgpu_hold){.object = object};
  }
  found->count += count;
  return true;
}

bool vgpu_holds_join(struct vgpu_holds *to, const struct vgpu_holds *more) {
  for (size_t i = 0; i < more->count; i++) {
    if (!hold(to, more->list[i].object, more->list[i].count)) return false;
    more->list[i].object->references += more->list[i].count;
  }
  return true;
}

bool vgpu_holds_take(struct vgpu_holds *to, const struct vgpu_graph *graph) {
  bool taken = vgpu_holds_join(to, &graph->holds);
  for (size_t i = 0; taken && i < graph->count; i++) {
    const struct vgpu_node *node = graph->nodes[i];
    if (node->child != NULL) taken = vgpu_holds_take(to, node->child);
    for (uint32_t j = 0; taken && node->bodies != NULL && j < node->work.given.condition.size; j++)
      taken = vgpu_holds_take(to, node->bodies[j]);
  }
  return taken;
}

void vgpu_holds_release(struct vgpu_driver *driver, struct vgpu_holds *holds) {
  for (size_t i = 0; i < holds->count; i++) drop(driver, holds->list[i].object, holds->list[i].count);
  free(holds->list);
  *holds = (struct vgpu_holds){0};
}

struct release {
  struct vgpu_driver *driver;
  struct vgpu_holds holds;
};

static void release_now(void *data) {
  struct release *release = data;
  pthread_mutex_lock(&release->driver->graph_lock);
  vgpu_holds_release(release->driver, &release->holds);
  pthread_mutex_unlock(&release->driver->graph_lock);
  free(release);
}

void vgpu_holds_release_after(struct vgpu_driver *driver, struct vgpu_holds *holds, uint64_t context) {
  struct release *release = holds->count == 0 ? NULL : malloc(sizeof *release);
  if (release == NULL) { /* nothing to do, or no memory to do it later */
    vgpu_holds_release(driver, holds);
    return;
  }
  *release = (struct release){.driver = driver, .holds = *holds};
  if (vgpu_host_functions_detached(driver, context, release_now, release)) {
    *holds = (struct vgpu_holds){0};
  } else {
    free(release);
    vgpu_holds_release(driver, holds);
  }
}

static bool is_count(uint32_t count) {
  return count > 0 && count <= INT_MAX;
}

int cuUserObjectCreate(void **object_out, void *ptr, void *destroy, uint32_t initialRefcount,
                       uint32_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return result;
  if (object_out == NULL || destroy == NULL || !is_count(initialRefcount) || flags != NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct user_object *object = malloc(sizeof *object);
  if (object == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *object = (struct user_object){.references = initialRefcount, .data = ptr};
  memcpy(&object->destroy, &destroy, sizeof destroy); /* C has no conversion from a pointer to a function */
  pthread_mutex_lock(&driver->lock);
  bool added = vgpu_objects_add(&driver->objects, object, VGPU_OBJECT_USER);
  pthread_mutex_unlock(&driver->lock);
  if (!added) {
    free(object);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *object_out = object;
  return CUDA_SUCCESS;
}

int cuUserObjectRetain(void *handle, uint32_t count) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct user_object *object = find(driver, handle);
  if (object == NULL || !is_count(count)) return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  object->references += count;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuUserObjectRelease(void *handle, uint32_t count) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct user_object *object = find(driver, handle);
  if (object == NULL || !is_count(count) || count > object->references) {
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  }
  drop(driver, object, count);
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphRetainUserObject(void *hGraph, void *handle, uint32_t count, uint32_t flags) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  struct user_object *object = find(driver, handle);
  if (graph == NULL || object == NULL || !is_count(count) || (flags & ~(uint32_t)MOVE) != 0 ||
      (flags == MOVE && count > object->references)) {
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  }
  if (!hold(&graph->holds, object, count)) return vgpu_graph_leave(driver, CUDA_ERROR_OUT_OF_MEMORY);
  if (flags != MOVE) object->references += count;
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}

int cuGraphReleaseUserObject(void *hGraph, void *handle, uint32_t count) {
  int result;
  struct vgpu_driver *driver = vgpu_graph_enter(&result);
  if (driver == NULL) return result;
  struct vgpu_graph *graph = vgpu_graph_find(driver, hGraph);
  struct user_object *object = find(driver, handle);
  struct vgpu_hold *found = graph == NULL || object == NULL ? NULL : hold_of(&graph->holds, object);
  if (found == NULL || !is_count(count) || count > found->count) {
    return vgpu_graph_leave(driver, CUDA_ERROR_INVALID_VALUE);
  }
  found->count -= count;
  if (found->count == 0) *found = graph->holds.list[--graph->holds.count];
  drop(driver, object, count);
  return vgpu_graph_leave(driver, CUDA_SUCCESS);
}
