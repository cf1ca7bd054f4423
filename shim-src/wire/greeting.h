/* The first frame of a connection, which the daemon reads in pieces before there is a session. */
#ifndef VGPU_WIRE_GREETING_H
#define VGPU_WIRE_GREETING_H

#include "wire/frame.h"

/* The HELLO of a newer guest may have up to this many bytes. */
#define VGPU_GREETING_MAX (sizeof(struct vgpu_frame) + VGPU_BODY_MAX)

enum vgpu_greeting_result {
  VGPU_GREETING_PART = 0,    /* valid so far: read until there are `wanted` bytes, and no more */
  VGPU_GREETING_WHOLE = 1,   /* `hello` is filled; its version and features are not checked */
  VGPU_GREETING_UNSOUND = 2, /* not the vgpu protocol */
};

/* Classifies the first `filled` bytes of a connection. `wanted` never exceeds VGPU_GREETING_MAX. */
enum vgpu_greeting_result vgpu_greeting_read(const void *bytes, size_t filled, size_t *wanted,
                                             struct vgpu_hello *hello);

/* The struct vgpu_resume behind the HELLO of a WHOLE greeting; zero if there is none. */
struct vgpu_resume vgpu_greeting_resume(const void *bytes);

/* The status with which a host of this version refuses the greeting (enum vgpu_status); 0: it accepts it. */
int32_t vgpu_greeting_status(const struct vgpu_hello *hello);

/* Writes a message with both wire versions and the older end, for a guest whose host has another version. */
void vgpu_version_text(const struct vgpu_welcome *host, char *text, size_t size);

/* The inode of this process's pid namespace; 0: not known. */
uint32_t vgpu_pid_namespace(void);

/* Returns a number that identifies the running kernel, made from its boot_id; 0: not known. */
uint64_t vgpu_machine(void);

/* Sets magic, pid, pid namespace and program name of this process. */
void vgpu_hello_introduce(struct vgpu_hello *hello);

#endif
