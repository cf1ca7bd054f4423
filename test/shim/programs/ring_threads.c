/*
 * Two threads at the two ends of one pair of rings, with nothing between them but the code of
 * shim-src/wire: frames of every length go there and come back changed, and each byte is looked at. For
 * ThreadSanitizer (is every byte published before it is read?) and for lost wake-ups (then it hangs).
 *
 *   ring_threads FRAMES SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "wire/clock.h"
#include "wire/ring.h"
#include "wire/shared.h"

#define LIMIT_MS 60000

static struct vgpu_rings near, far;
static struct vgpu_doorbell near_doorbell, far_doorbell;
static unsigned frames;

static void check(bool holds, const char *what, unsigned at) {
  if (holds) return;
  fprintf(stderr, "ring_threads: %s at frame %u\n", what, at);
  exit(1);
}

static uint32_t next(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

static uint32_t length_of(uint32_t random) {
  static const uint32_t most[] = {1, 64, 4096, 65536, VGPU_BULK_MAX};
  return random % 50 == 0 ? random % most[4] : random % most[random % 4];
}

/* Now and then one end pauses, so that the other goes to sleep. */
static void dawdle(uint32_t random) {
  struct timespec nap = {.tv_nsec = 300000};
  if (random % 64 == 0) nanosleep(&nap, NULL);
}

static void *far_end(void *unused) {
  (void)unused;
  unsigned char *copy = malloc(VGPU_BULK_MAX);
  uint32_t state = 77;
  for (unsigned i = 0; i < frames; i++) {
    struct vgpu_frame frame;
    check(vgpu_ring_read_header(&far.requests, &frame, &far_doorbell, vgpu_now_ms() + LIMIT_MS) == 0,
          "request", i);
    check(frame.sequence == i && frame.body == 8, "sequence", i);
    memcpy(copy, vgpu_ring_at(&far.requests) + sizeof frame + 8, frame.bulk);
    uint32_t length = frame.length;
    for (uint32_t at = 0; at < frame.bulk; at++) copy[at] ^= 0x5a;
    dawdle(next(&state));
    vgpu_ring_read(&far.requests, length, &far_doorbell);
    struct vgpu_frame reply = {.opcode = 1, .flags = VGPU_FLAG_REPLY, .sequence = i};
    check(vgpu_ring_write_frame(&far.replies, &reply, NULL, 0, copy, frame.bulk, &far_doorbell,
                                vgpu_now_ms() + LIMIT_MS) == 0,
          "reply", i);
  }
  free(copy);
  return NULL;
}

struct sender {
  uint32_t state;
};

static void *send_all(void *argument) {
  struct sender *sender = argument;
  unsigned char *bytes = malloc(VGPU_BULK_MAX);
  for (unsigned i = 0; i < frames; i++) {
    uint32_t length = length_of(next(&sender->state));
    for (uint32_t at = 0; at < length; at++) bytes[at] = (unsigned char)(at * 7 + i);
    struct vgpu_frame frame = {.opcode = 1, .sequence = i};
    uint64_t body = i;
    check(vgpu_ring_write_frame(&near.requests, &frame, &body, sizeof body, bytes, length, &near_doorbell,
                                vgpu_now_ms() + LIMIT_MS) == 0,
          "send", i);
  }
  free(bytes);
  return NULL;
}

int main(int count, char **words) {
  if (count != 3) return 2;
  frames = (unsigned)atoi(words[1]);
  struct sender sender = {.state = (uint32_t)atoi(words[2])};
  int pair[2];
  int memory = vgpu_shared_make("test", vgpu_rings_bytes(VGPU_RING_BYTES));
  check(memory >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "memory", 0);
  check(vgpu_shared_sound(memory, vgpu_rings_bytes(VGPU_RING_BYTES)), "seals", 0);
  check(ftruncate(memory, 4096) != 0, "it could be shrunk", 0);
  check(vgpu_rings_map(&near, memory, 0, VGPU_RING_BYTES) && vgpu_rings_map(&far, memory, 0, VGPU_RING_BYTES),
        "map", 0);
  vgpu_doorbell_init(&near_doorbell, pair[0]);
  vgpu_doorbell_init(&far_doorbell, pair[1]);
  uint32_t state = sender.state;
  pthread_t thread, sending;
  check(pthread_create(&thread, NULL, far_end, NULL) == 0, "thread", 0);
  check(pthread_create(&sending, NULL, send_all, &sender) == 0, "thread", 0);
  for (unsigned i = 0; i < frames; i++) {
    struct vgpu_frame frame;
    check(vgpu_ring_read_header(&near.replies, &frame, &near_doorbell, vgpu_now_ms() + LIMIT_MS) == 0,
          "answer", i);
    uint32_t length = length_of(next(&state));
    check(frame.sequence == i && frame.bulk == length, "length", i);
    const unsigned char *bytes = vgpu_ring_at(&near.replies) + sizeof frame;
    for (uint32_t at = 0; at < length; at++) {
      check(bytes[at] == (unsigned char)((at * 7 + i) ^ 0x5a), "a byte", i);
    }
    vgpu_ring_read(&near.replies, frame.length, &near_doorbell);
  }
  pthread_join(sending, NULL);
  pthread_join(thread, NULL);
  vgpu_rings_unmap(&near);
  vgpu_rings_unmap(&far);
  vgpu_doorbell_destroy(&near_doorbell);
  vgpu_doorbell_destroy(&far_doorbell);
  close(memory);
  printf("%u frames\n", frames);
  return 0;
}
