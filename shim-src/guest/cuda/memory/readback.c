#include "guest/cuda/memory/readback.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_calls.h"
#include "guest/cuda/internal.h"
#include "guest/cuda/pause.h"

/*
 * Longer reads wait. Posting them is several times slower, because the host copies posted bytes once more and
 * sends them only on request. If a later call of the program may have to end a wait of the stream, long reads
 * are posted in pieces; four pieces fit into an answer.
 */
#define PIECE ((size_t)255 << 10)
#define MOST_BYTES (8u << 20)
#define MOST_READS 1024u
#define NOT_READ UINT64_MAX
#define ANY_STREAM UINT64_MAX

struct vgpu_readback {
  struct vgpu_readback *next;
  uint64_t ticket;
  uint64_t context;
  uint64_t stream;
  unsigned char *destination;
  size_t bytes;
  uint64_t posted; /* its number in the order of posting; 0: not posted yet */
};

/* Several threads may request an entry; the host sends its bytes once, to the first that is ready. */
#define BATCH 64
struct vgpu_readback_batch {
  struct vgpu_readback_batch
      *next;               /* in the list of batches, from the question until the answer is delivered */
  uint64_t tickets[BATCH]; /* rising */
  uint32_t count;
  uint32_t room; /* maximum size of the answer, in bytes */
  uint64_t last; /* ticket */
  bool came;     /* the answer has arrived and is not delivered yet. Use __atomic */
};

void vgpu_readbacks_init(struct vgpu_readbacks *readbacks) {
  memset(readbacks, 0, sizeof *readbacks);
  pthread_mutex_init(&readbacks->lock, NULL);
  pthread_cond_init(&readbacks->delivered, NULL);
  readbacks->next_ticket = 1;
}

static bool none(const struct vgpu_readbacks *readbacks) {
  return __atomic_load_n(&readbacks->count, __ATOMIC_ACQUIRE) == 0;
}

bool vgpu_readback_pending(const struct vgpu_driver *driver) {
  return !none(&driver->readbacks);
}

static bool overlaps(const struct vgpu_readback *entry, const void *memory, size_t bytes) {
  const unsigned char *at = memory;
  return entry->destination < at + bytes && at < entry->destination + entry->bytes;
}

static uint32_t packed(size_t bytes) {
  return (uint32_t)(sizeof(uint64_t) + ((bytes + 7) & ~(size_t)7));
}

