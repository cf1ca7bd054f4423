/*
 * A fork()ed child must have its own copy of this memory. So before a fork it becomes private, and afterwards
 * the parent shares it again: bytes that the program wrote meanwhile are then copied over bytes of the
 * device.
 */
#include "guest/cuda/memory/registered.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest/cuda/internal.h"
#include "guest/in_place.h"
#include "guest/log.h"
#include "guest/own_mappings.h"

#define READ_ONLY 8u /* CU_MEMHOSTREGISTER_READ_ONLY */

/*
 * A stretch of pages that was not shared before. Regions in the same page share a range, and a region may
 * need several.
 */
struct lent_range {
  struct lent_range *next;
  struct vgpu_driver *driver;
  unsigned char *pages;
  size_t bytes;
  void *mirror; /* a second mapping of the shared memory */
  void *before; /* during a fork: the content when it became private; NULL: it is shared */
  uint32_t shared_region;
  bool read_only; /* for the device */
  struct vgpu_mapped_file file;
};

struct lent_region {
  struct lent_region *next;
  struct vgpu_driver *driver;
  uint64_t start;
  unsigned char *pages;
  size_t bytes;
  bool read_only;
};

/* fork() handlers take no argument. */
static struct {
  pthread_mutex_t lock;
  struct lent_range *first;
  struct lent_region *regions;
} lent = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool touches(const struct lent_region *region, const struct lent_range *range) {
  return range->pages < region->pages + region->bytes && region->pages < range->pages + range->bytes;
}

static bool set_lent(const struct lent_region *region, enum vgpu_region_lent value) {
  return vgpu_regions_set_lent(&region->driver->regions, region->start, VGPU_REGION_REGISTERED, value);
}

/*
 * True if all of [from, end), which lies in the range, is still mapped. False: the program has unmapped a
 * part.
 */
static bool is_mapped(const struct lent_range *range, uintptr_t from, uintptr_t end) {
  uintptr_t base = (uintptr_t)range->pages, at = from, until;
  for (; at < end; at = from = until) {
    if (!vgpu_mappings_next(&range->file, base, end, &from, &until) || from != at) return false;
  }
  return true;
}

static bool is_whole(const struct lent_range *range) {
  return is_mapped(range, (uintptr_t)range->pages, (uintptr_t)range->pages + range->bytes);
}

static void before_fork(void) {
  pthread_mutex_lock(&lent.lock);
  bool pinned = lent.first != NULL && vgpu_mappings_pinned();
  for (struct lent_range *range = lent.first; range != NULL && !pinned; range = range->next) {
    if (!is_whole(range)) continue;
    void *before = mmap(NULL, range->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (before == MAP_FAILED) continue;
    if (vgpu_in_place_unshare(range->pages, range->bytes, before) == NULL) range->before = before;
    else munmap(before, range->bytes);
  }
}

static void share_again(struct lent_range *range) {
  const char *why = vgpu_mappings_unlike_heap(range->pages, range->bytes);
  if (why == NULL) why = vgpu_in_place_share(range->pages, range->bytes, range->mirror, range->before);
  munmap(range->before, range->bytes);
  range->before = NULL;
  if (why == NULL) return;
  /* A kernel that uses it must fail, not see other memory than the program. */
  vgpu_log("registered memory at %p lost its address on the device in a fork: %s", (void *)range->pages, why);
  vgpu_lent_end(range->pages);
  for (const struct lent_region *region = lent.regions; region != NULL; region = region->next) {
    if (touches(region, range)) set_lent(region, VGPU_NOT_LENT);
  }
}

static void after_fork_in_parent(void) {
  for (struct lent_range *range = lent.first; range != NULL; range = range->next) {
    if (range->before != NULL) share_again(range);
  }
  pthread_mutex_unlock(&lent.lock);
}

static void after_fork_in_child(void) {
  struct lent_range *next;
  struct lent_region *next_region;
  for (struct lent_region *region = lent.regions; region != NULL; region = next_region) {
    next_region = region->next;
    free(region);
  }
  lent.regions = NULL;
  for (struct lent_range *range = lent.first; range != NULL; range = next) {
    next = range->next;
    /* The memory is still shared with the parent. A copy that is slightly late is better than none. */
    if (range->before != NULL) munmap(range->before, range->bytes);
    else if (is_whole(range)) (void)vgpu_in_place_unshare(range->pages, range->bytes, NULL);
    munmap(range->mirror, range->bytes);
    free(range);
  }
  lent.first = NULL;
  pthread_mutex_unlock(&lent.lock);
}

static void watch_forks(void) {
  if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
    vgpu_log("children of this process share its registered memory: no memory to prepare for fork()");
}

static void cover(const struct vgpu_region *region, struct lent_region *covered) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  uint64_t start = region->start - region->start % page, end = region->start + region->size + page - 1;
  covered->start = region->start;
  covered->pages = (unsigned char *)(uintptr_t)start;
  covered->bytes = end - end % page - start;
}

static const char *refusal(const unsigned char *pages, size_t bytes) {
  const char *why = vgpu_mappings_unlike_heap(pages, bytes);
  if (why == NULL && vgpu_mappings_own_stack(pages, bytes)) why = "it is the calling thread's own stack";
  if (why == NULL && vgpu_mappings_pinned()) why = "this process has memory pinned for other devices";
  return why;
}

static const char *share(struct lent_range *range) {
  struct vgpu_driver *driver = range->driver;
  range->mirror = vgpu_lent_take_for(driver, range->pages, range->bytes, range->read_only ? READ_ONLY : 0,
                                     &range->shared_region);
  if (range->mirror == NULL) return "the host shares no more memory with this process";
  const char *why = vgpu_mappings_file(range->mirror, &range->file)
                        ? vgpu_in_place_share(range->pages, range->bytes, range->mirror, NULL)
                        : "/proc/self/maps does not name the shared memory";
  if (why == NULL) return NULL;
  vgpu_lent_end(range->pages);
  vgpu_session_shared_region_drop(driver->session, range->shared_region, range->mirror, range->bytes);
  return why;
}

