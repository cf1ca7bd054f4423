#include "host/daemon/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include "host/daemon/hand_over.h"
#include "host/log.h"
#include "wire/clock.h"
#include "wire/stream.h"

#define DEFAULT_LISTEN "unix:/run/vgpu/hostd.sock"
/*
 * As many as the kernel allows (net.core.somaxconn). If the queue of a vsock socket is full, the kernel
 * refuses a guest at once, as if no process listened.
 */
#define BACKLOG 4096
#define FIRST_HANDED_OVER 3 /* SD_LISTEN_FDS_START */

static bool fail(const char *text, const char *doing) {
  vgpu_host_log("error", 0, "cannot listen on %s: %s: %s", text, doing, strerror(errno));
  return false;
}

/* Removes a socket file on which no process listens. Other files stay. */
static bool clear_way(const char *text, const struct vgpu_address *address, const char *path) {
  struct stat info;
  if (lstat(path, &info) != 0) return errno == ENOENT ? true : fail(text, "lstat");
  if (!S_ISSOCK(info.st_mode)) {
    vgpu_host_log("error", 0, "cannot listen on %s: %s exists and is not a socket", text, path);
    return false;
  }
  int probe = vgpu_stream_connect(address, vgpu_now_ms() + 500);
  if (probe >= 0 || (errno != ECONNREFUSED && errno != ENOENT)) {
    int error = errno;
    if (probe >= 0) close(probe);
    vgpu_host_log("error", 0, "cannot listen on %s: %s", text,
                  probe >= 0 ? "another daemon listens there" : strerror(error));
    return false;
  }
  return unlink(path) == 0 || errno == ENOENT ? true : fail(text, "unlink");
}

/* Makes the directory of the socket if only its last part is missing, such as /run/vgpu after a boot. */
static void make_directory(const char *path) {
  char directory[sizeof(((struct sockaddr_un *)0)->sun_path)];
  snprintf(directory, sizeof directory, "%s", path);
  char *slash = strrchr(directory, '/');
  if (slash == NULL || slash == directory) return;
  *slash = '\0';
  (void)mkdir(directory, 0755); /* on failure bind() reports the error */
}

static bool open_listener(struct vgpu_listener *listener, const char *text, uint32_t mode) {
  snprintf(listener->text, sizeof listener->text, "%s", text);
  listener->descriptor = -1;
  if (!vgpu_address_parse_listen(text, &listener->address)) {
    vgpu_host_log("error", 0, "\"%s\" is not unix:PATH, vsock:PORT or tcp:ADDRESS:PORT", text);
    return false;
  }
  struct vgpu_address *address = &listener->address;
  if (!vgpu_address_is_local(address)) {
    vgpu_host_log("error", 0, "%s: plain TCP is served on loopback addresses only", text);
    return false;
  }
  const char *path = ((struct sockaddr_un *)&address->storage)->sun_path;
  bool file = address->kind == VGPU_ADDRESS_UNIX && path[0] != '\0';
  if (file) {
    make_directory(path);
    if (!clear_way(text, address, path)) return false;
  }
  listener->descriptor = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener->descriptor < 0) return fail(text, "socket");
  if (address->kind == VGPU_ADDRESS_TCP) {
    int on = 1;
    setsockopt(listener->descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  if (bind(listener->descriptor, (struct sockaddr *)&address->storage, address->length) != 0) {
    return fail(text, "bind");
  }
  struct stat info;
  if (file && lstat(path, &info) == 0) {
    listener->ours = true;
    listener->device = info.st_dev;
    listener->inode = info.st_ino;
    if (chmod(path, mode) != 0) return fail(text, "chmod");
  }
  if (listen(listener->descriptor, BACKLOG) != 0) return fail(text, "listen");
  return true;
}

static bool take_handed_over(struct vgpu_listener *listener, int descriptor) {
  listener->descriptor = descriptor;
  snprintf(listener->text, sizeof listener->text, "descriptor %d", descriptor);
  int listening = 0;
  socklen_t size = sizeof listening;
  socklen_t length = sizeof listener->address.storage;
  if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || !listening ||
      getsockname(descriptor, (struct sockaddr *)&listener->address.storage, &length) != 0) {
    vgpu_host_log("error", 0, "LISTEN_FDS: descriptor %d is not a listening socket", descriptor);
    return false;
  }
  listener->address.length = length;
  int family = listener->address.storage.ss_family;
  listener->address.kind = family == AF_UNIX    ? VGPU_ADDRESS_UNIX
                           : family == AF_VSOCK ? VGPU_ADDRESS_VSOCK
                                                : VGPU_ADDRESS_TCP;
  if (!vgpu_address_is_local(&listener->address)) {
    vgpu_host_log("error", 0, "LISTEN_FDS: plain TCP is served on loopback addresses only");
    return false;
  }
  return fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0 && fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0;
}

