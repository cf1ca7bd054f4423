/*
 * An upgrade: the daemon starts the program that is now at its path, gives it the listening sockets, and
 * drains. No connection is refused meanwhile, and no session ends.
 *
 * VGPU_HAND_OVER in its environment marks the successor. Through a pipe it sends its process number, and one
 * byte when it serves; if the pipe ends before, the successor has failed.
 */
#ifndef VGPU_HOST_HAND_OVER_H
#define VGPU_HOST_HAND_OVER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/daemon/listen.h"
#include "host/daemon/reconnects.h"

struct vgpu_hand_over {
  int pipe;          /* -1: none is under way */
  int administrator; /* the connection that waits for the outcome; -1: none */
  pid_t successor;   /* 0: not known yet */
  int64_t deadline;
};

enum vgpu_hand_over_news { VGPU_HAND_OVER_WAIT = 0, VGPU_HAND_OVER_SERVES = 1, VGPU_HAND_OVER_FAILED = 2 };

/*
 * Stores the path and the command line of this process. Call this first, before another program can be
 * installed at the path.
 */
void vgpu_hand_over_remember(char **words);

/*
 * Starts the successor with the signal mask `mask`, and opens reconnects->successors. False: `why` has the
 * reason.
 */
bool vgpu_hand_over_begin(struct vgpu_hand_over *state, const struct vgpu_listeners *listeners,
                          struct vgpu_reconnects *reconnects, const sigset_t *mask, char *why,
                          unsigned long why_size);

/*
 * Reads the successor's report, and ends a successor that takes too long. Closes the pipe unless the result
 * is WAIT.
 */
enum vgpu_hand_over_news vgpu_hand_over_read(struct vgpu_hand_over *state);

/* True if this process is a successor. Its listeners then come only from its predecessor. */
bool vgpu_hand_over_successor(void);

/*
 * For the successor: true if its predecessor made the socket file of listener `index`, so that the successor
 * has to remove the file.
 */
bool vgpu_hand_over_owns(uint32_t index);

/* For the successor: reports to the predecessor that it serves. False: this process is no successor. */
bool vgpu_hand_over_tell(void);

#endif
