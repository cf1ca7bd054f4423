#include "host/daemon/forwarded_queries.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "host/log.h"
#include "wire/clock.h"

int vgpu_claim_make(void) {
  return eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
}

bool vgpu_claim_take(int claim) {
  uint64_t taken;
  bool first = read(claim, &taken, sizeof taken) == (ssize_t)sizeof taken;
  close(claim);
  return first;
}

static void end_first(struct vgpu_forwarded_queries *queries, struct vgpu_admission *admission) {
  struct vgpu_forwarded_query first = queries->array[0];
  queries->count--;
  memmove(queries->array, queries->array + 1, queries->count * sizeof *queries->array);
  if (!vgpu_claim_take(first.claim)) {
    close(first.descriptor); /* a predecessor has already answered */
    return;
  }
  vgpu_host_log_limited(
      "error", 0,
      "an earlier daemon (before a hand-over) did not answer a guest that asked for its sessions");
  vgpu_refuse_return(admission, first.descriptor, VGPU_STATUS_FORMER);
}

void vgpu_forwarded_queries_add(struct vgpu_forwarded_queries *queries, struct vgpu_admission *admission,
                                int descriptor, int claim) {
  if (queries->count == VGPU_FORWARDED_QUERIES_MAX) end_first(queries, admission);
  queries->array[queries->count++] = (struct vgpu_forwarded_query){
      .descriptor = descriptor, .claim = claim, .until = vgpu_now_ms() + VGPU_FORWARDED_QUERY_LIMIT_MS};
}

int vgpu_forwarded_queries_wait(const struct vgpu_forwarded_queries *queries) {
  return queries->count == 0 ? -1 : vgpu_left_ms(queries->array[0].until);
}

void vgpu_forwarded_queries_end(struct vgpu_forwarded_queries *queries, struct vgpu_admission *admission) {
  while (queries->count > 0 && vgpu_left_ms(queries->array[0].until) == 0) end_first(queries, admission);
}
