/*
 * A child of fork() must have its own copy of this memory, as of all memory that was private before it was
 * registered. So fork must see private memory: before a fork the shared memory becomes private, and after it
 * the parent shares it again. Bytes that the program wrote between the two are then copied to the shared
 * memory, one by one, over bytes that the device has written there.
 */
#include "guest/cuda/memory/registered.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest/cuda/internal.h"
#include "guest/in_place.h"
#include "guest/log.h"
#include "guest/own_mappings.h"

struct lent_range {
  struct lent_range *next;
  struct vgpu_driver *driver;
  uint64_t registered; /* where the region starts */
  unsigned char *pages;
  size_t bytes;
  void *mirror; /* a second mapping of the shared memory */
  void *before; /* during a fork: the content when it became private; NULL: it is shared */
  uint32_t shared_region;
  struct vgpu_mapped_file file;
};

/* The handlers of fork() take no argument, so what they need cannot be passed in. */
static struct {
  pthread_mutex_t lock;
  struct lent_range *first;
} lent = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool set_lent(struct lent_range *range, bool value) {
  return vgpu_regions_set_lent(&range->driver->regions, range->registered, VGPU_REGION_REGISTERED, value);
}

/* ---- fork ----------------------------------------------------------------- */

/* True if the whole range is still mapped. False: the program has unmapped a part of it. */
static bool is_whole(const struct lent_range *range) {
  uintptr_t base = (uintptr_t)range->pages, end = base + range->bytes, from = base, until, at = base;
  for (; at < end; at = from = until) {
    if (!vgpu_mappings_next(&range->file, base, end, &from, &until) || from != at) return false;
  }
  return true;
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
  /* A kernel that uses it must fail. It must not see other memory than the program sees. */
  vgpu_log("registered memory at %p lost its address on the device in a fork: %s", (void *)range->pages, why);
  vgpu_lent_end(range->pages);
  set_lent(range, false);
}

static void after_fork_in_parent(void) {
  for (struct lent_range *range = lent.first; range != NULL; range = range->next) {
    if (range->before != NULL) share_again(range);
  }
  pthread_mutex_unlock(&lent.lock);
}

static void after_fork_in_child(void) {
  struct lent_range *next;
  for (struct lent_range *range = lent.first; range != NULL; range = next) {
    next = range->next;
    /* The memory is still shared with the parent. A copy that is slightly late is better than no copy. */
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

/* ---- lending -------------------------------------------------------------- */

static void cover(const struct vgpu_region *region, struct lent_range *range) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  uint64_t start = region->start - region->start % page, end = region->start + region->size + page - 1;
  range->pages = (unsigned char *)(uintptr_t)start;
  range->bytes = end - end % page - start;
}

static const char *refusal(const struct lent_range *wanted) {
  for (const struct lent_range *range = lent.first; range != NULL; range = range->next) {
    if (range->pages < wanted->pages + wanted->bytes && wanted->pages < range->pages + range->bytes)
      return "another registered range lies in the same page";
  }
  const char *why = vgpu_mappings_unlike_heap(wanted->pages, wanted->bytes);
  if (why == NULL && vgpu_mappings_own_stack(wanted->pages, wanted->bytes))
    why = "it is the calling thread's own stack";
  if (why == NULL && vgpu_mappings_pinned()) why = "this process has memory pinned for other devices";
  return why;
}

static const char *share(struct vgpu_driver *driver, struct lent_range *range) {
  range->mirror = vgpu_lent_take_for(driver, range->pages, range->bytes, &range->shared_region);
  if (range->mirror == NULL) return "the host shares no more memory with this process";
  const char *why = vgpu_mappings_file(range->mirror, &range->file)
                        ? vgpu_in_place_share(range->pages, range->bytes, range->mirror, NULL)
                        : "/proc/self/maps does not name the shared memory";
  if (why == NULL) return NULL;
  vgpu_lent_end(range->pages);
  vgpu_session_shared_region_drop(driver->session, range->shared_region, range->mirror, range->bytes);
  return why;
}

static struct lent_range **place_of(const struct vgpu_driver *driver, uint64_t registered) {
  struct lent_range **at = &lent.first;
  while (*at != NULL && ((*at)->driver != driver || (*at)->registered != registered)) at = &(*at)->next;
  return at;
}

static bool lend(struct vgpu_driver *driver, const struct vgpu_region *region) {
  struct lent_range *made = malloc(sizeof *made);
  if (made == NULL) return false;
  *made = (struct lent_range){.driver = driver, .registered = region->start};
  cover(region, made);
  const char *why = refusal(made);
  if (why == NULL) why = share(driver, made);
  if (why != NULL) {
    vgpu_log("registered memory at %p, %llu bytes, has no address on the device: %s",
             (void *)(uintptr_t)region->start, (unsigned long long)region->size, why);
    free(made);
    return false;
  }
  made->next = lent.first;
  lent.first = made;
  return set_lent(made, true);
}

bool vgpu_registered_lend(struct vgpu_driver *driver, const struct vgpu_region *region) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!vgpu_lent_in_place(driver)) return false;
  pthread_once(&once, watch_forks);
  pthread_mutex_lock(&lent.lock);
  const struct lent_range *there = *place_of(driver, region->start);
  bool result = there == NULL && lend(driver, region);
  if (there != NULL) {
    /* Another thread was faster, or a fork made the memory private. */
    struct vgpu_region now;
    result = vgpu_regions_find(&driver->regions, region->start, &now) && now.lent;
  }
  pthread_mutex_unlock(&lent.lock);
  return result;
}

/* Makes the range private again, except the parts that the program has unmapped or mapped over. */
static void make_private(const struct lent_range *range) {
  uintptr_t base = (uintptr_t)range->pages, end = base + range->bytes, from = base, until;
  const char *why = vgpu_mappings_pinned() ? "this process has memory pinned for other devices" : NULL;
  for (; why == NULL && vgpu_mappings_next(&range->file, base, end, &from, &until); from = until)
    why = vgpu_in_place_unshare((void *)from, until - from, NULL);
  if (why != NULL) vgpu_log("memory at %p stays shared after it was registered: %s", (void *)base, why);
}

void vgpu_registered_take_back(struct vgpu_driver *driver, const struct vgpu_region *region) {
  if (!region->lent && !vgpu_lent_in_place(driver)) return;
  pthread_mutex_lock(&lent.lock);
  struct lent_range **at = place_of(driver, region->start), *range = *at;
  if (range != NULL) {
    *at = range->next;
    /* The device loses the memory first, so that it writes nothing that the program does not see. */
    vgpu_lent_end(range->pages);
    make_private(range);
    vgpu_session_shared_region_drop(driver->session, range->shared_region, range->mirror, range->bytes);
    free(range);
  }
  pthread_mutex_unlock(&lent.lock);
}
