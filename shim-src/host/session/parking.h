/*
 * Calls that wait for the device (VGPU_WAITS). The worker has one thread for all calls of a session. It
 * therefore parks such a call: it copies the request, serves other frames, carries the call out again from
 * time to time, and answers it when it no longer waits.
 *
 * A guest without VGPU_FEATURE_PARK gets NOT_READY when another frame arrives, at the latest after a second.
 * The same thread then repeats the call with another sequence number. Lane, opcode and body identify the
 * call.
 */
#ifndef VGPU_HOST_PARKING_H
#define VGPU_HOST_PARKING_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_worker;
struct vgpu_request;
struct vgpu_parked;

struct vgpu_parking {
  struct vgpu_parked *first, *last; /* in order of arrival */
  uint32_t count;
  uint64_t bytes;
  bool crowded;      /* other calls have come while one is parked: another thread of the program makes them */
  bool out_of_order; /* agreed: VGPU_FEATURE_PARK */
  bool hurried;      /* carry parked calls out again at once */
};

/* Parks the request, with worker->note. False: no memory, or too many calls are parked. */
bool vgpu_park(struct vgpu_worker *worker, const struct vgpu_request *request);

/*
 * Sets worker->note for a new request: the note of the parked call if the request repeats one that was
 * answered with NOT_READY, else 0.
 */
void vgpu_parking_find(struct vgpu_worker *worker, const struct vgpu_request *request);

/* Lets the backend free its data for the call of worker->note, which has ended. */
void vgpu_parking_end(struct vgpu_worker *worker);

/* Serves the parked calls, with pauses, until a frame arrives or none is parked. False: the guest is gone. */
bool vgpu_parking_serve(struct vgpu_worker *worker);

/*
 * Carries out again the parked calls that are due and that `accepts` accepts (NULL: all). False: the guest is
 * gone.
 */
bool vgpu_parking_ask(struct vgpu_worker *worker,
                      bool (*accepts)(struct vgpu_worker *worker, const struct vgpu_request *request));

/* Frees all parked calls without an answer. */
void vgpu_parking_drop(struct vgpu_worker *worker);

/*
 * Answers the parked calls of an older guest with NOT_READY, because another frame has arrived. False: the
 * guest is gone.
 */
bool vgpu_parking_tell(struct vgpu_worker *worker);

/* For a backend: work has ended that a parked call may wait for. */
static inline void vgpu_parking_hurry(struct vgpu_parking *parking) {
  parking->hurried = true;
}

#endif
