/*
 * A socket of a library inside a program. The program may close every descriptor (daemons do), and the kernel
 * then gives the number to another file. So each use of the number first checks that the socket still has its
 * cookie. The check costs a fifth of the send or receive that it guards; frames in rings need none.
 */
#ifndef VGPU_WIRE_OWN_H
#define VGPU_WIRE_OWN_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_own {
  int descriptor;  /* -1: none */
  uint64_t cookie; /* 0: this kernel has none, and the number is not checked. Use __atomic */
};

/* The descriptor moves to a high number, if one is free, because programs close and reuse the low ones. */
void vgpu_own_take(struct vgpu_own *own, int descriptor);

/* True also if `own` is NULL. */
bool vgpu_own_holds(const struct vgpu_own *own);

/* Puts a copy of another socket in the place of this one. False: the number is no longer this socket. */
bool vgpu_own_replace(struct vgpu_own *own, int descriptor);

void vgpu_own_shut(const struct vgpu_own *own);

void vgpu_own_close(const struct vgpu_own *own);

#endif
