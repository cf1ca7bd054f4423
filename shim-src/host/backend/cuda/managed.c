/*
 * Managed variables of modules and libraries. The driver keeps them where it wants, so guest and device
 * cannot have one copy of the bytes. The guest maps shared memory at the variable's address, and bytes move
 * when a program may notice: what the program has written goes to the device before work is queued, and what
 * the device has written comes back when the program has waited for it.
 */
#include "host/backend/cuda/managed.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_calls.h"
#include "host/backend/common/code.h"
#include "host/backend/cuda/module.h"
#include "host/backend/cuda/session.h"

#define PAGE 4096u
#define IS_MANAGED 8 /* CU_POINTER_ATTRIBUTE_IS_MANAGED */
#define MOST_RUNS 16u

/* Shared memory that the guest has at the address of one variable or more. */
struct pages {
  struct pages *next;
  uint64_t address, bytes;
  uint32_t region;
};

struct variable {
  struct variable *next;
  uint64_t context, address, bytes;
  unsigned char *last; /* the bytes that guest and device had in common, then room for as many */
};

struct vgpu_cuda_managed {
  struct pages *pages;
  struct variable *variables;
};

static bool is_managed(const struct vgpu_cuda *cuda, uint64_t address) {
  uint32_t managed = 0;
  return VGPU_DRIVER(&cuda->api, cuPointerGetAttribute, &managed, IS_MANAGED, address) == CUDA_SUCCESS &&
         managed != 0;
}

int32_t vgpu_cuda_managed_variables(struct vgpu_worker *worker,
                                    const struct vgpu_send_managed_variables *send,
                                    struct vgpu_reply_managed_variables *reply, struct vgpu_bulk *bulk) {
  int32_t result =
      vgpu_cuda_variable(worker, send->context, send->code, bulk, &reply->address, &reply->bytes);
  if (result == CUDA_ERROR_NOT_FOUND) return CUDA_SUCCESS; /* the call that asks for its address fails */
  if (result == CUDA_SUCCESS) reply->any = reply->named = is_managed(cuda_of(worker), reply->address);
  return result;
}