/* Marks the predecessor's socket file as this daemon's, which then removes it. */
static void own_file(struct vgpu_listener *listener) {
  struct stat info;
  const char *path = ((struct sockaddr_un *)&listener->address.storage)->sun_path;
  if (listener->address.kind != VGPU_ADDRESS_UNIX || lstat(path, &info) != 0) return;
  listener->ours = true;
  listener->device = info.st_dev;
  listener->inode = info.st_ino;
}

static long environment_number(const char *name) {
  const char *text = getenv(name);
  return text == NULL ? 0 : strtol(text, NULL, 10);
}

static bool take_all_handed_over(struct vgpu_listeners *listeners) {
  long count = environment_number("LISTEN_PID") == (long)getpid() ? environment_number("LISTEN_FDS") : 0;
  for (long i = 0; i < count && listeners->count < VGPU_LISTEN_MAX; i++) {
    struct vgpu_listener *listener = &listeners->array[listeners->count++];
    if (!take_handed_over(listener, FIRST_HANDED_OVER + (int)i)) return false;
    if (vgpu_hand_over_owns((uint32_t)i)) own_file(listener);
  }
  unsetenv("LISTEN_PID");
  unsetenv("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  return true;
}

bool vgpu_listeners_open(struct vgpu_listeners *listeners, const struct vgpu_options *options) {
  memset(listeners, 0, sizeof *listeners);
  if (!take_all_handed_over(listeners)) return false;
  /* A successor gets these sockets from its predecessor. */
  uint32_t named = vgpu_hand_over_successor() ? 0 : options->listen_count;
  for (uint32_t i = 0; i < named; i++) {
    if (listeners->count == VGPU_LISTEN_MAX) {
      vgpu_host_log("error", 0, "more than %u sockets to listen on", VGPU_LISTEN_MAX);
      return false;
    }
    struct vgpu_listener *listener = &listeners->array[listeners->count++];
    if (!open_listener(listener, options->listen[i], options->socket_mode)) return false;
  }
  if (listeners->count == 0) {
    if (!open_listener(&listeners->array[listeners->count++], DEFAULT_LISTEN, options->socket_mode))
      return false;
  }
  for (uint32_t i = 0; i < listeners->count; i++) {
    vgpu_host_log("listening", 0, "listening on %s", listeners->array[i].text);
  }
  return true;
}

void vgpu_listeners_close(struct vgpu_listeners *listeners, bool remove_files) {
  for (uint32_t i = 0; i < listeners->count; i++) {
    struct vgpu_listener *listener = &listeners->array[i];
    struct stat info;
    const char *path = ((struct sockaddr_un *)&listener->address.storage)->sun_path;
    if (remove_files && listener->ours && lstat(path, &info) == 0 && info.st_dev == listener->device &&
        info.st_ino == listener->inode) {
      unlink(path);
    }
    if (listener->descriptor >= 0) close(listener->descriptor);
  }
  listeners->count = 0;
}

static void read_groups(int descriptor, struct vgpu_identity *identity) {
#ifdef SO_PEERGROUPS
  gid_t groups[4096];
  socklen_t size = sizeof groups;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, groups, &size) != 0) return;
  uint32_t count = (uint32_t)(size / sizeof *groups);
  if (count > VGPU_PEER_GROUPS_MAX) count = VGPU_PEER_GROUPS_MAX;
  for (uint32_t i = 0; i < count; i++) identity->groups[i] = groups[i];
  identity->group_count = count;
#else
  (void)descriptor;
  (void)identity;
#endif
}

void vgpu_peer_of(int descriptor, struct vgpu_identity *identity, char *text, size_t size) {
  struct sockaddr_storage address = {0};
  socklen_t length = sizeof address;
  getpeername(descriptor, (struct sockaddr *)&address, &length);
  *identity = (struct vgpu_identity){.peer = {.kind = VGPU_ADDRESS_TCP}};
  if (address.ss_family == AF_UNIX) {
    struct ucred who = {.pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1};
    socklen_t who_size = sizeof who;
    getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &who, &who_size);
    identity->peer = (struct vgpu_peer){.kind = VGPU_ADDRESS_UNIX, .id = who.uid};
    identity->uid = who.uid;
    identity->gid = who.gid;
    identity->pid = (uint32_t)who.pid;
    read_groups(descriptor, identity);
    snprintf(text, size, "unix, pid %ld, uid %ld, gid %ld", (long)who.pid, (long)who.uid, (long)who.gid);
  } else if (address.ss_family == AF_VSOCK) {
    const struct sockaddr_vm *vm = (const struct sockaddr_vm *)&address;
    identity->peer = (struct vgpu_peer){.kind = VGPU_ADDRESS_VSOCK, .id = vm->svm_cid};
    snprintf(text, size, "vsock, cid %u, port %u", vm->svm_cid, vm->svm_port);
  } else {
    snprintf(text, size, "tcp, loopback");
  }
}
