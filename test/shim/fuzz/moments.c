#include "fuzz/moments.h"

#include <poll.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define WATCHED 64u

static struct {
  struct fuzz_source *source;
  fuzz_act *act;
  bool acting;
  bool loaded; /* there is a next step; `when` counts reads from now on */
  uint8_t when;
  bool gone;
  int passed;
  uint32_t watched;
  struct {
    uintptr_t base;
    size_t bytes;
  } memory[WATCHED];
} now = {.passed = -1};

void fuzz_moments_begin(struct fuzz_source *source, fuzz_act *act) {
  if (now.passed >= 0) close(now.passed);
  memset(&now, 0, sizeof now);
  now.source = source;
  now.act = act;
  now.passed = -1;
}

void fuzz_moments_watch(const void *base, size_t bytes) {
  if (now.watched == WATCHED) return;
  now.memory[now.watched].base = (uintptr_t)base;
  now.memory[now.watched++].bytes = bytes;
}

void fuzz_moments_pass(int descriptor) {
  if (now.passed >= 0) close(now.passed);
  now.passed = descriptor;
}

static bool load(void) {
  if (!now.loaded && now.source != NULL && now.source->left > 0) {
    now.when = fuzz_byte(now.source);
    now.loaded = true;
  }
  return now.loaded;
}

static void do_step(void) {
  now.loaded = false;
  now.acting = true;
  if (!now.act(fuzz_byte(now.source))) now.gone = true;
  now.acting = false;
}

static void moment(const volatile void *address) {
  if (now.acting || now.gone) return;
  for (uint32_t i = 0; i < now.watched; i++) {
    if ((uintptr_t)address - now.memory[i].base >= now.memory[i].bytes) continue;
    if (load() && now.when != 0 && --now.when == 0) do_step();
    return;
  }
}

/* Clang calls these before each load of code that is compiled for it. */
void __sanitizer_cov_load1(uint8_t *address);
void __sanitizer_cov_load2(uint16_t *address);
void __sanitizer_cov_load4(uint32_t *address);
void __sanitizer_cov_load8(uint64_t *address);
void __sanitizer_cov_load16(__int128 *address);
void __sanitizer_cov_load1(uint8_t *address) {
  moment(address);
}
void __sanitizer_cov_load2(uint16_t *address) {
  moment(address);
}
void __sanitizer_cov_load4(uint32_t *address) {
  moment(address);
}
void __sanitizer_cov_load8(uint64_t *address) {
  moment(address);
}
void __sanitizer_cov_load16(__int128 *address) {
  moment(address);
}

/* AddressSanitizer's memcpy, which checks both ranges. Every memcpy of the program calls it. */
void *__real___asan_memcpy(void *to, const void *from, size_t size);
void *__wrap___asan_memcpy(void *to, const void *from, size_t size);
void *__wrap___asan_memcpy(void *to, const void *from, size_t size) {
  if (now.watched == 0 || now.acting || size < 2) return __real___asan_memcpy(to, from, size);
  moment(from);
  __real___asan_memcpy(to, from, size / 2);
  moment((const unsigned char *)from + size / 2);
  __real___asan_memcpy((unsigned char *)to + size / 2, (const unsigned char *)from + size / 2,
                       size - size / 2);
  return to;
}

/* No thread is waited for: the other end acts when this end reads, or sleeps. */
bool __wrap_vgpu_rings_map(struct vgpu_rings *rings, int descriptor, uint64_t offset, uint32_t size);
bool __wrap_vgpu_rings_map(struct vgpu_rings *rings, int descriptor, uint64_t offset, uint32_t size) {
  if (!__real_vgpu_rings_map(rings, descriptor, offset, size)) return false;
  rings->requests.spin.limit = rings->replies.spin.limit = 0;
  fuzz_moments_watch(rings->base, rings->mapped);
  return true;
}

void *__real_vgpu_shared_map(int descriptor, uint64_t bytes);
void *__wrap_vgpu_shared_map(int descriptor, uint64_t bytes);
void *__wrap_vgpu_shared_map(int descriptor, uint64_t bytes) {
  void *memory = __real_vgpu_shared_map(descriptor, bytes);
  if (memory != NULL) fuzz_moments_watch(memory, bytes);
  return memory;
}

/*
 * The doorbell. An end that sleeps is woken by the next step. The end of the input is the end of the other
 * side.
 */
int __wrap_ppoll(struct pollfd *descriptors, nfds_t count, const struct timespec *limit,
                 const sigset_t *signals);
int __wrap_ppoll(struct pollfd *descriptors, nfds_t count, const struct timespec *limit,
                 const sigset_t *signals) {
  (void)limit, (void)signals;
  if (!now.gone && load()) do_step();
  else now.gone = true;
  for (nfds_t i = 0; i < count; i++) descriptors[i].revents = POLLIN;
  return (int)count;
}

ssize_t __wrap_vgpu_stream_receive(int descriptor, void *bytes, size_t size, int *passed);
ssize_t __wrap_vgpu_stream_receive(int descriptor, void *bytes, size_t size, int *passed) {
  (void)descriptor;
  if (now.gone) return 0;
  memset(bytes, 0, size);
  if (now.passed >= 0) {
    if (*passed < 0) *passed = now.passed;
    else close(now.passed);
    now.passed = -1;
  }
  return 1;
}

uint32_t fuzz_part(struct fuzz_source *source) {
  uint8_t part = fuzz_byte(source);
  return (part & 1) != 0 ? part * 8u : part / 2 * VGPU_RING_LINE;
}

void fuzz_poke_control(struct fuzz_source *source, const struct vgpu_rings *rings) {
  uint8_t which = fuzz_byte(source);
  struct vgpu_ring_control *control = (which & 1) != 0 ? rings->replies.control : rings->requests.control;
  uint64_t value;
  if ((which & 2) != 0) {
    fuzz_bytes(source, &value, sizeof value);
  } else {
    value = (uint64_t)((int64_t)(int8_t)fuzz_byte(source) * (VGPU_RING_LINE / 2));
    value += (which & 4) != 0 ? control->head : control->tail;
  }
  switch (which >> 3 & 3) {
    case 0:
      control->tail = value;
      break;
    case 1:
      control->head = value;
      break;
    case 2:
      control->reader_sleeps = (uint32_t)value;
      break;
    default:
      control->writer_sleeps = (uint32_t)value;
  }
}

void fuzz_poke_bytes(struct fuzz_source *source, unsigned char *ring, uint32_t size, uint64_t position) {
  uint32_t at = fuzz_byte(source);
  uint8_t how = fuzz_byte(source);
  if ((how & 0x80) != 0) at = at << 8 | fuzz_byte(source);
  unsigned char bytes[8];
  size_t length = (how & 7) + 1u;
  fuzz_bytes(source, bytes, length);
  for (size_t i = 0; i < length; i++) ring[(position + at + i) & (size - 1)] = bytes[i];
}