/* Shares pages that are not shared yet. Returns the reason if this fails, else NULL. */
static const char *share_pages(const struct lent_region *region, unsigned char *pages, size_t bytes) {
  const char *why = refusal(pages, bytes);
  if (why != NULL) return why;
  struct lent_range *made = malloc(sizeof *made);
  if (made == NULL) return "no memory";
  *made = (struct lent_range){
      .driver = region->driver, .pages = pages, .bytes = bytes, .read_only = region->read_only};
  why = share(made);
  if (why != NULL) {
    free(made);
    return why;
  }
  made->next = lent.first;
  lent.first = made;
  return NULL;
}

/* Returns the first range that has a byte of [from, end); NULL: none. */
static const struct lent_range *first_in(uintptr_t from, uintptr_t end) {
  const struct lent_range *first = NULL;
  for (const struct lent_range *range = lent.first; range != NULL; range = range->next) {
    uintptr_t start = (uintptr_t)range->pages;
    if (start < end && from < start + range->bytes && (first == NULL || range->pages < first->pages))
      first = range;
  }
  return first;
}

static const char *share_rest(const struct lent_region *region, unsigned *ranges) {
  uintptr_t at = (uintptr_t)region->pages, end = at + region->bytes;
  const char *why = NULL;
  for (*ranges = 0; at < end && why == NULL; ++*ranges) {
    const struct lent_range *next = first_in(at, end);
    uintptr_t start = next == NULL ? end : (uintptr_t)next->pages;
    if (start > at) {
      why = share_pages(region, (unsigned char *)at, start - at);
      at = start;
      continue;
    }
    uintptr_t until = start + next->bytes < end ? start + next->bytes : end;
    if (next->driver != region->driver) why = "an earlier session's memory lies in the same page";
    else if (next->read_only && !region->read_only) why = "the device only reads a page of it";
    else if (!is_mapped(next, at, until)) why = "it lies where registered memory was unmapped";
    at = until;
  }
  return why;
}

/* Makes the range private again, except the parts that the program has unmapped or mapped over. */
static void make_private(const struct lent_range *range) {
  uintptr_t base = (uintptr_t)range->pages, end = base + range->bytes, from = base, until;
  const char *why = vgpu_mappings_pinned() ? "this process has memory pinned for other devices" : NULL;
  for (; why == NULL && vgpu_mappings_next(&range->file, base, end, &from, &until); from = until)
    why = vgpu_in_place_unshare((void *)from, until - from, NULL);
  if (why != NULL)
    vgpu_log("memory at %p that is no longer registered cannot be made private: %s", (void *)base, why);
}

static bool is_used(const struct lent_range *range) {
  const struct lent_region *region = lent.regions;
  while (region != NULL && !touches(region, range)) region = region->next;
  return region != NULL;
}

static void give_back_unused(void) {
  for (struct lent_range **at = &lent.first; *at != NULL;) {
    struct lent_range *range = *at;
    if (is_used(range)) {
      at = &range->next;
      continue;
    }
    *at = range->next;
    /* First the device loses the memory, so that it writes nothing that the program does not see. */
    vgpu_lent_end(range->pages);
    make_private(range);
    vgpu_session_shared_region_drop(range->driver->session, range->shared_region, range->mirror,
                                    range->bytes);
    free(range);
  }
}

static struct lent_region **place_of(const struct vgpu_driver *driver, uint64_t start) {
  struct lent_region **at = &lent.regions;
  while (*at != NULL && ((*at)->driver != driver || (*at)->start != start)) at = &(*at)->next;
  return at;
}

static bool lend(struct vgpu_driver *driver, const struct vgpu_region *region) {
  struct lent_region *made = malloc(sizeof *made);
  if (made == NULL) return false;
  *made = (struct lent_region){.driver = driver, .read_only = (region->flags & READ_ONLY) != 0};
  cover(region, made);
  unsigned ranges;
  const char *why = share_rest(made, &ranges);
  if (why != NULL) {
    vgpu_log("registered memory at %p, %llu bytes, has no address on the device: %s",
             (void *)(uintptr_t)region->start, (unsigned long long)region->size, why);
    free(made);
    give_back_unused();
    return false;
  }
  made->next = lent.regions;
  lent.regions = made;
  return set_lent(made, ranges == 1 ? VGPU_LENT : VGPU_LENT_IN_PIECES);
}

bool vgpu_registered_lend(struct vgpu_driver *driver, const struct vgpu_region *region) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!vgpu_lent_in_place(driver)) return false;
  pthread_once(&once, watch_forks);
  pthread_mutex_lock(&lent.lock);
  const struct lent_region *there = *place_of(driver, region->start);
  bool result = there == NULL && lend(driver, region);
  if (there != NULL) {
    /* Another thread was faster, or a fork made the memory private. */
    struct vgpu_region now;
    result = vgpu_regions_find(&driver->regions, region->start, &now) && now.lent;
  }
  pthread_mutex_unlock(&lent.lock);
  return result;
}

void vgpu_registered_take_back(struct vgpu_driver *driver, const struct vgpu_region *region) {
  if (!region->lent && !vgpu_lent_in_place(driver)) return;
  pthread_mutex_lock(&lent.lock);
  struct lent_region **at = place_of(driver, region->start), *gone = *at;
  if (gone != NULL) {
    *at = gone->next;
    free(gone);
    give_back_unused();
  }
  pthread_mutex_unlock(&lent.lock);
}
