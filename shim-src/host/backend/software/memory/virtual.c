#include "host/backend/software/memory/virtual.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_handlers.h"
#include "host/backend/software/software.h"
#include "wire/shared.h"

#define GRANULARITY (2ull << 20)
#define LARGEST (1ull << 44)
#define READ_WRITE 3u /* CUmemAccess_flags */

struct physical {
  uint64_t number; /* number of the guest's handle; 0: it has none, or no longer */
  uint64_t size;
  uint64_t offset; /* offset in the file */
  int file;        /* a file of its own, once it is shared; -1: the common file */
  struct vgpu_token token;
  uint32_t device;
  uint32_t mappings;
};

struct mapping {
  uint64_t start;
  uint64_t size;
  struct physical *physical;
  uint32_t devices; /* a bit for each device that may access it */
};

struct vgpu_virtual {
  int file;
  uint64_t end;             /* end of the file: each offset is used once */
  struct mapping *mappings; /* sorted by address */
  size_t count;
  size_t capacity;
  struct physical **physicals;
  size_t physical_count;
  size_t physical_capacity;
};

static bool is_range(uint64_t start, uint64_t size) {
  return size != 0 && size <= LARGEST && size % GRANULARITY == 0 && start % GRANULARITY == 0 &&
         start + size > start;
}

static struct vgpu_virtual *get_virtual(struct vgpu_worker *worker) {
  if (software_of(worker)->memory.virtual != NULL) return software_of(worker)->memory.virtual;
  struct vgpu_virtual *virtual = calloc(1, sizeof *virtual);
  if (virtual == NULL) return NULL;
  virtual->file = memfd_create("vgpu-device-memory", MFD_CLOEXEC);
  if (virtual->file < 0) {
    free(virtual);
    return NULL;
  }
  return software_of(worker)->memory.virtual = virtual;
}

