#include "guest/cuda/memory/staging.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "cuda_calls.h"
#include "guest/cuda/memory/transfer.h"

#define HALF ((size_t)1 << 20) /* stays in a processor's cache between the two copies */
#define SHORTEST ((size_t)128 << 10)

void vgpu_staging_init(struct vgpu_staging *staging) {
  pthread_mutex_init(&staging->lock, NULL);
}

/* Takes the buffer. If true, the caller holds the lock. */
static bool take(const struct vgpu_transfer *transfer) {
  struct vgpu_driver *driver = transfer->driver;
  struct vgpu_staging *staging = &driver->staging;
  if (vgpu_session_welcome(driver->session)->simulated ||
      __atomic_load_n(&driver->capturing, __ATOMIC_ACQUIRE) != 0 ||
      pthread_mutex_trylock(&staging->lock) != 0)
    return false;
  if (staging->memory == NULL && !staging->refused) {
    staging->memory = vgpu_lent_take(driver, transfer->context, 2 * HALF, &staging->shared_region);
    staging->context = transfer->context;
    staging->refused = staging->memory == NULL;
  }
  if (staging->memory != NULL) return true;
  pthread_mutex_unlock(&staging->lock);
  return false;
}

/* Long enough to hide a wait for the device, short enough for both halves to have work. */
static size_t step_of(size_t bytes) {
  size_t step = bytes / 4 < SHORTEST ? SHORTEST : bytes / 4;
  return step < HALF ? step : HALF;
}

static int post(const struct vgpu_transfer *transfer, uint64_t destination, uint64_t source, size_t bytes) {
  const struct vgpu_send_cuMemcpyDtoDAsync_v2 send = {.context = transfer->context,
                                                      .stream = transfer->stream,
                                                      .destination = destination,
                                                      .source = source,
                                                      .bytes = bytes};
  return vgpu_cuda_post(VGPU_OP_cuMemcpyDtoDAsync_v2, &send, sizeof send, NULL, 0);
}

static int await(const struct vgpu_transfer *transfer) {
  return vgpu_cuda_wait_stream(transfer->driver, transfer->context, transfer->stream);
}

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

/*
 * memcpy bypasses the caches only in long calls, and pieces are short. If a copy does not fit the caches,
 * that costs up to half of the rate, because each line of the destination is read before it is written.
 */
#define PAST_CACHES ((size_t)8 << 20)

static void copy_past_caches(unsigned char *to, const unsigned char *from, size_t bytes) {
#ifdef __SSE2__
  const size_t head = -(uintptr_t)to % sizeof(__m128i);
  if (bytes >= 4 * sizeof(__m128i) + head) {
    memcpy(to, from, head);
    size_t done = head;
    for (; bytes - done >= 4 * sizeof(__m128i); done += 4 * sizeof(__m128i)) {
      const __m128i *read = (const __m128i *)(const void *)(from + done);
      __m128i *write = (__m128i *)(void *)(to + done);
      const __m128i first = _mm_loadu_si128(read), second = _mm_loadu_si128(read + 1);
      const __m128i third = _mm_loadu_si128(read + 2), fourth = _mm_loadu_si128(read + 3);
      _mm_stream_si128(write, first);
      _mm_stream_si128(write + 1, second);
      _mm_stream_si128(write + 2, third);
      _mm_stream_si128(write + 3, fourth);
    }
    _mm_sfence();
    to += done;
    from += done;
    bytes -= done;
  }
#endif
  memcpy(to, from, bytes);
}

bool vgpu_staging_read(const struct vgpu_transfer *transfer, void *destination, uint64_t source, size_t bytes,
                       int *result) {
  if (!take(transfer)) return false;
  unsigned char *half = transfer->driver->staging.memory, *other = half + HALF, *to = destination;
  const size_t step = step_of(bytes);
  const bool past_caches = bytes >= PAST_CACHES;
  size_t now = least(step, bytes);
  *result = post(transfer, (uint64_t)(uintptr_t)half, source, now);
  while (*result == CUDA_SUCCESS && bytes > 0) {
    *result = await(transfer);
    if (*result != CUDA_SUCCESS) break;
    bytes -= now;
    source += now;
    const size_t next = least(step, bytes);
    if (next > 0) *result = post(transfer, (uint64_t)(uintptr_t)other, source, next);
    if (past_caches) copy_past_caches(to, half, now);
    else memcpy(to, half, now);
    to += now;
    now = next;
    unsigned char *swap = half;
    half = other;
    other = swap;
  }
  pthread_mutex_unlock(&transfer->driver->staging.lock);
  return true;
}

bool vgpu_staging_write(const struct vgpu_transfer *transfer, uint64_t destination, const void *source,
                        size_t bytes, int *result) {
  if (!take(transfer)) return false;
  unsigned char *half = transfer->driver->staging.memory, *other = half + HALF;
  const unsigned char *from = source;
  const size_t step = step_of(bytes);
  *result = CUDA_SUCCESS;
  for (bool waits = false; *result == CUDA_SUCCESS && bytes > 0; waits = true) {
    const size_t now = least(step, bytes);
    memcpy(half, from, now);
    /* The device has then read the other half. */
    if (waits) *result = await(transfer);
    if (*result == CUDA_SUCCESS) *result = post(transfer, destination, (uint64_t)(uintptr_t)half, now);
    bytes -= now;
    from += now;
    destination += now;
    unsigned char *swap = half;
    half = other;
    other = swap;
  }
  if (*result == CUDA_SUCCESS) *result = await(transfer);
  pthread_mutex_unlock(&transfer->driver->staging.lock);
  return true;
}

void vgpu_staging_context_ended(struct vgpu_driver *driver, uint64_t context) {
  struct vgpu_staging *staging = &driver->staging;
  pthread_mutex_lock(&staging->lock);
  if (staging->memory != NULL && staging->context == context) {
    vgpu_lent_give(driver, staging->memory, 2 * HALF, staging->shared_region);
    staging->memory = NULL;
  }
  pthread_mutex_unlock(&staging->lock);
}
