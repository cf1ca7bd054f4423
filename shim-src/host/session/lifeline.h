/*
 * Notices that a guest is gone while its worker is busy: inside a kernel without an end, inside a call of the
 * driver, or with much queued work. The worker's own thread notices only when it reads or writes the next
 * frame.
 */
#ifndef VGPU_HOST_LIFELINE_H
#define VGPU_HOST_LIFELINE_H

#include <stdbool.h>

/*
 * Starts a thread that ends this process when the peer of the connection has hung up and the session has not
 * ended by itself soon after. In a worker, before it serves. False: no thread could be made.
 */
bool vgpu_lifeline_start(int connection);

#endif
