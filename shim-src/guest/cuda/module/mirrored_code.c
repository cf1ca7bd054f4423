/*
 * Managed variables whose address the GPU's driver chooses. Shared memory is at that address here; the host
 * moves the bytes: to the device before work, back after a wait (host/backend/cuda/managed.c).
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_calls.h"
#include "guest/cuda/module/code.h"
#include "guest/log.h"

struct vgpu_mirrored_pages {
  struct vgpu_mirrored_pages *next;
  uint64_t start, end;
  uint32_t shared_region;
};

struct vgpu_mirrored {
  struct vgpu_mirrored *next;
  uint64_t code;    /* number of the module or library */
  uint64_t context; /* number of its context */
  uint64_t start, end;
};

static const char *put(struct vgpu_session *session, uint64_t start, size_t bytes, uint32_t *shared_region) {
  void *memory, *to = (void *)(uintptr_t)start;
  if (mmap(to, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) !=
      to)
    return "this process has other memory there";
  if (!vgpu_session_shared_region_make(session, bytes, shared_region, &memory)) {
    munmap(to, bytes);
    return "the host shares no more memory with this process";
  }
  if (mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to) return NULL;
  vgpu_session_shared_region_drop(session, *shared_region, memory, bytes);
  munmap(to, bytes);
  return "the kernel does not move shared memory there";
}

static int map_pages(struct vgpu_driver *driver, uint64_t context, uint64_t start, uint64_t end) {
  struct vgpu_mirrored_pages *pages = malloc(sizeof *pages);
  if (pages == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *pages = (struct vgpu_mirrored_pages){.next = driver->mirrored_pages, .start = start, .end = end};
  const char *why = vgpu_session_in_vm_memory(driver->session)
                        ? "it cannot be mapped from a VM's memory"
                        : put(driver->session, start, end - start, &pages->shared_region);
  if (why != NULL) {
    vgpu_log("a managed variable at %#llx cannot be used: %s", (unsigned long long)start, why);
    free(pages);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const struct vgpu_send_managed_mirror send = {
      .context = context, .page = start, .shared_region = pages->shared_region};
  const int result = vgpu_cuda_call(VGPU_OP_managed_mirror, &send, sizeof send, NULL, 0);
  if (result == CUDA_SUCCESS) {
    driver->mirrored_pages = pages;
    return result;
  }
  vgpu_session_shared_region_drop(driver->session, pages->shared_region, (void *)(uintptr_t)start,
                                  end - start);
  free(pages);
  return result;
}

static int map_all(struct vgpu_driver *driver, uint64_t context, uint64_t start, uint64_t end) {
  int result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && start < end) {
    uint64_t until = end;
    const struct vgpu_mirrored_pages *pages = driver->mirrored_pages;
    for (; pages != NULL && (start < pages->start || pages->end <= start); pages = pages->next)
      if (pages->start > start && pages->start < until) until = pages->start;
    if (pages != NULL) {
      start = pages->end;
      continue;
    }
    result = map_pages(driver, context, start, until);
    start = until;
  }
  return result;
}

static void give_back_unused(struct vgpu_driver *driver) {
  for (struct vgpu_mirrored_pages **link = &driver->mirrored_pages; *link != NULL;) {
    struct vgpu_mirrored_pages *pages = *link;
    const struct vgpu_mirrored *variable = driver->mirrored;
    while (variable != NULL && (variable->start >= pages->end || pages->start >= variable->end))
      variable = variable->next;
    if (variable != NULL) {
      link = &pages->next;
      continue;
    }
    *link = pages->next;
    vgpu_session_shared_region_drop(driver->session, pages->shared_region, (void *)(uintptr_t)pages->start,
                                    pages->end - pages->start);
    free(pages);
  }
}

static bool has(const struct vgpu_driver *driver, const struct vgpu_code_in *in, uint64_t start) {
  const struct vgpu_mirrored *variable = driver->mirrored;
  while (variable != NULL && (variable->start != start || variable->code != in->code))
    variable = variable->next;
  return variable != NULL;
}

int vgpu_mirrored_take(struct vgpu_driver *driver, const struct vgpu_code_in *in, uint64_t address,
                       uint64_t bytes) {
  if (has(driver, in, address)) return CUDA_SUCCESS;
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  struct vgpu_mirrored *made = malloc(sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct vgpu_mirrored){.next = driver->mirrored,
                                 .code = in->code,
                                 .context = in->library ? 0 : in->context,
                                 .start = address,
                                 .end = address + bytes};
  int result =
      map_all(driver, in->context, address - address % page, (address + bytes + page - 1) / page * page);
  const struct vgpu_send_managed_mirror send = {.context = in->context, .address = address};
  if (result == CUDA_SUCCESS) result = vgpu_cuda_call(VGPU_OP_managed_mirror, &send, sizeof send, NULL, 0);
  if (result == CUDA_SUCCESS) driver->mirrored = made;
  else {
    free(made);
    give_back_unused(driver);
  }
  return result;
}

void vgpu_mirrored_give(struct vgpu_driver *driver, uint64_t ended) {
  for (struct vgpu_mirrored **link = &driver->mirrored; *link != NULL;) {
    struct vgpu_mirrored *variable = *link;
    if (variable->code != ended && variable->context != ended) {
      link = &variable->next;
      continue;
    }
    *link = variable->next;
    free(variable);
  }
  give_back_unused(driver);
}
