#include "wire/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

int vgpu_shared_make(const char *name, uint64_t bytes) {
  int descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  /* Kernels before 6.3 reject the flag. Later kernels can be set to require it (vm.memfd_noexec). */
  if (descriptor < 0 && errno == EINVAL) {
    descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
  if (descriptor < 0) return -1;
  if (ftruncate(descriptor, (off_t)bytes) == 0 &&
      fcntl(descriptor, F_ADD_SEALS, SIZE_SEALS | F_SEAL_SEAL) == 0) {
    return descriptor;
  }
  int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

bool vgpu_shared_sound(int descriptor, uint64_t bytes) {
  /* Not fstat(), a function of glibc only since 2.33. */
  struct statx status;
  int seals = fcntl(descriptor, F_GET_SEALS);
  return seals >= 0 && (seals & SIZE_SEALS) == SIZE_SEALS &&
         statx(descriptor, "", AT_EMPTY_PATH, STATX_SIZE, &status) == 0 && status.stx_size == bytes;
}

void *vgpu_shared_map(int descriptor, uint64_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? NULL : memory;
}
