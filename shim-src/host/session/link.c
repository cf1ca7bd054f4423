#include "host/session/link.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "host/session/processor.h"
#include "wire/clock.h"
#include "wire/shared.h"
#include "wire/stream.h"

typedef const struct vgpu_dispatch_row *find_row(const void *context, uint32_t opcode);

/* Time for a guest to finish a frame that it has started, or to read an answer. */
#define FRAME_LIMIT_MS 60000

/*
 * Limit of the socket's unread bytes before another descriptor is passed. A guest reads each descriptor
 * before it asks for the next one, so only rings of the doorbell may be unread; the kernel counts about 800
 * bytes for each. Descriptors in flight count for the user of all workers (RLIMIT_NOFILE, unix(7)): without a
 * limit one session blocks all others.
 */
#define UNREAD_MOST 8192
#define UNREAD_LIMIT_MS 200

int vgpu_link_make_rings(struct vgpu_link *link) {
  int memory = vgpu_shared_make("vgpu-ring", vgpu_rings_bytes(VGPU_RING_BYTES));
  if (memory < 0) return -1;
  if (vgpu_rings_map(&link->rings, memory, 0, VGPU_RING_BYTES)) {
    /* Guest and host use the same processors here. In a VM the numbers mean nothing to the host. */
    link->rings.requests.peer_processor = &link->rings.replies.control->reader_processor;
    link->rings.requests.leave = vgpu_leave_processor;
    vgpu_doorbell_init(&link->doorbell, link->descriptor);
    return memory;
  }
  close(memory);
  return -1;
}

bool vgpu_link_place_rings(struct vgpu_link *link, const struct vgpu_vm_memory *memory,
                           const struct vgpu_vm_place *place, uint64_t *next) {
  *next = 0;
  if (place->bytes != vgpu_rings_bytes(VGPU_RING_BYTES) || !vgpu_vm_memory_take(memory, place, next))
    return false;
  if (vgpu_rings_map(&link->rings, memory->holder, place->offset, VGPU_RING_BYTES)) {
    vgpu_rings_across_vm(&link->rings, false);
    vgpu_doorbell_init(&link->doorbell, link->descriptor);
    return true;
  }
  vgpu_vm_memory_give(memory, place);
  return false;
}

static const char *violation_of(const struct vgpu_link *link, const struct vgpu_frame *frame) {
  uint32_t allowed = VGPU_FLAG_ONEWAY | (link->rings.base != NULL ? VGPU_FLAG_SHARED_REGION : 0);
  if ((frame->flags & ~allowed) != 0) return "a flag that was not agreed upon";
  if (frame->sequence != link->next_sequence) return "a frame out of order";
  return NULL;
}

/*
 * Takes a request from the ring. Bytes that the guest can change are copied first, unless the handler only
 * copies them (`raw_in`).
 */
static void take_from_ring(struct vgpu_link *link, struct vgpu_request *request) {
  const struct vgpu_frame *frame = &request->frame;
  const unsigned char *body = vgpu_ring_at(&link->rings.requests) + sizeof *frame;
  const unsigned char *bulk = body + frame->body;
  bool in_place =
      request->row != NULL && request->row->raw_in && (frame->flags & VGPU_FLAG_SHARED_REGION) == 0;
  memcpy(link->in, body, in_place ? frame->body : frame->body + frame->bulk);
  request->bulk = in_place ? bulk : link->in + frame->body;
}

/*
 * Continues with the guest's next connection, over which the guest sends again what is missing here. False:
 * there is none.
 */
static bool reconnect(struct vgpu_link *link) {
  uint64_t received;
  int next = vgpu_line_wait(&link->line, &received);
  if (next < 0) return false;
  pthread_mutex_lock(&link->writing);
  link->descriptor = link->ahead.descriptor = next;
  link->ahead.begin = link->ahead.end = 0;
  vgpu_replies_drop(&link->line.replies, received);
  /* If the new connection has ended as well, the next read fails. */
  (void)vgpu_replies_send(&link->line.replies, next, vgpu_now_ms() + FRAME_LIMIT_MS);
  pthread_mutex_unlock(&link->writing);
  return true;
}

/* Waits for the guest after the doorbell has ended. True: the guest is back, and its rings are intact. */
static bool is_rung_again(struct vgpu_link *link) {
  return vgpu_line_survives(&link->line) && vgpu_doorbell_wait_renewed(&link->doorbell);
}

