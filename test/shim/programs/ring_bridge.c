/*
 * The guest's end of a session with rings. The program that writes to its stdin controls it, and may break
 * the protocol. The greeting's answer and all replies go to stdout unchanged. Ends when the host hangs up.
 *
 *   ring_bridge SOCKET      stdin: { u32 command, u32 length, bytes }*
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/clock.h"
#include "wire/ring.h"
#include "wire/shared.h"
#include "wire/stream.h"

enum {
  SEND = 0, /* bytes of frames: to the socket before the welcome, then into the ring, published at once */
  TAIL = 1, /* u64: the tail of the requests becomes this much more than it is */
  HEAD = 2, /* u64: likewise the head of the replies, which stays there: later replies are read without moving
               it */
  DOORBELL = 3, /* bytes for the socket */
  FLICKER = 4,  /* two frames of the same length: published, and exchanged for each other without end */
  SLEEPS = 5,   /* u32: what all flags of sleepers become */
  DEAF = 7,     /* the socket is not read any more, so that what the host passes stays there */
  PASS = 6,     /* a descriptor for the socket, as many times as there are bytes */
};

static struct vgpu_rings rings;
static struct vgpu_doorbell doorbell;
static int host;
static _Atomic bool head_stays, deaf;

static _Noreturn void give_up(const char *what) {
  fprintf(stderr, "ring_bridge: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void put(const void *bytes, size_t size) {
  const unsigned char *at = bytes;
  while (size > 0) {
    ssize_t done = write(STDOUT_FILENO, at, size);
    if (done <= 0) exit(0); /* the reader is gone */
    at += done;
    size -= (size_t)done;
  }
}

static bool get(void *bytes, size_t size) {
  unsigned char *at = bytes;
  while (size > 0) {
    ssize_t done = read(STDIN_FILENO, at, size);
    if (done <= 0) return false;
    at += done;
    size -= (size_t)done;
  }
  return true;
}

static void *replies(void *unused) {
  (void)unused;
  unsigned char *copy = malloc(VGPU_FRAME_MAX);
  if (copy == NULL) give_up("memory");
  for (;;) {
    struct vgpu_frame frame;
    uint32_t there;
    while (deaf && vgpu_ring_available(&rings.replies, &there) == VGPU_RING_NOT_YET) usleep(1000);
    enum vgpu_stream_result result =
        vgpu_ring_read_header(&rings.replies, &frame, &doorbell, VGPU_NO_DEADLINE);
    if (result != VGPU_STREAM_OK) exit(result == VGPU_STREAM_CLOSED ? 0 : 1);
    /* Copied before it is reported, because the reader may then change the indexes. */
    memcpy(copy, vgpu_ring_at(&rings.replies), frame.length);
    if (!head_stays) vgpu_ring_read(&rings.replies, frame.length, &doorbell);
    else rings.replies.position += vgpu_ring_step(frame.length);
    put(copy, frame.length);
  }
}

/* Prints the host's answer to the greeting, and enters the rings if it contains some. */
static void greeting(void) {
  struct {
    struct vgpu_frame frame;
    struct vgpu_welcome welcome;
  } reply;
  int memory = -1;
  if (vgpu_stream_read_passed(host, &reply.frame, sizeof reply.frame, &memory, VGPU_NO_DEADLINE) !=
      VGPU_STREAM_OK) {
    exit(0);
  }
  size_t rest = reply.frame.length - sizeof reply.frame;
  if (rest > sizeof reply.welcome || vgpu_stream_read(host, &reply.welcome, rest, VGPU_NO_DEADLINE) != 0) {
    exit(0);
  }
  if (reply.frame.status == 0 && (reply.welcome.features & VGPU_FEATURE_RING) != 0) {
    uint32_t size = reply.welcome.ring_size;
    if (!vgpu_shared_sound(memory, vgpu_rings_bytes(size)) || !vgpu_rings_map(&rings, memory, 0, size)) {
      give_up("rings");
    }
    vgpu_doorbell_init(&doorbell, host);
    pthread_t thread;
    if (pthread_create(&thread, NULL, replies, NULL) != 0) give_up("thread");
  }
  put(&reply, sizeof reply.frame + rest);
  if (rings.base == NULL) exit(0);
}

static void write_to_ring(const unsigned char *bytes, uint32_t length) {
  while (vgpu_ring_room(&rings.requests, length) == VGPU_RING_NOT_YET) {
    if (vgpu_doorbell_wait(&doorbell, vgpu_doorbell_generation(&doorbell), vgpu_now_ms() + 1) ==
        VGPU_STREAM_CLOSED)
      exit(0);
  }
  memcpy(vgpu_ring_at(&rings.requests), bytes, length);
  vgpu_ring_written(&rings.requests, length, &doorbell);
}

/*
 * Sends the frames unchanged, valid or not. More frames than fit in the ring are more than the host would
 * read.
 */
static void send_frames(const unsigned char *bytes, uint32_t length) {
  if (rings.base == NULL) {
    if (send(host, bytes, length, MSG_NOSIGNAL) != (ssize_t)length) exit(0);
    greeting();
    return;
  }
  while (length > 0) {
    /*
     * One by one, because each begins at a line of its own. Bytes that are not a frame are sent in one piece.
     */
    uint32_t one = length;
    if (length >= sizeof(struct vgpu_frame)) memcpy(&one, bytes, sizeof one);
    if (one == 0 || one > length) one = length;
    write_to_ring(bytes, one);
    bytes += one;
    length -= one;
  }
}

struct flicker {
  unsigned char *at; /* in the ring */
  uint32_t length;
  unsigned char frames[]; /* two */
};

static void *flicker(void *argument) {
  const struct flicker *two = argument;
  for (unsigned i = 1;; i++) {
    memcpy(two->at, two->frames + (i % 2) * two->length, two->length);
    __asm__ volatile("" : : "r"(two->at) : "memory");
  }
  return NULL;
}

static void begin_flicker(const unsigned char *bytes, uint32_t length) {
  struct flicker *two = malloc(sizeof *two + length);
  if (two == NULL) give_up("memory");
  *two = (struct flicker){.at = vgpu_ring_at(&rings.requests), .length = length / 2};
  memcpy(two->frames, bytes, length);
  send_frames(bytes, two->length);
  pthread_t thread;
  if (pthread_create(&thread, NULL, flicker, two) != 0) give_up("thread");
}

static void carry_out(uint32_t command, const unsigned char *bytes, uint32_t length) {
  uint64_t wide = 0;
  uint32_t narrow = 0;
  if (length >= sizeof wide) memcpy(&wide, bytes, sizeof wide);
  if (length >= sizeof narrow) memcpy(&narrow, bytes, sizeof narrow);
  struct vgpu_ring_control *requests = rings.requests.control, *answers = rings.replies.control;
  if (command == SEND) {
    send_frames(bytes, length);
    return;
  }
  if (rings.base == NULL) give_up("no rings yet");
  switch (command) {
    case TAIL:
      __atomic_store_n(&requests->tail, rings.requests.position + wide, __ATOMIC_SEQ_CST);
      vgpu_doorbell_ring(&doorbell);
      return;
    case HEAD:
      head_stays = true;
      wide += __atomic_load_n(&answers->head, __ATOMIC_SEQ_CST); /* the other thread changes the position */
      __atomic_store_n(&answers->head, wide, __ATOMIC_SEQ_CST);
      return;
    case DOORBELL:
      while (send(host, bytes, length, MSG_NOSIGNAL) < 0 && (errno == EAGAIN || errno == EINTR)) {
        usleep(1000);
      }
      return;
    case FLICKER:
      begin_flicker(bytes, length);
      return;
    case SLEEPS:
      __atomic_store_n(&requests->writer_sleeps, narrow, __ATOMIC_SEQ_CST);
      __atomic_store_n(&requests->reader_sleeps, narrow, __ATOMIC_SEQ_CST);
      __atomic_store_n(&answers->writer_sleeps, narrow, __ATOMIC_SEQ_CST);
      __atomic_store_n(&answers->reader_sleeps, narrow, __ATOMIC_SEQ_CST);
      return;
    case DEAF:
      deaf = true;
      return;
    case PASS:
      for (uint32_t i = 0; i < length; i++) (void)vgpu_stream_pass(host, STDIN_FILENO, vgpu_now_ms() + 1000);
      return;
    default:
      give_up("command");
  }
}

int main(int count, char **words) {
  char text[160];
  struct vgpu_address address;
  if (count != 2) return 2;
  snprintf(text, sizeof text, "unix:%s", words[1]);
  if (!vgpu_address_parse(text, &address)) return 2;
  host = vgpu_stream_connect(&address, vgpu_now_ms() + 5000);
  if (host < 0) give_up(text);
  uint32_t head[2];
  while (get(head, sizeof head)) {
    unsigned char *bytes = malloc(head[1] + 8u);
    if (bytes == NULL || !get(bytes, head[1])) break;
    carry_out(head[0], bytes, head[1]);
    free(bytes);
  }
  return 0;
}
