#include "wire/owned_socket.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_COOKIE
#define SO_COOKIE 57 /* Linux 4.12 */
#endif

/* Daemons close descriptors in a loop that often ends at 256 or 1024. The library uses numbers above. */
#define HIGH 1024

static uint64_t cookie_of(int descriptor) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

/*
 * Returns the lowest number for descriptors of this library. With a low limit that is the last quarter below
 * the limit: a library holds few descriptors.
 */
static int high_number(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  rlim_t most = limit.rlim_cur / 4 * 3;
  return most < HIGH ? (int)most : HIGH;
}

void vgpu_owned_socket_take(struct vgpu_owned_socket *own, int descriptor) {
  int high = fcntl(descriptor, F_DUPFD_CLOEXEC, high_number());
  if (high >= 0) close(descriptor);
  own->descriptor = high >= 0 ? high : descriptor;
  __atomic_store_n(&own->cookie, cookie_of(own->descriptor), __ATOMIC_RELAXED);
}

bool vgpu_owned_socket_holds(const struct vgpu_owned_socket *own) {
  if (own == NULL) return true;
  uint64_t cookie = __atomic_load_n(&own->cookie, __ATOMIC_RELAXED);
  return cookie == 0 || cookie_of(own->descriptor) == cookie;
}

bool vgpu_owned_socket_replace(struct vgpu_owned_socket *own, int descriptor) {
  if (!vgpu_owned_socket_holds(own) || dup3(descriptor, own->descriptor, O_CLOEXEC) < 0) return false;
  __atomic_store_n(&own->cookie, cookie_of(own->descriptor), __ATOMIC_RELAXED);
  return true;
}

void vgpu_owned_socket_shut(const struct vgpu_owned_socket *own) {
  if (vgpu_owned_socket_holds(own)) shutdown(own->descriptor, SHUT_RDWR);
}

void vgpu_owned_socket_close(const struct vgpu_owned_socket *own) {
  if (own->descriptor >= 0 && vgpu_owned_socket_holds(own)) close(own->descriptor);
}
