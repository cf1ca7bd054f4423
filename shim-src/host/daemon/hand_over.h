/*
 * An upgrade: the daemon starts the program that is now at its path, gives it the listening sockets, and
 * drains. No connection is refused meanwhile, and no session ends.
 *
 * The successor is told by the environment (VGPU_HAND_OVER) and answers through a pipe: its process number
 * before it is executed, and one byte when it serves. A pipe that ends without that byte is a successor that
 * failed.
 */
#ifndef VGPU_HOST_HAND_OVER_H
#define VGPU_HOST_HAND_OVER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/daemon/listen.h"

/* Both: the daemon's side of one that is under way. */
struct vgpu_hand_over {
  int pipe;          /* -1: none is under way */
  int administrator; /* the connection that waits for the outcome; -1: none */
  pid_t successor;   /* 0: it has not told yet */
  int64_t deadline;
};

enum vgpu_hand_over_news { VGPU_HAND_OVER_WAIT = 0, VGPU_HAND_OVER_SERVES = 1, VGPU_HAND_OVER_FAILED = 2 };

/* First thing of all: the path, before another program is put there, and the command line. */
void vgpu_hand_over_remember(char **words);

/* Starts the successor with the signal mask `mask`. False: `why` says why not. */
bool vgpu_hand_over_begin(struct vgpu_hand_over *state, const struct vgpu_listeners *listeners,
                          const sigset_t *mask, char *why, unsigned long why_size);

/*
 * Reads the successor's report. A successor that takes too long is ended. Closes the pipe unless the result
 * is WAIT.
 */
enum vgpu_hand_over_news vgpu_hand_over_read(struct vgpu_hand_over *state);

/* Is this process such a successor? Listeners come from its predecessor then, and from nowhere else. */
bool vgpu_hand_over_successor(void);

/* Of the successor: was the file of listener `index` made by its predecessor, and so is now its own to
 * remove? */
bool vgpu_hand_over_owns(uint32_t index);

/* Of the successor: it serves. False: it is none. */
bool vgpu_hand_over_tell(void);

#endif
