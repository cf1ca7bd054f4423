/*
 * A reader of a ring that leaves the processor of its peer. Prints what it found, a line for each.
 *
 *   ring_apart thread   vgpu_leave_processor() alone
 *   ring_apart ring     when a ring calls it, and with which number
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/session/processor.h"
#include "wire/clock.h"
#include "wire/ring.h"
#include "wire/shared.h"

enum { FRAMES = 40, PAUSE_US = 1000, PEER = 4711 };

static _Noreturn void give_up(const char *message) {
  perror(message);
  exit(1);
}

static void leave_alone(void) {
  cpu_set_t before, after, one;
  if (sched_getaffinity(0, sizeof before, &before) != 0) give_up("sched_getaffinity");
  int moved = 0, kept = 0;
  for (int i = 0; i < 100; i++) {
    int here = sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    /* Moves the thread to this processor, then allows all processors again. */
    if (sched_setaffinity(0, sizeof one, &one) != 0 || sched_setaffinity(0, sizeof before, &before) != 0)
      give_up("sched_setaffinity");
    kept += vgpu_leave_processor(0) && vgpu_leave_processor((uint32_t)here + 1 + CPU_SETSIZE);
    kept -= sched_getcpu() != here; /* the scheduler may move it, but seldom */
    here = sched_getcpu();
    moved += vgpu_leave_processor((uint32_t)here + 1) && sched_getcpu() != here;
  }
  if (sched_getaffinity(0, sizeof after, &after) != 0) give_up("sched_getaffinity");
  printf("moved %s\nkept %s\nmask %s\n", moved > 90 ? "yes" : "no", kept > 90 ? "yes" : "no",
         CPU_EQUAL(&before, &after) ? "the same" : "changed");
  int here = sched_getcpu();
  CPU_ZERO(&one);
  CPU_SET(here, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) give_up("sched_setaffinity");
  printf("with one processor %s\n", vgpu_leave_processor((uint32_t)here + 1) ? "true" : "false");
}

static unsigned leaves;
static uint32_t told;

static bool leave(uint32_t processor) {
  leaves++;
  told = processor;
  return leaves < 2; /* the second one is the last */
}

static struct vgpu_rings writing;
static struct vgpu_doorbell writers;

static void *write_slowly(void *unused) {
  (void)unused;
  for (int i = 0; i < FRAMES; i++) {
    usleep(PAUSE_US);
    struct vgpu_frame frame = {.opcode = 1, .sequence = (uint64_t)i};
    if (vgpu_ring_write_frame(&writing.requests, &frame, NULL, 0, NULL, 0, &writers, VGPU_NO_DEADLINE) !=
        VGPU_STREAM_OK)
      give_up("vgpu_ring_write_frame");
  }
  return NULL;
}

static void leave_by_ring(void) {
  int sockets[2], memory = vgpu_shared_make("ring_apart", vgpu_rings_bytes(VGPU_RING_BYTES));
  struct vgpu_rings reading;
  struct vgpu_doorbell readers;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || memory < 0 ||
      !vgpu_rings_map(&writing, memory, 0, VGPU_RING_BYTES) ||
      !vgpu_rings_map(&reading, memory, 0, VGPU_RING_BYTES))
    give_up("rings");
  vgpu_doorbell_init(&writers, sockets[0]);
  vgpu_doorbell_init(&readers, sockets[1]);
  writing.replies.control->reader_processor = PEER;
  reading.requests.peer_processor = &reading.replies.control->reader_processor;
  reading.requests.leave = leave;
  pthread_t writer;
  if (pthread_create(&writer, NULL, write_slowly, NULL) != 0) give_up("pthread_create");
  unsigned before = 0;
  for (int i = 0; i < FRAMES; i++) {
    struct vgpu_frame frame;
    if (vgpu_ring_read_header(&reading.requests, &frame, &readers, VGPU_NO_DEADLINE) != VGPU_STREAM_OK)
      give_up("vgpu_ring_read_header");
    vgpu_ring_read(&reading.requests, frame.length, &readers);
    if (leaves == 0) before = (unsigned)i + 2;
  }
  pthread_join(writer, NULL);
  uint32_t own = reading.requests.control->reader_processor;
  printf("before the first: %u waits that slept\ncalls %u with %u\nown processor %s\n", before, leaves, told,
         own > 0 && own <= CPU_SETSIZE ? "published" : "not published");
  vgpu_doorbell_destroy(&writers);
  vgpu_doorbell_destroy(&readers);
  vgpu_rings_unmap(&writing);
  vgpu_rings_unmap(&reading);
  close(memory);
  close(sockets[0]);
  close(sockets[1]);
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "thread") == 0) leave_alone();
  else if (argc == 2 && strcmp(argv[1], "ring") == 0) leave_by_ring();
  else return 2;
  return 0;
}