static void count_frame(struct vgpu_link *link) {
  __atomic_store_n(&link->next_sequence, link->next_sequence + 1, __ATOMIC_RELAXED);
}

static enum vgpu_received receive_from_ring(struct vgpu_link *link, find_row *find, const void *context,
                                            struct vgpu_request *request, const char **violation) {
  struct vgpu_frame *frame = &request->frame;
  enum vgpu_stream_result result;
  while ((result = vgpu_ring_read_header(&link->rings.requests, frame, &link->doorbell, VGPU_NO_DEADLINE)) ==
         VGPU_STREAM_CLOSED) {
    if (!is_rung_again(link)) return VGPU_RECEIVED_END;
    if (link->parked > 0) return VGPU_RECEIVED_NOTHING;
  }
  *violation = result == VGPU_STREAM_OK ? violation_of(link, frame) : "an invalid frame or index of the ring";
  if (*violation != NULL) return VGPU_RECEIVED_END;
  __atomic_store_n(&link->working, true, __ATOMIC_RELAXED);
  count_frame(link);
  link->current = frame->length;
  request->row = find(context, frame->opcode);
  take_from_ring(link, request);
  return VGPU_RECEIVED;
}

/* The guest may have sent this before its connection broke. */
static bool is_duplicate(const struct vgpu_link *link, const struct vgpu_frame *frame) {
  return link->line.agreed && frame->sequence != 0 && frame->sequence < link->next_sequence;
}

static enum vgpu_stream_result read_frame(struct vgpu_link *link, struct vgpu_frame *frame,
                                          const char **violation) {
  for (;;) {
    enum vgpu_stream_result result = vgpu_read_ahead_read_header(&link->ahead, frame, VGPU_NO_DEADLINE);
    if (result == VGPU_STREAM_CLOSED) return result;
    if (result != VGPU_STREAM_OK) *violation = "a frame whose sizes do not agree";
    else if (!is_duplicate(link, frame)) *violation = violation_of(link, frame);
    if (*violation != NULL) return VGPU_STREAM_UNSOUND;
    __atomic_store_n(&link->working, true, __ATOMIC_RELAXED);
    result = vgpu_read_ahead_read(&link->ahead, link->in, frame->length - sizeof *frame,
                                  vgpu_about_now_ms() + FRAME_LIMIT_MS);
    if (result != VGPU_STREAM_OK || !is_duplicate(link, frame)) return result;
    __atomic_store_n(&link->working, false, __ATOMIC_RELAXED);
  }
}

void vgpu_link_settle(struct vgpu_link *link) {
  struct vgpu_line *line = &link->line;
  if (link->rings.base != NULL || !line->agreed) return;
  if (!vgpu_replies_settle(&line->replies)) __atomic_store_n(&line->overrun, true, __ATOMIC_RELAXED);
}

enum vgpu_received vgpu_link_receive(struct vgpu_link *link, find_row *find, const void *context,
                                     struct vgpu_request *request, const char **violation) {
  struct vgpu_frame *frame = &request->frame;
  *violation = NULL;
  request->body = link->in;
  if (link->rings.base != NULL) return receive_from_ring(link, find, context, request, violation);
  enum vgpu_stream_result result;
  while ((result = read_frame(link, frame, violation)) == VGPU_STREAM_CLOSED) {
    __atomic_store_n(&link->working, false, __ATOMIC_RELAXED);
    if (!reconnect(link)) return VGPU_RECEIVED_END;
    if (link->parked > 0) return VGPU_RECEIVED_NOTHING;
  }
  if (result != VGPU_STREAM_OK) return VGPU_RECEIVED_END;
  count_frame(link);
  /* Drops the replies that the guest has received. The others must not change during this request. */
  if (link->line.agreed) vgpu_replies_drop(&link->line.replies, vgpu_frame_acknowledged(frame));
  vgpu_link_settle(link);
  link->current = frame->length;
  request->row = find(context, frame->opcode);
  request->bulk = link->in + frame->body;
  return VGPU_RECEIVED;
}

bool vgpu_link_has_come(struct vgpu_link *link) {
  return link->rings.base != NULL ? vgpu_link_has_next(link) : vgpu_read_ahead_has_come(&link->ahead);
}

