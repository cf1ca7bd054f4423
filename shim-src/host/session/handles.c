#include "host/session/handles.h"

#include <stdlib.h>

static size_t home(const struct vgpu_handles *handles, uint64_t number) {
  return (size_t)(number * 0x9e3779b97f4a7c15ull >> 17) & (handles->capacity - 1);
}

/* Linear probing: returns the place of `number`, or the free place for it. */
static size_t probe(const struct vgpu_handles *handles, uint64_t number) {
  size_t at = home(handles, number);
  while (handles->places[at].number != 0 && handles->places[at].number != number) {
    at = (at + 1) & (handles->capacity - 1);
  }
  return at;
}

static bool grow(struct vgpu_handles *handles) {
  if ((handles->count + 1) * 2 <= handles->capacity) return true;
  struct vgpu_handles bigger = {.capacity = handles->capacity == 0 ? 64 : handles->capacity * 2,
                                .count = handles->count,
                                .limit = handles->limit};
  bigger.places = calloc(bigger.capacity, sizeof *bigger.places);
  if (bigger.places == NULL) return false;
  for (size_t i = 0; i < handles->capacity; i++) {
    const struct vgpu_handle *handle = &handles->places[i];
    if (handle->number != 0) bigger.places[probe(&bigger, handle->number)] = *handle;
  }
  free(handles->places);
  *handles = bigger;
  return true;
}

struct vgpu_handle *vgpu_handles_add(struct vgpu_handles *handles, uint64_t number,
                                     enum vgpu_handle_type type) {
  if (number == 0 || handles->count >= handles->limit || !grow(handles)) return NULL;
  struct vgpu_handle *place = &handles->places[probe(handles, number)];
  if (place->number != 0) return NULL;
  *place = (struct vgpu_handle){.number = number, .type = type};
  handles->count++;
  return place;
}

struct vgpu_handle *vgpu_handles_find(struct vgpu_handles *handles, uint64_t number,
                                      enum vgpu_handle_type type) {
  if (number == 0 || handles->capacity == 0) return NULL;
  struct vgpu_handle *place = &handles->places[probe(handles, number)];
  return place->number == number && place->type == type ? place : NULL;
}

/* Removes an entry and closes the gap, so that probing needs no tombstones. */
static void remove_at(struct vgpu_handles *handles, size_t gap) {
  size_t mask = handles->capacity - 1;
  for (size_t at = (gap + 1) & mask; handles->places[at].number != 0; at = (at + 1) & mask) {
    size_t distance_home = (at - home(handles, handles->places[at].number)) & mask;
    size_t distance_gap = (at - gap) & mask;
    if (distance_home >= distance_gap) {
      handles->places[gap] = handles->places[at];
      gap = at;
    }
  }
  handles->places[gap].number = 0;
  handles->count--;
}

bool vgpu_handles_remove(struct vgpu_handles *handles, uint64_t number, enum vgpu_handle_type type) {
  struct vgpu_handle *place = vgpu_handles_find(handles, number, type);
  if (place == NULL) return false;
  remove_at(handles, (size_t)(place - handles->places));
  return true;
}

void vgpu_handles_remove_context(struct vgpu_handles *handles, uint64_t context) {
  size_t at = 0;
  while (at < handles->capacity) {
    struct vgpu_handle *place = &handles->places[at];
    bool belongs = place->number != 0 && place->context == context;
    if (belongs) remove_at(handles, at); /* another entry may have moved here: check it again */
    else at++;
  }
  /* An entry that wrapped around the end may have moved to a place that was already checked. */
  for (at = 0; at < handles->capacity; at++) {
    if (handles->places[at].number != 0 && handles->places[at].context == context) {
      remove_at(handles, at);
      at = (size_t)-1;
    }
  }
}
