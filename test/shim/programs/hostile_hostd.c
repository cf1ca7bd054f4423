/*
 * vgpu-hostd whose workers obey a guest that has taken them over: control call 0x66 makes a system call, and
 * 0x67 writes its bytes to the worker's standard error. The rest is the daemon's own code (the linker's
 * --wrap puts this before vgpu_control).
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "host/session/answer.h"

#define VGPU_OP_HOSTILE 0x66u
#define VGPU_OP_FORGE 0x67u

int32_t __real_vgpu_control(struct vgpu_worker *worker, uint32_t opcode, const void *body, uint32_t body_size,
                            void *reply, uint32_t *reply_size, struct vgpu_bulk *bulk);
int32_t __wrap_vgpu_control(struct vgpu_worker *worker, uint32_t opcode, const void *body, uint32_t body_size,
                            void *reply, uint32_t *reply_size, struct vgpu_bulk *bulk);

static void *call(void *argument) {
  int64_t *n = argument;
  long result = syscall(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
  n[0] = result < 0 ? -errno : result;
  return NULL;
}

int32_t __wrap_vgpu_control(struct vgpu_worker *worker, uint32_t opcode, const void *body, uint32_t body_size,
                            void *reply, uint32_t *reply_size, struct vgpu_bulk *bulk) {
  int64_t numbers[8]; /* number, six arguments, and whether a separate thread makes the call */
  if (opcode == VGPU_OP_FORGE) {
    int64_t written = write(STDERR_FILENO, bulk->in, bulk->in_size);
    memcpy(reply, &written, sizeof written);
    *reply_size = sizeof written;
    return VGPU_STATUS_OK;
  }
  if (opcode != VGPU_OP_HOSTILE || body_size != sizeof numbers)
    return __real_vgpu_control(worker, opcode, body, body_size, reply, reply_size, bulk);
  memcpy(numbers, body, sizeof numbers);
  pthread_t thread;
  if (numbers[7] == 0) call(numbers);
  else if (pthread_create(&thread, NULL, call, numbers) == 0) pthread_join(thread, NULL);
  memcpy(reply, numbers, sizeof *numbers);
  *reply_size = sizeof *numbers;
  return VGPU_STATUS_OK;
}