bool vgpu_link_sleep(struct vgpu_link *link, uint64_t until) {
  if (link->rings.base != NULL) {
    enum vgpu_stream_result result = vgpu_ring_sleep(&link->rings.requests, &link->doorbell, until);
    return result != VGPU_STREAM_CLOSED || is_rung_again(link);
  }
  const uint64_t now = vgpu_now_ns(), left = until > now ? until - now : 0;
  const struct timespec limit = {.tv_sec = (time_t)(left / 1000000000u),
                                 .tv_nsec = (long)(left % 1000000000u)};
  struct pollfd poller = {.fd = link->descriptor, .events = POLLIN};
  (void)ppoll(&poller, 1, &limit, NULL);
  return true;
}

bool vgpu_link_spins(const struct vgpu_link *link, struct vgpu_spinning *spinning) {
  if (link->rings.base == NULL) return vgpu_spin_call(&link->ahead.spin, spinning);
  return vgpu_spin_turn(&link->rings.requests.spin, spinning);
}

void vgpu_link_learn(struct vgpu_link *link, const struct vgpu_spinning *spinning, bool slept) {
  if (link->rings.base != NULL) vgpu_ring_learn(&link->rings.requests, spinning, slept);
  else (void)vgpu_spin_learn(&link->ahead.spin, spinning, slept);
}

bool vgpu_link_has_more(const struct vgpu_link *link) {
  if (link->rings.base != NULL) {
    /* The current frame stays in the ring until it is done. The guest's index is only compared. */
    const struct vgpu_ring *ring = &link->rings.requests;
    return __atomic_load_n(&ring->control->tail, __ATOMIC_ACQUIRE) !=
           ring->position + vgpu_ring_step(link->current);
  }
  struct pollfd poller = {.fd = link->descriptor, .events = POLLIN};
  return link->ahead.end > link->ahead.begin || poll(&poller, 1, 0) == 1;
}

