/*
 * Requests that are taken while an earlier one is still being carried out. A session has one thread for all
 * its requests, and a kernel can run for long, even wait for what the guest does next.
 */
#include <stdlib.h>

#include "host/session/worker.h"
#include "wire/frame.h"

#define AT_ONCE 256 /* the long call must go on */

/* Releases the long call, whose bytes stay where they are: the next requests get the other buffer. */
static bool release(struct vgpu_worker *worker) {
  struct vgpu_meanwhile *meanwhile = &worker->meanwhile;
  if (meanwhile->released == worker->request) return true;
  if (meanwhile->in == NULL) meanwhile->in = malloc(VGPU_FRAME_MAX);
  if (meanwhile->in == NULL) return false;
  unsigned char *used = worker->link.in;
  worker->link.in = meanwhile->in;
  meanwhile->in = used;
  meanwhile->released = worker->request;
  vgpu_link_done(&worker->link, worker->request);
  return true;
}

/* Carries out the next request, if it is wanted now; else it is kept. */
static void offer(struct vgpu_worker *worker, vgpu_takes *takes) {
  struct vgpu_meanwhile *meanwhile = &worker->meanwhile;
  worker->request = &meanwhile->next;
  meanwhile->has_next = !takes(worker, &meanwhile->next);
  if (!meanwhile->has_next) meanwhile->over = !vgpu_worker_answer(worker, &meanwhile->next);
}

void vgpu_worker_meanwhile(struct vgpu_worker *worker, vgpu_takes *takes) {
  struct vgpu_meanwhile *meanwhile = &worker->meanwhile;
  const struct vgpu_request *long_one = worker->request;
  if (meanwhile->over) return;
  if (meanwhile->released == NULL && worker->link.parked == 0 && !vgpu_link_has_more(&worker->link)) return;
  if (!release(worker)) return;
  if (meanwhile->has_next) offer(worker, takes);
  for (int i = 0; i < AT_ONCE && !meanwhile->has_next && !meanwhile->over; i++) {
    if (!vgpu_link_has_next(&worker->link)) break;
    enum vgpu_received received = VGPU_RECEIVED_END;
    if (vgpu_parking_tell(worker)) received = vgpu_worker_receive(worker, &meanwhile->next);
    if (received == VGPU_RECEIVED_NOTHING) break;
    if (received == VGPU_RECEIVED) offer(worker, takes);
    else meanwhile->over = true;
  }
  if (!meanwhile->over && worker->link.parked > 0) meanwhile->over = !vgpu_parking_ask(worker, takes);
  worker->request = long_one;
}
