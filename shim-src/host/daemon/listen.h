#ifndef VGPU_HOST_LISTEN_H
#define VGPU_HOST_LISTEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/session/accounts.h"
#include "host/options.h"
#include "host/policy/policy.h"
#include "wire/address.h"

struct vgpu_listener {
  int descriptor;
  struct vgpu_address address;
  char text[160]; /* for messages */
  bool ours;      /* a unix socket file that the daemon made and removes again */
  dev_t device;   /* of that file, so that the file of a successor is not removed */
  ino_t inode;
};

struct vgpu_listeners {
  uint32_t count;
  struct vgpu_listener array[VGPU_LISTEN_MAX];
};

/*
 * Opens the sockets that systemd passes and those that the options name; without any, the default unix
 * socket. False: the reason was logged. The caller calls vgpu_listeners_close in any case.
 */
bool vgpu_listeners_open(struct vgpu_listeners *listeners, const struct vgpu_options *options);

/*
 * Closes all sockets. `remove_files`: also removes the socket files that the daemon made; false in workers.
 */
void vgpu_listeners_close(struct vgpu_listeners *listeners, bool remove_files);

/* Identifies the peer of a connection: fills *identity and describes the peer in `text`. */
void vgpu_peer_of(int descriptor, struct vgpu_identity *identity, char *text, size_t size);

#endif
