/*
 * A socket of a library inside a program. The program may close descriptors that it did not open itself
 * (daemons do), and the kernel then gives the number to another file. So each use of the number first checks
 * that it is still this socket, by the cookie that the kernel gives each socket. A check costs a fifth of the
 * send or receive that it guards; frames in rings need none.
 */
#ifndef VGPU_WIRE_OWNED_SOCKET_H
#define VGPU_WIRE_OWNED_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_owned_socket {
  int descriptor;  /* -1: none */
  uint64_t cookie; /* 0: this kernel has none, and the number is not checked. Use __atomic */
};

/*
 * Takes the socket over. Its descriptor moves to a high number, because programs close and reuse the low
 * ones, and the given number is closed. If no higher number is free, the descriptor stays.
 */
void vgpu_owned_socket_take(struct vgpu_owned_socket *own, int descriptor);

/* True if the number still is this socket, or if `own` is NULL. */
bool vgpu_owned_socket_holds(const struct vgpu_owned_socket *own);

/*
 * Puts a copy of the socket `descriptor` in the place of *own. False: the number is no longer the socket of
 * *own.
 */
bool vgpu_owned_socket_replace(struct vgpu_owned_socket *own, int descriptor);

/* Shuts the socket down in both directions, if the number still is this socket. */
void vgpu_owned_socket_shut(const struct vgpu_owned_socket *own);

/* Closes the socket, if the number still is this socket. */
void vgpu_owned_socket_close(const struct vgpu_owned_socket *own);

#endif