int32_t vgpu_cuda_managed_place(struct vgpu_worker *worker, const struct vgpu_send_managed_place *send) {
  (void)worker, (void)send;
  return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- the guest's memory ---------------------------------------------------- */

/* Returns the guest's memory for an address, and how many bytes follow there. NULL: there is none. */
static unsigned char *shadow(struct vgpu_worker *worker, uint64_t address, uint64_t *bytes) {
  const struct pages *pages = cuda_of(worker)->managed->pages;
  while (pages != NULL && (address < pages->address || address - pages->address >= pages->bytes))
    pages = pages->next;
  if (pages == NULL) return NULL;
  struct vgpu_shared_region *region = vgpu_shared_regions_find(&worker->shared_regions, pages->region);
  if (region == NULL || region->bytes != pages->bytes) return NULL;
  *bytes = pages->bytes - (address - pages->address);
  return region->memory + (address - pages->address);
}

static bool is_whole(struct vgpu_worker *worker, uint64_t address, uint64_t bytes) {
  for (uint64_t at = 0, there; at < bytes; at += there)
    if (shadow(worker, address + at, &there) == NULL) return false;
  return true;
}

/* Copies between the guest's memory and `own`. False: the guest has no memory there any more. */
static bool exchange(struct vgpu_worker *worker, const struct variable *variable, unsigned char *own,
                     bool to_guest) {
  for (uint64_t at = 0, there; at < variable->bytes; at += there) {
    unsigned char *guest = shadow(worker, variable->address + at, &there);
    if (guest == NULL) return false;
    if (there > variable->bytes - at) there = variable->bytes - at;
    for (uint64_t i = 0; to_guest && i < there; i++)
      if (own[at + i] != variable->last[at + i]) guest[i] = own[at + i];
    if (!to_guest) memcpy(own + at, guest, there);
  }
  return true;
}

/* ---- moving bytes ---------------------------------------------------------- */

static int32_t write_range(struct vgpu_worker *worker, const struct variable *variable,
                           const unsigned char *from, uint64_t begin, uint64_t end) {
  int32_t result;
  struct vgpu_stream *stream = vgpu_cuda_reader(worker, variable->context, &result);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_driver_api *api = &cuda_of(worker)->api;
  result =
      VGPU_DRIVER(api, cuMemcpyHtoDAsync_v2, variable->address + begin, from + begin, end - begin, stream);
  return result == CUDA_SUCCESS ? VGPU_DRIVER(api, cuStreamSynchronize, stream) : result;
}

/* Finds the next run of bytes that differ, from *begin on. False: there is none. */
static bool next_run(const struct variable *variable, const unsigned char *now, uint64_t *begin,
                     uint64_t *end) {
  const unsigned char *last = variable->last;
  while (*begin < variable->bytes && now[*begin] == last[*begin]) ++*begin;
  for (*end = *begin; *end < variable->bytes && now[*end] != last[*end];) ++*end;
  return *begin < variable->bytes;
}

/*
 * Writes only the bytes that the program has changed: the device may be changing the others. The last of
 * MOST_RUNS runs extends to the end of the variable.
 */
static int32_t write_changes(struct vgpu_worker *worker, struct variable *variable) {
  unsigned char *now = variable->last + variable->bytes;
  if (!exchange(worker, variable, now, false)) return CUDA_SUCCESS;
  int32_t result = CUDA_SUCCESS;
  uint64_t begin = 0, end, runs = 0;
  for (; result == CUDA_SUCCESS && next_run(variable, now, &begin, &end); begin = end) {
    if (++runs == MOST_RUNS) end = variable->bytes;
    result = write_range(worker, variable, now, begin, end);
  }
  memcpy(variable->last, now, variable->bytes);
  return result;
}

static int32_t read_changes(struct vgpu_worker *worker, struct variable *variable) {
  unsigned char *now = variable->last + variable->bytes;
  int32_t result;
  struct vgpu_stream *stream = vgpu_cuda_reader(worker, variable->context, &result);
  if (result != CUDA_SUCCESS) return result;
  const struct vgpu_driver_api *api = &cuda_of(worker)->api;
  result = VGPU_DRIVER(api, cuMemcpyDtoHAsync_v2, now, variable->address, variable->bytes, stream);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuStreamSynchronize, stream);
  if (result != CUDA_SUCCESS || !exchange(worker, variable, now, true)) return result;
  /* Bytes that the program has changed meanwhile differ from these, and go to the device later. */
  memcpy(variable->last, now, variable->bytes);
  return result;
}

static bool is_live(const struct vgpu_cuda *cuda, const struct variable *variable) {
  const struct vgpu_range *range = vgpu_ranges_find(&cuda->ranges, variable->address);
  return range != NULL && range->kind == VGPU_RANGE_VARIABLE && range->address == variable->address &&
         range->size == variable->bytes;
}

static void drop(struct vgpu_worker *worker, struct variable **link) {
  struct variable *variable = *link;
  *link = variable->next;
  vgpu_code_give(worker, 2 * variable->bytes);
  free(variable->last);
  free(variable);
}

static void move_all(struct vgpu_worker *worker, int32_t (*move)(struct vgpu_worker *, struct variable *)) {
  struct vgpu_cuda *cuda = cuda_of(worker);
  for (struct variable **link = &cuda->managed->variables; *link != NULL;) {
    struct variable *variable = *link;
    if (is_live(cuda, variable) && vgpu_cuda_enter(worker, variable->context, &cuda) == CUDA_SUCCESS) {
      (void)move(worker, variable); /* an error of the device is sticky: the program's own call reports it */
      link = &variable->next;
    } else drop(worker, link);
  }
}

void vgpu_cuda_managed_before(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row) {
  if (row->oneway && row->stream >= 0 && cuda_of(worker)->recording == NULL) move_all(worker, write_changes);
}

void vgpu_cuda_managed_after(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row) {
  switch (row->opcode) {
    case VGPU_OP_cuCtxSynchronize:
    case VGPU_OP_cuEventQuery:
    case VGPU_OP_cuEventSynchronize:
    case VGPU_OP_cuMemcpyDtoHAsync_v2:
    case VGPU_OP_cuMemcpyDtoH_v2:
    case VGPU_OP_cuStreamQuery:
    case VGPU_OP_cuStreamSynchronize:
    case VGPU_OP_read_fetch:
    case VGPU_OP_read_rows:
      move_all(worker, read_changes);
      break;
    default:
      break;
  }
}

