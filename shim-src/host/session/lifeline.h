/*
 * Notices that a guest is gone while its worker is busy, and tells a guest that its worker is busy: inside a
 * kernel without an end, inside a call of the driver, or with much queued work. The worker's own thread
 * notices only when it reads or writes the next frame.
 */
#ifndef VGPU_HOST_LIFELINE_H
#define VGPU_HOST_LIFELINE_H

#include "host/session/worker.h"

/*
 * It also counts how long a call takes, for the administrator: a driver that does not come back is found by
 * that.
 *
 * Starts a thread that ends this process when the guest has hung up and the session has not ended by itself
 * soon after, and tells the guest meanwhile that its call is being worked on. A session that survives its
 * connection (line.h) waits for its guest first. In a worker, once it has
 * greeted. False: no thread could be made.
 */
bool vgpu_lifeline_start(struct vgpu_worker *worker);

#endif
