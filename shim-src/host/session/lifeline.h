/*
 * Detects during a long call that the guest is gone, and reports to the guest that its worker is busy: in an
 * endless kernel, in a call of the driver, or with much queued work. The serving thread can do both only
 * between frames.
 */
#ifndef VGPU_HOST_LIFELINE_H
#define VGPU_HOST_LIFELINE_H

#include "host/session/answer.h"

/*
 * Starts a thread in a worker, after the greeting. The thread reports to the guest that its call is in
 * progress. When the guest has hung up and the session does not end soon after, the thread ends this process;
 * a session that survives its connection (line.h) first waits for its guest. False: no thread could be made.
 *
 * The thread also counts how long a call takes. The administrator can then find a driver that does not
 * return.
 */
bool vgpu_lifeline_start(struct vgpu_worker *worker);

#endif
