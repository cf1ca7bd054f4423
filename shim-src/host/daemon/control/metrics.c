#include "host/daemon/control/metrics.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/daemon/control/manage.h"
#include "host/daemon/control/report.h"
#include "wire/clock.h"

#define ASK_LIMIT_MS 2000

uint32_t vgpu_metrics_poll(const struct vgpu_metrics *metrics, struct pollfd *pollers) {
  if (metrics->listener < 0) return 0;
  pollers[0] = (struct pollfd){.fd = metrics->listener, .events = POLLIN};
  for (uint32_t i = 0; i < metrics->count; i++)
    pollers[1 + i] = (struct pollfd){.fd = metrics->waiting[i].connection, .events = POLLIN};
  return 1 + metrics->count;
}

int vgpu_metrics_wait(const struct vgpu_metrics *metrics) {
  return metrics->count == 0 ? -1 : vgpu_left_ms(metrics->waiting[0].deadline);
}

static void forget(struct vgpu_metrics *metrics, uint32_t at) {
  metrics->count--;
  for (uint32_t i = at; i < metrics->count; i++) metrics->waiting[i] = metrics->waiting[i + 1];
}

static void tell(int connection, const struct vgpu_supervisor *supervisor) {
  char request[4096], head[160], *text = NULL, *answer = NULL;
  size_t length = 0, size = 0;
  ssize_t asked = recv(connection, request, sizeof request, MSG_DONTWAIT);
  FILE *body = asked > 0 ? open_memstream(&text, &length) : NULL;
  if (body == NULL) {
    close(connection);
    return;
  }
  vgpu_report(body, supervisor, VGPU_REPORT_METRICS, false);
  fclose(body);
  snprintf(head, sizeof head,
           "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
           "Content-Length: %zu\r\n\r\n",
           length);
  FILE *out = open_memstream(&answer, &size);
  if (out != NULL) {
    fputs(head, out);
    fwrite(text, 1, length, out);
    fclose(out);
  }
  vgpu_manage_answer(connection, answer, size);
  free(text);
  free(answer);
}

void vgpu_metrics_serve(struct vgpu_metrics *metrics, const struct pollfd *pollers,
                        const struct vgpu_supervisor *supervisor) {
  if (metrics->listener < 0) return;
  /* Downwards: removing an entry moves those behind it. */
  for (uint32_t i = metrics->count; i-- > 0;) {
    bool asks = pollers[1 + i].revents != 0;
    if (!asks && vgpu_left_ms(metrics->waiting[i].deadline) > 0) continue;
    if (asks) tell(metrics->waiting[i].connection, supervisor);
    else close(metrics->waiting[i].connection);
    forget(metrics, i);
  }
  if ((pollers[0].revents & POLLIN) == 0) return;
  int connection = accept4(metrics->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection < 0) return;
  if (metrics->count == VGPU_METRICS_WAITING_MAX) {
    close(metrics->waiting[0].connection);
    forget(metrics, 0);
  }
  metrics->waiting[metrics->count].connection = connection;
  metrics->waiting[metrics->count++].deadline = vgpu_now_ms() + ASK_LIMIT_MS;
}

void vgpu_metrics_close(struct vgpu_metrics *metrics) {
  while (metrics->count > 0) close(metrics->waiting[--metrics->count].connection);
  if (metrics->listener >= 0) close(metrics->listener);
  metrics->listener = -1;
}
