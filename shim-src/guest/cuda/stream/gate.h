/*
 * A gate holds a stream at the host until this process opens it. The stream waits for a value in a word, and
 * the host stores the value there without a stream. The words of a context are made with its first gate.
 */
#ifndef VGPU_GUEST_CUDA_GATE_H
#define VGPU_GUEST_CUDA_GATE_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_context;
struct vgpu_driver;
struct vgpu_gates;

struct vgpu_gate {
  struct vgpu_context *owner;
  uint64_t context; /* the number that `owner` had when the gate was closed */
  uint64_t event;   /* complete when the stream has reached the gate */
  uint32_t place;
  uint32_t value;
  uint32_t calls; /* one-way calls that were sent to close it */
};

/*
 * Records an event in a stream, and stops the stream after it. `context` and `stream` are the stream's
 * numbers. Returns a CUresult: NOT_SUPPORTED if the device cannot wait for values, OUT_OF_MEMORY if a
 * thousand gates of the context are closed.
 */
int vgpu_gate_close(struct vgpu_driver *driver, struct vgpu_context *owner, uint64_t context, uint64_t stream,
                    struct vgpu_gate *gate);

/* Lets the stream continue. False: the context has ended, and nothing was done. */
bool vgpu_gate_open(struct vgpu_driver *driver, const struct vgpu_gate *gate);

/*
 * Opens all gates of a context that is about to end: a real driver ends a context when its work is done. The
 * caller holds driver->lock.
 */
void vgpu_gates_context_ends(struct vgpu_context *context);

#endif
