/*
 * Preloaded into vgpu-hostd under qemu-user. For each worker the daemon executes itself again, by a
 * descriptor (execveat). qemu-user passes that call to the kernel, which cannot execute a program for another
 * processor. This library executes the emulator instead: VGPU_QEMU is the emulator, VGPU_QEMU_ROOT its -L,
 * VGPU_QEMU_PROGRAM the daemon.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

long syscall(long number, ...);

__attribute__((visibility("default"))) long syscall(long number, ...) {
  long words[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) words[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_execveat) {
    char *const *given = (char *const *)words[2]; /* NOLINT: a system call's argument */
    char *const emulated[] = {
        "qemu", "-0", given[0], "-L", getenv("VGPU_QEMU_ROOT"), getenv("VGPU_QEMU_PROGRAM"), given[1], NULL};
    return execve(getenv("VGPU_QEMU"), emulated, (char *const *)words[3]);
  }
  long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
