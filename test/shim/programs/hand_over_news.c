/*
 * Reads the reports of ROUNDS successors, all of which serve, while the reports are written. Prints the
 * number of reports that were read as "serves".
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "host/daemon/hand_over.h"
#include "wire/clock.h"

enum { ROUNDS = 2000 };

/* Does in a successor the work of vgpu_hand_over_begin and vgpu_hand_over_tell. */
static void *report(void *argument) {
  int pipe = *(int *)argument;
  int32_t self = 123456789; /* no process has this number */
  if (write(pipe, &self, sizeof self) != (ssize_t)sizeof self || write(pipe, "", 1) != 1) perror("write");
  close(pipe);
  return NULL;
}

int main(void) {
  int serve = 0;
  for (int i = 0; i < ROUNDS; i++) {
    int ends[2];
    pthread_t successor;
    if (pipe(ends) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return 1;
    struct vgpu_hand_over state = {.pipe = ends[0], .deadline = vgpu_now_ms() + 60000};
    if (pthread_create(&successor, NULL, report, &ends[1]) != 0) return 1;
    enum vgpu_hand_over_news news;
    while ((news = vgpu_hand_over_read(&state)) == VGPU_HAND_OVER_WAIT) continue;
    if (news == VGPU_HAND_OVER_SERVES && state.successor == 123456789) serve++;
    pthread_join(successor, NULL);
  }
  printf("%d of %d serve\n", serve, ROUNDS);
  return 0;
}
