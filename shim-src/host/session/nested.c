/*
 * Requests that are carried out inside of a long one. A session has one thread for all its requests, and a
 * kernel can run for long or even wait for the guest's next request.
 */
#include <stdlib.h>

#include "host/session/answer.h"
#include "wire/frame.h"

#define AT_ONCE 256 /* then the long call continues */

/* Releases the outer request. Its bytes stay in its buffer; the next requests use the other buffer. */
static bool release(struct vgpu_worker *worker) {
  struct vgpu_nested *nested = &worker->nested;
  if (nested->released == worker->request) return true;
  if (nested->in == NULL) nested->in = malloc(VGPU_FRAME_MAX);
  if (nested->in == NULL) return false;
  unsigned char *used = worker->link.in;
  worker->link.in = nested->in;
  nested->in = used;
  nested->released = worker->request;
  vgpu_link_done(&worker->link, worker->request);
  return true;
}

/* Carries out the next request if `accepts` accepts it; else keeps it for later. */
static void offer(struct vgpu_worker *worker, vgpu_request_filter *accepts) {
  struct vgpu_nested *nested = &worker->nested;
  worker->request = &nested->next;
  nested->has_next = !accepts(worker, &nested->next);
  if (!nested->has_next) nested->over = !vgpu_worker_answer(worker, &nested->next);
}

void vgpu_worker_serve_nested(struct vgpu_worker *worker, vgpu_request_filter *accepts) {
  struct vgpu_nested *nested = &worker->nested;
  const struct vgpu_request *outer = worker->request;
  if (nested->over) return;
  if (nested->released == NULL && worker->link.parked == 0 && !vgpu_link_has_more(&worker->link)) return;
  if (!release(worker)) return;
  if (nested->has_next) offer(worker, accepts);
  for (int i = 0; i < AT_ONCE && !nested->has_next && !nested->over; i++) {
    if (!vgpu_link_has_next(&worker->link)) break;
    enum vgpu_received received = VGPU_RECEIVED_END;
    if (vgpu_parking_tell(worker)) received = vgpu_worker_receive(worker, &nested->next);
    if (received == VGPU_RECEIVED_NOTHING) break;
    if (received == VGPU_RECEIVED) offer(worker, accepts);
    else nested->over = true;
  }
  if (!nested->over && worker->link.parked > 0) nested->over = !vgpu_parking_ask(worker, accepts);
  worker->request = outer;
}