/* ---- the beginning and the end ----------------------------------------------- */

static bool make(struct vgpu_cuda *cuda) {
  if (cuda->managed == NULL) cuda->managed = calloc(1, sizeof *cuda->managed);
  return cuda->managed != NULL;
}

static bool overlaps(const struct pages *pages, uint64_t address, uint64_t bytes) {
  while (pages != NULL && (pages->address >= address + bytes || address >= pages->address + pages->bytes))
    pages = pages->next;
  return pages != NULL;
}

static int32_t add_pages(struct vgpu_worker *worker, const struct vgpu_send_managed_mirror *send) {
  struct vgpu_cuda_managed *managed = cuda_of(worker)->managed;
  const struct vgpu_shared_region *region =
      vgpu_shared_regions_find(&worker->shared_regions, send->shared_region);
  if (region == NULL || send->page % PAGE != 0 || send->page + region->bytes < send->page ||
      overlaps(managed->pages, send->page, region->bytes))
    return CUDA_ERROR_INVALID_VALUE;
  struct pages *made = malloc(sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct pages){
      .next = managed->pages, .address = send->page, .bytes = region->bytes, .region = send->shared_region};
  managed->pages = made;
  return CUDA_SUCCESS;
}

static struct variable **find(struct vgpu_cuda_managed *managed, uint64_t address) {
  struct variable **link = &managed->variables;
  while (*link != NULL && (*link)->address != address) link = &(*link)->next;
  return link;
}

/* Adds a variable, and gives the guest its bytes. */
static int32_t add_variable(struct vgpu_worker *worker, uint64_t context, const struct vgpu_range *range) {
  struct vgpu_cuda_managed *managed = cuda_of(worker)->managed;
  struct variable **there = find(managed, range->address);
  if (*there != NULL) drop(worker, there);
  if (!vgpu_code_take(worker, 2 * range->size)) return CUDA_ERROR_OUT_OF_MEMORY;
  struct variable *made = malloc(sizeof *made);
  unsigned char *last = calloc(2, range->size);
  if (made == NULL || last == NULL) {
    free(made);
    free(last);
    vgpu_code_give(worker, 2 * range->size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *made = (struct variable){.next = managed->variables,
                            .context = context,
                            .address = range->address,
                            .bytes = range->size,
                            .last = last};
  managed->variables = made;
  /* The guest's memory is new and has zeros, or has the bytes of an earlier variable. */
  if (!exchange(worker, made, last, false)) return CUDA_ERROR_INVALID_VALUE;
  return read_changes(worker, made);
}

int32_t vgpu_cuda_managed_mirror(struct vgpu_worker *worker, const struct vgpu_send_managed_mirror *send) {
  struct vgpu_cuda *cuda;
  int32_t result = vgpu_cuda_enter(worker, send->context, &cuda);
  if (result != CUDA_SUCCESS) return result;
  if (!make(cuda)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (send->shared_region != 0) result = add_pages(worker, send);
  if (result != CUDA_SUCCESS || send->address == 0) return result;
  const struct vgpu_range *range = vgpu_ranges_find(&cuda->ranges, send->address);
  if (range == NULL || range->kind != VGPU_RANGE_VARIABLE || range->address != send->address ||
      !is_managed(cuda, send->address) || !is_whole(worker, range->address, range->size))
    return CUDA_ERROR_INVALID_VALUE;
  return add_variable(worker, send->context, range);
}

void vgpu_cuda_managed_forget(struct vgpu_worker *worker, const struct vgpu_shared_region *region) {
  if (cuda_of(worker)->managed == NULL) return;
  for (struct pages **link = &cuda_of(worker)->managed->pages; *link != NULL;) {
    struct pages *pages = *link;
    if (vgpu_shared_regions_find(&worker->shared_regions, pages->region) != region) {
      link = &pages->next;
      continue;
    }
    *link = pages->next;
    free(pages);
  }
}