bool vgpu_link_has_next(const struct vgpu_link *link) {
  if (link->rings.base != NULL) {
    const struct vgpu_ring *ring = &link->rings.requests;
    return __atomic_load_n(&ring->control->tail, __ATOMIC_ACQUIRE) != ring->position;
  }
  unsigned char first;
  return link->ahead.end > link->ahead.begin ||
         recv(link->descriptor, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

void vgpu_link_done(struct vgpu_link *link, const struct vgpu_request *request) {
  __atomic_store_n(&link->working, false, __ATOMIC_RELAXED);
  if (link->rings.base == NULL) return;
  vgpu_ring_read(&link->rings.requests, request->frame.length, &link->doorbell);
  __atomic_store_n(&link->read, link->rings.requests.position, __ATOMIC_RELEASE);
}

static bool reply_in_ring(struct vgpu_link *link, struct vgpu_frame *reply, const void *body,
                          uint32_t body_size, const void *bulk, uint32_t bulk_size) {
  enum vgpu_stream_result result;
  do {
    result = vgpu_ring_write_frame(&link->rings.replies, reply, body, body_size, bulk, bulk_size,
                                   &link->doorbell, vgpu_about_now_ms() + FRAME_LIMIT_MS);
  } while (result == VGPU_STREAM_CLOSED && is_rung_again(link));
  __atomic_store_n(&link->written, link->rings.replies.position, __ATOMIC_RELEASE);
  return result == VGPU_STREAM_OK;
}

bool vgpu_link_reply(struct vgpu_link *link, struct vgpu_frame *reply, const void *body, uint32_t body_size,
                     const void *bulk, uint32_t bulk_size) {
  if (link->rings.base != NULL) return reply_in_ring(link, reply, body, body_size, bulk, bulk_size);
  int64_t deadline = vgpu_about_now_ms() + FRAME_LIMIT_MS;
  struct vgpu_line *line = &link->line;
  if (line->agreed && !line->overrun &&
      !vgpu_replies_keep(&line->replies, reply, body, body_size, bulk, bulk_size)) {
    __atomic_store_n(&line->overrun, true, __ATOMIC_RELAXED);
  }
  pthread_mutex_lock(&link->writing);
  enum vgpu_stream_result result =
      vgpu_stream_write_frame(link->descriptor, reply, body, body_size, bulk, bulk_size, deadline);
  pthread_mutex_unlock(&link->writing);
  /*
   * The guest's next connection gets a reply that could not be sent. The next read waits for that connection.
   */
  return result == VGPU_STREAM_OK || (result == VGPU_STREAM_CLOSED && line->agreed);
}

void vgpu_link_tell_alive(struct vgpu_link *link, bool idle) {
  const bool owes = __atomic_load_n(&link->working, __ATOMIC_RELAXED) ||
                    __atomic_load_n(&link->parked, __ATOMIC_RELAXED) > 0;
  if (!link->alive || (!idle && !owes)) return;
  if (link->rings.base != NULL) {
    vgpu_doorbell_ring(&link->doorbell);
    return;
  }
  /* If the thread is writing an answer, the guest needs no other sign. */
  if (pthread_mutex_trylock(&link->writing) != 0) return;
  struct vgpu_frame sign = {.opcode = VGPU_OP_ALIVE, .flags = VGPU_FLAG_REPLY};
  /* The watching thread, which runs this code, owns a connection that is not taken yet. */
  int newest = link->line.agreed ? vgpu_line_newest(&link->line) : link->descriptor;
  /* If its socket is full, the guest is not waiting for a sign. */
  struct pollfd poller = {.fd = newest, .events = POLLOUT};
  if (poll(&poller, 1, 0) == 1 && (poller.revents & POLLOUT) != 0) {
    (void)vgpu_stream_write_frame(newest, &sign, NULL, 0, NULL, 0, vgpu_now_ms() + FRAME_LIMIT_MS);
  }
  pthread_mutex_unlock(&link->writing);
}

static void forget_passed(struct vgpu_link *link) {
  if (link->passed.region != 0) close(link->passed.descriptor);
  link->passed.region = 0;
}

bool vgpu_link_may_pass(const struct vgpu_link *link) {
  const int64_t deadline = vgpu_now_ms() + UNREAD_LIMIT_MS;
  for (;;) {
    int unread = 0;
    if (ioctl(link->descriptor, SIOCOUTQ, &unread) != 0 || unread <= UNREAD_MOST) return true;
    if (vgpu_left_ms(deadline) == 0) return false;
    const struct timespec nap = {.tv_nsec = 1000000};
    nanosleep(&nap, NULL);
  }
}

void vgpu_link_pass(struct vgpu_link *link, uint32_t region, int descriptor) {
  pthread_mutex_lock(&link->writing);
  forget_passed(link);
  link->passed.count++;
  if (link->line.agreed) {
    link->passed.descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (link->passed.descriptor >= 0) link->passed.region = region;
  }
  (void)vgpu_stream_pass(link->descriptor, descriptor, vgpu_now_ms() + FRAME_LIMIT_MS);
  pthread_mutex_unlock(&link->writing);
}

void vgpu_link_forget_passed(struct vgpu_link *link, uint32_t region) {
  pthread_mutex_lock(&link->writing);
  if (link->passed.region == region) forget_passed(link);
  pthread_mutex_unlock(&link->writing);
}

static bool has_passed(const uint64_t *shared, const uint64_t *own) {
  uint64_t least = __atomic_load_n(own, __ATOMIC_ACQUIRE);
  return (int64_t)(__atomic_load_n(shared, __ATOMIC_SEQ_CST) - least) >= 0;
}

bool vgpu_link_intact(const struct vgpu_link *link) {
  return __atomic_load_n(vgpu_rings_mark(&link->rings), __ATOMIC_SEQ_CST) == link->mark &&
         has_passed(&link->rings.requests.control->head, &link->read) &&
         has_passed(&link->rings.replies.control->tail, &link->written);
}

void vgpu_link_mark(struct vgpu_link *link) {
  if (getrandom(&link->mark, sizeof link->mark, 0) != (ssize_t)sizeof link->mark) link->mark++;
  __atomic_store_n(vgpu_rings_mark(&link->rings), link->mark, __ATOMIC_SEQ_CST);
}

void vgpu_link_renew(struct vgpu_link *link, int connection, uint64_t received) {
  shutdown(link->descriptor, SHUT_RDWR); /* ends a thread that is passing a descriptor */
  pthread_mutex_lock(&link->writing);
  (void)vgpu_doorbell_end(&link->doorbell);
  /* If there is no room, keep the old connection; we will see it close. */
  if (vgpu_doorbell_renew(&link->doorbell, connection) && link->passed.region != 0 &&
      received + 1 == link->passed.count) {
    (void)vgpu_stream_pass(link->descriptor, link->passed.descriptor, vgpu_now_ms());
  }
  pthread_mutex_unlock(&link->writing);
  close(connection);
  vgpu_doorbell_ring(&link->doorbell);
}

bool vgpu_link_mapped(const struct vgpu_link *link) {
  if (link->ring_memory < 0) return true;
  struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(link->ring_memory, F_OFD_GETLK, &held) != 0 || held.l_type != F_UNLCK;
}
