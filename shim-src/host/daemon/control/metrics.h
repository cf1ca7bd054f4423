/*
 * The metrics socket. A program that connects and sends any request gets the metrics as HTTP, for Prometheus
 * and curl. A connection without a request is closed after a while.
 */
#ifndef VGPU_HOST_METRICS_H
#define VGPU_HOST_METRICS_H

#include <poll.h>
#include <stdint.h>

#define VGPU_METRICS_WAITING_MAX 8u
#define VGPU_METRICS_POLL_MAX (1u + VGPU_METRICS_WAITING_MAX)

struct vgpu_supervisor;

struct vgpu_metrics {
  int listener; /* -1: there is no such socket */
  uint32_t count;
  struct {
    int connection;
    int64_t deadline;
  } waiting[VGPU_METRICS_WAITING_MAX]; /* the oldest first */
};

/* Fills `pollers`, which has VGPU_METRICS_POLL_MAX places, and returns how many it used. */
uint32_t vgpu_metrics_poll(const struct vgpu_metrics *metrics, struct pollfd *pollers);

/* Milliseconds until a connection has to be closed; -1: none. */
int vgpu_metrics_wait(const struct vgpu_metrics *metrics);

/* Called after poll(), with the same `pollers`. */
void vgpu_metrics_serve(struct vgpu_metrics *metrics, const struct pollfd *pollers,
                        const struct vgpu_supervisor *supervisor);

/* Closes all connections and the listener. The socket's file stays. */
void vgpu_metrics_close(struct vgpu_metrics *metrics);

#endif