/* Posts one piece. False: too much is in progress. */
static bool post(struct vgpu_driver *driver, const struct vgpu_readback *piece, uint64_t source,
                 int *result) {
  struct vgpu_readbacks *readbacks = &driver->readbacks;
  struct vgpu_readback *entry = malloc(sizeof *entry);
  if (entry == NULL) return false;
  *entry = *piece;
  pthread_mutex_lock(&readbacks->lock);
  bool full = readbacks->bytes + entry->bytes > MOST_BYTES || readbacks->count >= MOST_READS;
  if (!full) {
    entry->ticket = readbacks->next_ticket++;
    if (readbacks->last == NULL) readbacks->first = entry;
    else readbacks->last->next = entry;
    readbacks->last = entry;
    readbacks->bytes += entry->bytes;
    __atomic_add_fetch(&readbacks->count, 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&readbacks->lock);
  if (full) {
    free(entry);
    return false;
  }
  struct vgpu_send_read_later send = {.context = piece->context,
                                      .stream = piece->stream,
                                      .source = source,
                                      .bytes = piece->bytes,
                                      .ticket = entry->ticket};
  *result = vgpu_cuda_post(VGPU_OP_read_later, &send, sizeof send, NULL, 0);
  pthread_mutex_lock(&readbacks->lock);
  entry->posted = ++readbacks->posted; /* the entry still exists: it is not asked for before */
  pthread_mutex_unlock(&readbacks->lock);
  return true;
}

static bool has_room(struct vgpu_driver *driver, size_t bytes) {
  struct vgpu_readbacks *readbacks = &driver->readbacks;
  if (bytes > PIECE && !__atomic_load_n(&driver->holds, __ATOMIC_ACQUIRE)) return false;
  pthread_mutex_lock(&readbacks->lock);
  bool room = bytes <= MOST_BYTES - readbacks->bytes;
  pthread_mutex_unlock(&readbacks->lock);
  return room;
}

size_t vgpu_readback_post(struct vgpu_driver *driver, void *destination, uint64_t context, uint64_t stream,
                          uint64_t source, size_t bytes, int *result) {
  size_t done = 0;
  if (!has_room(driver, bytes)) return 0;
  while (*result == CUDA_SUCCESS && done < bytes) {
    const struct vgpu_readback piece = {.context = context,
                                        .stream = stream,
                                        .destination = (unsigned char *)destination + done,
                                        .bytes = bytes - done < PIECE ? bytes - done : PIECE};
    if (!post(driver, &piece, source + done, result)) break;
    done += piece.bytes;
  }
  return done;
}

/* Adds an entry to a batch. False: the answer would be too long. The caller holds the lock. */
static bool take(struct vgpu_readback_batch *batch, const struct vgpu_readback *entry) {
  if (batch->count == BATCH || batch->room + packed(entry->bytes) > VGPU_BULK_MAX) return false;
  batch->tickets[batch->count++] = entry->ticket;
  batch->room += packed(entry->bytes);
  batch->last = entry->ticket;
  return true;
}

/* Takes entries between two tickets, of one stream or of ANY, as many as an answer can carry. */
static void claim(struct vgpu_readbacks *readbacks, struct vgpu_readback_batch *batch, uint64_t stream,
                  uint64_t after, uint64_t upto) {
  *batch = (struct vgpu_readback_batch){.last = after};
  if (none(readbacks)) return;
  pthread_mutex_lock(&readbacks->lock);
  for (const struct vgpu_readback *entry = readbacks->first; entry != NULL && entry->ticket <= upto;
       entry = entry->next) {
    if (entry->posted == 0 || entry->ticket <= after || (stream != ANY_STREAM && entry->stream != stream))
      continue;
    if (!take(batch, entry)) break;
  }
  if (batch->count > 0) {
    batch->next = readbacks->batches;
    readbacks->batches = batch;
  }
  pthread_mutex_unlock(&readbacks->lock);
}

/* Removes the entry from the list and frees it. The caller holds the lock. */
static void unlink_entry(struct vgpu_readbacks *readbacks, struct vgpu_readback **link,
                         struct vgpu_readback *before) {
  struct vgpu_readback *entry = *link;
  *link = entry->next;
  if (readbacks->last == entry) readbacks->last = before;
  readbacks->bytes -= entry->bytes;
  __atomic_sub_fetch(&readbacks->count, 1, __ATOMIC_RELEASE);
  free(entry);
}

static bool has_entry(const struct vgpu_readbacks *readbacks, uint64_t ticket) {
  const struct vgpu_readback *entry = readbacks->first;
  while (entry != NULL && entry->ticket < ticket) entry = entry->next;
  return entry != NULL && entry->ticket == ticket;
}

static bool has_ticket(const struct vgpu_readback_batch *batch, uint64_t ticket) {
  for (uint32_t i = 0; i < batch->count; i++)
    if (batch->tickets[i] == ticket) return true;
  return false;
}

/* True if another thread's undelivered answer may hold the bytes. The caller holds the lock. */
static bool is_about_to_come(const struct vgpu_readbacks *readbacks, uint64_t ticket) {
  for (const struct vgpu_readback_batch *batch = readbacks->batches; batch != NULL; batch = batch->next)
    if (__atomic_load_n(&batch->came, __ATOMIC_ACQUIRE) && has_ticket(batch, ticket)) return true;
  return false;
}

/*
 * Delivers the bytes of `answer` to their destinations and removes `batch` from the list. NOT_READ: the bytes
 * of an entry are not ready, or the host has sent them to another thread; if that thread's answer has
 * arrived, this thread waits until it is delivered. `forget`: the wait failed, so entries are dropped (CUDA
 * promises nothing about the contents). False: the answer is invalid.
 */
static bool deliver(struct vgpu_readbacks *readbacks, struct vgpu_readback_batch *batch,
                    const unsigned char *answer, uint32_t size, bool forget) {
  if (batch->count == 0) return size == 0;
  bool sound = true;
  uint32_t at = 0, left = 0;
  pthread_mutex_lock(&readbacks->lock);
  struct vgpu_readback *before = NULL, **link = &readbacks->first;
  for (uint32_t i = 0; sound && i < batch->count; i++) {
    while (*link != NULL && (*link)->ticket < batch->tickets[i]) {
      before = *link;
      link = &before->next;
    }
    struct vgpu_readback *entry = *link != NULL && (*link)->ticket == batch->tickets[i] ? *link : NULL;
    uint64_t bytes = NOT_READ;
    if (answer != NULL) {
      sound = size - at >= sizeof bytes;
      if (sound) memcpy(&bytes, answer + at, sizeof bytes);
      at += (uint32_t)sizeof bytes;
    }
    if (sound && bytes != NOT_READ) {
      /* No other thread can deliver it: the host sends the bytes once. */
      sound = entry != NULL && bytes == entry->bytes && size - at >= packed(entry->bytes) - sizeof bytes;
      if (sound) memcpy(entry->destination, answer + at, entry->bytes);
      at += sound ? packed(entry->bytes) - (uint32_t)sizeof bytes : 0;
    }
    if (entry != NULL && (forget || (sound && bytes != NOT_READ))) unlink_entry(readbacks, link, before);
    else if (entry != NULL) batch->tickets[left++] = entry->ticket;
  }
  struct vgpu_readback_batch **own = &readbacks->batches;
  while (*own != batch) own = &(*own)->next;
  *own = batch->next;
  pthread_cond_broadcast(&readbacks->delivered);
  for (uint32_t i = 0; i < left && !forget; i++)
    while (has_entry(readbacks, batch->tickets[i]) && is_about_to_come(readbacks, batch->tickets[i]))
      pthread_cond_wait(&readbacks->delivered, &readbacks->lock);
  pthread_mutex_unlock(&readbacks->lock);
  return sound && (answer == NULL || at == size);
}

static int ask(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
               struct vgpu_readback_batch *batch) {
  unsigned char *answer = batch->room == 0 ? NULL : malloc(batch->room);
  if (batch->room != 0 && answer == NULL) {
    deliver(&driver->readbacks, batch, NULL, 0, false);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  struct vgpu_cuda_exchange exchange = {.send = send,
                                        .send_size = send_size,
                                        .send_bulk = batch->tickets,
                                        .send_bulk_size = batch->count * (uint32_t)sizeof batch->tickets[0],
                                        .bulk = answer,
                                        .bulk_capacity = batch->room,
                                        .came = &batch->came};
  int result = vgpu_cuda_exchange_once(opcode, &exchange);
  bool came = result == CUDA_SUCCESS;
  bool sound = deliver(&driver->readbacks, batch, came ? answer : NULL, came ? exchange.bulk_size : 0,
                       !came && result != CUDA_ERROR_NOT_READY);
  free(answer);
  return came && !sound ? CUDA_ERROR_UNKNOWN : result;
}

static uint64_t newest(struct vgpu_readbacks *readbacks, uint64_t *posted) {
  *posted = 0;
  if (none(readbacks)) return 0;
  pthread_mutex_lock(&readbacks->lock);
  uint64_t ticket = readbacks->next_ticket - 1;
  *posted = readbacks->posted;
  pthread_mutex_unlock(&readbacks->lock);
  return ticket;
}

/*
 * Drops the entries of a context and, unless it is ANY, of a stream, if they are among the first `posted`
 * that were posted. The caller holds the lock.
 */
static void forget(struct vgpu_readbacks *readbacks, uint64_t context, uint64_t stream, uint64_t posted) {
  struct vgpu_readback *before = NULL;
  for (struct vgpu_readback **link = &readbacks->first; *link != NULL;) {
    struct vgpu_readback *entry = *link;
    if (entry->context == context && (stream == ANY_STREAM || entry->stream == stream) &&
        entry->posted != 0 && entry->posted <= posted) {
      unlink_entry(readbacks, link, before);
    } else {
      before = entry;
      link = &entry->next;
    }
  }
  pthread_cond_broadcast(&readbacks->delivered);
}

static int settle(struct vgpu_driver *driver, uint64_t context, uint64_t upto) {
  struct vgpu_readback_batch batch;
  int result = CUDA_SUCCESS;
  for (uint64_t after = 0; result == CUDA_SUCCESS && after < upto; after = batch.last) {
    claim(&driver->readbacks, &batch, ANY_STREAM, after, upto);
    if (batch.count == 0) break;
    struct vgpu_send_read_fetch send = {.context = context};
    result = ask(driver, VGPU_OP_read_fetch, &send, sizeof send, &batch);
  }
  return result;
}

int vgpu_readback_settle(struct vgpu_driver *driver, uint64_t context) {
  uint64_t posted;
  return settle(driver, context, newest(&driver->readbacks, &posted));
}

int vgpu_readback_wait(struct vgpu_driver *driver, uint32_t opcode, const void *send, uint32_t send_size,
                       uint64_t context, uint64_t stream, enum vgpu_wait_scope scope) {
  struct vgpu_readbacks *readbacks = &driver->readbacks;
  uint64_t posted, upto = newest(readbacks, &posted);
  struct vgpu_pause pause = {0};
  struct vgpu_readback_batch batch = {.count = 0};
  int result;
  for (;;) {
    if (scope != VGPU_WAIT_CONTEXT) claim(readbacks, &batch, stream, 0, UINT64_MAX);
    result = ask(driver, opcode, send, send_size, &batch);
    if (result != CUDA_ERROR_NOT_READY) break;
    vgpu_pause(&pause);
  }
  if (result == CUDA_SUCCESS && upto != 0) {
    if (scope == VGPU_WAIT_CONTEXT) stream = ANY_STREAM;
    result = settle(driver, context, upto);
    if (result == CUDA_SUCCESS && scope != VGPU_WAIT_EVENT && !none(readbacks)) {
      /*
       * The work that was there when this wait began is done, so missing bytes mean a failure at the host,
       * which is returned like any other. Another thread may have posted reads after the wait began: keep
       * those.
       */
      pthread_mutex_lock(&readbacks->lock);
      forget(readbacks, context, stream, posted);
      pthread_mutex_unlock(&readbacks->lock);
    }
  }
  return result != CUDA_SUCCESS ? result : vgpu_session_take_deferred(driver->session);
}

/* Finds the stream of an entry that writes to these bytes. False: no entry does. */
static bool find_overlap(struct vgpu_readbacks *readbacks, const void *memory, size_t bytes,
                         struct vgpu_send_cuStreamSynchronize *found) {
  pthread_mutex_lock(&readbacks->lock);
  struct vgpu_readback *entry = readbacks->first;
  while (entry != NULL && !overlaps(entry, memory, bytes)) entry = entry->next;
  if (entry != NULL) {
    *found = (struct vgpu_send_cuStreamSynchronize){.context = entry->context, .stream = entry->stream};
  }
  pthread_mutex_unlock(&readbacks->lock);
  return entry != NULL;
}

int vgpu_readback_flush(struct vgpu_driver *driver, const void *memory, size_t bytes) {
  struct vgpu_send_cuStreamSynchronize send;
  while (!none(&driver->readbacks) && find_overlap(&driver->readbacks, memory, bytes, &send)) {
    int result;
    if (send.stream == (uint64_t)(uintptr_t)VGPU_STREAM_PER_THREAD) {
      /* The stream may be the per-thread stream of another thread. Only a wait for the whole context covers
       * it. */
      struct vgpu_send_cuCtxSynchronize all = {.context = send.context};
      result = vgpu_readback_wait(driver, VGPU_OP_cuCtxSynchronize, &all, sizeof all, send.context, 0,
                                  VGPU_WAIT_CONTEXT);
    } else {
      result = vgpu_readback_wait(driver, VGPU_OP_cuStreamSynchronize, &send, sizeof send, send.context,
                                  send.stream, VGPU_WAIT_STREAM);
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

void vgpu_readback_drop(struct vgpu_driver *driver, uint64_t context) {
  if (none(&driver->readbacks)) return;
  pthread_mutex_lock(&driver->readbacks.lock);
  forget(&driver->readbacks, context, ANY_STREAM, UINT64_MAX);
  pthread_mutex_unlock(&driver->readbacks.lock);
}
