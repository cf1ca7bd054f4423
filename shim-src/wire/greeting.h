/* The first frame of a connection: written by the guest, read bit by bit by the daemon before any session. */
#ifndef VGPU_WIRE_GREETING_H
#define VGPU_WIRE_GREETING_H

#include "wire/frame.h"

/* Bytes of the longest greeting; HELLO may grow up to there. */
#define VGPU_GREETING_MAX (sizeof(struct vgpu_frame) + VGPU_BODY_MAX)

enum vgpu_greeting_result {
  VGPU_GREETING_PART = 0,    /* good so far; read on up to `wanted` bytes in all, and not one more */
  VGPU_GREETING_WHOLE = 1,   /* `hello` is filled; its version and its wishes are not looked at yet */
  VGPU_GREETING_UNSOUND = 2, /* not the vgpu protocol */
};

/* Classifies the first `filled` bytes of a connection. `wanted` never exceeds VGPU_GREETING_MAX. */
enum vgpu_greeting_result vgpu_greeting_read(const void *bytes, size_t filled, size_t *wanted,
                                             struct vgpu_hello *hello);

/* Of a WHOLE one: what follows its HELLO; zero if nothing does. */
struct vgpu_resume vgpu_greeting_resume(const void *bytes);

/* 0, or the enum vgpu_status that a host of this version refuses the greeting with. */
int32_t vgpu_greeting_status(const struct vgpu_hello *hello);

/* Both wire versions and which end is older, for people; said by a guest that a host of another version met.
 */
void vgpu_version_text(const struct vgpu_welcome *host, char *text, size_t size);

/* The inode of this process's pid namespace; 0: not known. */
uint32_t vgpu_pid_namespace(void);

/* A number of the kernel that runs here, and of no other one: out of its boot_id; 0: not known. */
uint64_t vgpu_machine(void);

/* Fills magic, pid, pid namespace and program name of this process. */
void vgpu_hello_introduce(struct vgpu_hello *hello);

#endif