/* Returns the number of mappings that end at or below `address`. */
static size_t first_behind(const struct vgpu_virtual *virtual, uint64_t address) {
  size_t low = 0, high = virtual->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (virtual->mappings[middle].start + virtual->mappings[middle].size <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

bool vgpu_virtual_accessible(const struct vgpu_virtual *virtual, uint64_t address, uint64_t bytes) {
  if (virtual == NULL) return false;
  size_t at = first_behind(virtual, address);
  for (;; at++) {
    if (at == virtual->count) return false;
    const struct mapping *mapping = &virtual->mappings[at];
    if (mapping->start > address || mapping->devices == 0) return false;
    uint64_t here = mapping->start + mapping->size - address;
    if (bytes <= here) return true;
    bytes -= here;
    address += here;
  }
}

bool vgpu_virtual_extent(const struct vgpu_virtual *virtual, uint64_t address, uint32_t device,
                         uint64_t *start, uint64_t *size) {
  if (virtual == NULL) return false;
  const struct mapping *mappings = virtual->mappings;
  const uint32_t bit = 1u << device;
  size_t first = first_behind(virtual, address);
  if (first == virtual->count || mappings[first].start > address || (mappings[first].devices & bit) == 0)
    return false;
  size_t last = first;
  while (first > 0 && (mappings[first - 1].devices & bit) != 0 &&
         mappings[first - 1].start + mappings[first - 1].size == mappings[first].start) {
    first--;
  }
  while (last + 1 < virtual->count && (mappings[last + 1].devices & bit) != 0 &&
         mappings[last].start + mappings[last].size == mappings[last + 1].start) {
    last++;
  }
  *start = mappings[first].start;
  *size = mappings[last].start + mappings[last].size - *start;
  return true;
}

int32_t vgpu_software_cuMemAddressReserve(struct vgpu_worker *worker,
                                          const struct vgpu_send_cuMemAddressReserve *send,
                                          struct vgpu_reply_cuMemAddressReserve *reply) {
  if (!is_range(0, send->size) || (send->alignment & (send->alignment - 1)) != 0 ||
      send->alignment > LARGEST) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (software_of(worker)->memory.count + worker->handles.count >= worker->limits->session_handles)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (get_virtual(worker) == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  reply->address =
      vgpu_memory_reserve(&software_of(worker)->memory, send->size, send->alignment, send->address);
  return reply->address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

int32_t vgpu_software_cuMemAddressFree(struct vgpu_worker *worker,
                                       const struct vgpu_send_cuMemAddressFree *send) {
  const struct vgpu_virtual *virtual = software_of(worker)->memory.virtual;
  if (virtual == NULL || !is_range(send->address, send->size)) return CUDA_ERROR_INVALID_VALUE;
  size_t at = first_behind(virtual, send->address);
  if (at < virtual->count && virtual->mappings[at].start < send->address + send->size)
    return CUDA_ERROR_INVALID_VALUE;
  return vgpu_memory_unreserve(&software_of(worker)->memory, send->address, send->size)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

static struct physical *find_physical(const struct vgpu_virtual *virtual, uint64_t number) {
  if (virtual == NULL || number == 0) return NULL;
  for (size_t i = virtual->physical_count; i > 0; i--) {
    if (virtual->physicals[i - 1]->number == number) return virtual->physicals[i - 1];
  }
  return NULL;
}

static bool make_room(void **array, size_t *capacity, size_t count, size_t element) {
  if (count < *capacity) return true;
  size_t bigger = *capacity == 0 ? 64 : *capacity * 2;
  void *moved = realloc(*array, bigger * element);
  if (moved == NULL) return false;
  *array = moved;
  *capacity = bigger;
  return true;
}

int32_t vgpu_software_cuMemCreate(struct vgpu_worker *worker, const struct vgpu_send_cuMemCreate *send) {
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  if (send->handle == 0 || !is_range(0, send->size)) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_virtual *virtual = get_virtual(worker);
  if (virtual == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  if (find_physical(virtual, send->handle) != NULL) return CUDA_ERROR_INVALID_VALUE;
  if (virtual->physical_count + worker->handles.count >= worker->limits->session_handles ||
      !make_room((void **)&virtual->physicals, &virtual->physical_capacity, virtual->physical_count,
                 sizeof *virtual->physicals)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  struct physical *physical = malloc(sizeof *physical);
  if (physical == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!vgpu_accounts_take(worker->accounts, worker->slot, send->device, send->size,
                          worker->limits->session_memory)) {
    free(physical);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (ftruncate(virtual->file, (off_t)(virtual->end + send->size)) != 0) {
    vgpu_accounts_give(worker->accounts, worker->slot, send->device, send->size);
    free(physical);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *physical = (struct physical){
      .number = send->handle, .size = send->size, .offset = virtual->end, .file = -1, .device = send->device};
  virtual->end += send->size;
  virtual->physicals[virtual->physical_count++] = physical;
  return CUDA_SUCCESS;
}

static void give_back_pages(const struct vgpu_virtual *virtual, const struct physical *physical) {
  fallocate(virtual->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical->offset,
            (off_t)physical->size);
}

static void drop_if_unused(struct vgpu_worker *worker, struct physical *physical) {
  if (physical->number != 0 || physical->mappings > 0) return;
  struct vgpu_virtual *virtual = software_of(worker)->memory.virtual;
  vgpu_exchange_withdraw(worker, &physical->token);
  if (physical->file >= 0) close(physical->file);
  else give_back_pages(virtual, physical);
  vgpu_accounts_give(worker->accounts, worker->slot, physical->device, physical->size);
  size_t at = 0;
  while (virtual->physicals[at] != physical) at++;
  virtual->physicals[at] = virtual->physicals[--virtual->physical_count];
  free(physical);
}

int32_t vgpu_software_cuMemRelease(struct vgpu_worker *worker, const struct vgpu_send_cuMemRelease *send) {
  struct physical *physical = find_physical(software_of(worker)->memory.virtual, send->handle);
  if (physical == NULL) return CUDA_ERROR_INVALID_VALUE;
  physical->number = 0;
  drop_if_unused(worker, physical);
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuMemMap(struct vgpu_worker *worker, const struct vgpu_send_cuMemMap *send) {
  struct vgpu_virtual *virtual = software_of(worker)->memory.virtual;
  struct physical *physical = find_physical(virtual, send->handle);
  if (physical == NULL || !is_range(send->address, send->size) || send->offset != 0 ||
      send->size > physical->size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const struct vgpu_allocation *reservation =
      vgpu_memory_reservation(&software_of(worker)->memory, send->address, send->size);
  size_t at = first_behind(virtual, send->address);
  if (reservation == NULL ||
      (at < virtual->count && virtual->mappings[at].start < send->address + send->size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!make_room((void **)&virtual->mappings, &virtual->capacity, virtual->count,
                 sizeof *virtual->mappings)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  unsigned char *where = reservation->memory + (send->address - reservation->address);
  if (mmap(where, send->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
           physical->file >= 0 ? physical->file : virtual->file, (off_t)physical->offset) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memmove(&virtual->mappings[at + 1], &virtual->mappings[at],
          (virtual->count - at) * sizeof *virtual->mappings);
  virtual->mappings[at] = (struct mapping){.start = send->address, .size = send->size, .physical = physical};
  virtual->count++;
  physical->mappings++;
  return CUDA_SUCCESS;
}

/* True if mappings [*first, *last) cover exactly this range. */
static bool covers(const struct vgpu_virtual *virtual, uint64_t start, uint64_t size, size_t *first,
                   size_t *last) {
  if (virtual == NULL || !is_range(start, size)) return false;
  size_t at = *first = first_behind(virtual, start);
  uint64_t reached = start;
  for (; at < virtual->count && reached < start + size; at++) {
    if (virtual->mappings[at].start != reached) return false;
    reached += virtual->mappings[at].size;
  }
  *last = at;
  return reached == start + size;
}

int32_t vgpu_software_cuMemUnmap(struct vgpu_worker *worker, const struct vgpu_send_cuMemUnmap *send) {
  struct vgpu_virtual *virtual = software_of(worker)->memory.virtual;
  size_t first, last;
  if (!covers(virtual, send->address, send->size, &first, &last)) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_allocation *reservation =
      vgpu_memory_reservation(&software_of(worker)->memory, send->address, send->size);
  if (reservation == NULL) return CUDA_ERROR_INVALID_VALUE;
  unsigned char *where = reservation->memory + (send->address - reservation->address);
  if (mmap(where, send->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (size_t i = first; i < last; i++) {
    virtual->mappings[i].physical->mappings--;
    drop_if_unused(worker, virtual->mappings[i].physical);
  }
  memmove(&virtual->mappings[first], &virtual->mappings[last],
          (virtual->count - last) * sizeof *virtual->mappings);
  virtual->count -= last - first;
  return CUDA_SUCCESS;
}

int32_t vgpu_software_cuMemSetAccess(struct vgpu_worker *worker,
                                     const struct vgpu_send_cuMemSetAccess *send) {
  struct vgpu_virtual *virtual = software_of(worker)->memory.virtual;
  size_t first, last;
  if (send->flags > READ_WRITE || send->flags == 2 ||
      !covers(virtual, send->address, send->size, &first, &last)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (send->device >= worker->inventory->count) return CUDA_ERROR_INVALID_DEVICE;
  for (size_t i = first; i < last; i++) {
    if (send->flags != 0) virtual->mappings[i].devices |= 1u << send->device;
    else virtual->mappings[i].devices &= ~(1u << send->device);
  }
  return CUDA_SUCCESS;
}

int32_t vgpu_software_retain_handle(struct vgpu_worker *worker, const struct vgpu_send_retain_handle *send) {
  struct vgpu_virtual *virtual = software_of(worker)->memory.virtual;
  if (virtual == NULL || send->handle == 0 || find_physical(virtual, send->handle) != NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t at = first_behind(virtual, send->address);
  if (at == virtual->count || virtual->mappings[at].start > send->address ||
      virtual->mappings[at].physical->number != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  virtual->mappings[at].physical->number = send->handle;
  return CUDA_SUCCESS;
}

/* ---- shared with other sessions ------------------------------------------ */

/* Moves the memory to a file that no other mapping uses. False: no memory. */
static bool part(struct vgpu_worker *worker, struct physical *physical) {
  struct vgpu_virtual *virtual = software_of(worker)->memory.virtual;
  int file = vgpu_shared_make("vgpu-device-memory", physical->size);
  void *to = file < 0 ? NULL : vgpu_shared_map(file, physical->size);
  void *from = mmap(NULL, physical->size, PROT_READ, MAP_SHARED, virtual->file, (off_t)physical->offset);
  bool good = to != NULL && from != MAP_FAILED;
  if (good) memcpy(to, from, physical->size);
  for (size_t i = 0; good && i < virtual->count; i++) {
    const struct mapping *mapping = &virtual->mappings[i];
    if (mapping->physical != physical) continue;
    const struct vgpu_allocation *reservation =
        vgpu_memory_reservation(&software_of(worker)->memory, mapping->start, mapping->size);
    good = reservation != NULL &&
           mmap(reservation->memory + (mapping->start - reservation->address), mapping->size,
                PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0) != MAP_FAILED;
  }
  if (to != NULL) munmap(to, physical->size);
  if (from != MAP_FAILED) munmap(from, physical->size);
  if (!good) {
    if (file >= 0) close(file);
    return false;
  }
  give_back_pages(virtual, physical);
  physical->file = file;
  physical->offset = 0;
  return true;
}

int32_t vgpu_virtual_share(struct vgpu_worker *worker, uint64_t handle, struct vgpu_token *token,
                           uint64_t *bytes) {
  struct physical *physical = find_physical(software_of(worker)->memory.virtual, handle);
  if (physical == NULL) return CUDA_ERROR_INVALID_VALUE;
  *bytes = physical->size;
  int32_t result = CUDA_SUCCESS;
  if ((physical->token.words[0] | physical->token.words[1]) == 0) {
    if (!worker->exchanges || physical->file >= 0) return CUDA_ERROR_NOT_SUPPORTED; /* it was opened here */
    if (!part(worker, physical)) return CUDA_ERROR_OUT_OF_MEMORY;
    result = vgpu_exchange_publish(worker, VGPU_EXCHANGE_PHYSICAL, physical->file, physical->size,
                                   &physical->token);
  }
  *token = physical->token;
  return result;
}

int32_t vgpu_virtual_open(struct vgpu_worker *worker, uint64_t handle, uint32_t device, int descriptor,
                          uint64_t bytes) {
  struct vgpu_virtual *virtual = get_virtual(worker);
  if (!is_range(0, bytes) || handle == 0 || device >= worker->inventory->count)
    return CUDA_ERROR_INVALID_VALUE;
  if (virtual == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  if (find_physical(virtual, handle) != NULL) return CUDA_ERROR_INVALID_VALUE;
  if (virtual->physical_count + worker->handles.count >= worker->limits->session_handles ||
      !make_room((void **)&virtual->physicals, &virtual->physical_capacity, virtual->physical_count,
                 sizeof *virtual->physicals))
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct physical *physical = malloc(sizeof *physical);
  int file = physical == NULL ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (file < 0 ||
      !vgpu_accounts_take(worker->accounts, worker->slot, device, bytes, worker->limits->session_memory)) {
    if (file >= 0) close(file);
    free(physical);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *physical = (struct physical){.number = handle, .size = bytes, .file = file, .device = device};
  virtual->physicals[virtual->physical_count++] = physical;
  return CUDA_SUCCESS;
}
