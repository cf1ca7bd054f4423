#include "guest/cuda/printed.h"

#include <stdio.h>
#include <stdlib.h>

#include "cuda_calls.h"
#include "guest/cuda/internal.h"

/* False: there is no more text, or no host. */
static bool fetch_piece(struct vgpu_driver *driver, char *text, uint32_t room) {
  const struct vgpu_send_printed send = {0};
  struct vgpu_send sending = {.body = &send, .body_size = sizeof send};
  struct vgpu_receive receiving = {.bulk = text, .bulk_capacity = room};
  int32_t status = 0;
  if (vgpu_session_call(driver->session, VGPU_OP_printed, &sending, &receiving, &status) != VGPU_ANSWERED ||
      status != 0)
    return false;
  /* The program's own stream keeps the order with its earlier text. Text that the stream refuses is lost. */
  size_t written = fwrite(text, 1, receiving.bulk_size, stdout);
  return written == receiving.bulk_size && vgpu_session_has_printed(driver->session);
}

void vgpu_printed_fetch(struct vgpu_driver *driver) {
  if (!vgpu_session_has_printed(driver->session)) return;
  char *text = malloc(VGPU_BULK_MAX);
  if (text == NULL) return;
  pthread_mutex_lock(&driver->printing);
  while (fetch_piece(driver, text, VGPU_BULK_MAX)) continue;
  fflush(stdout);
  pthread_mutex_unlock(&driver->printing);
  free(text);
}
