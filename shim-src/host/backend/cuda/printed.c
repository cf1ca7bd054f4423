/*
 * The output of kernels on the host's GPU. The driver writes it to the standard output of this process when a
 * call waits. Standard output is a file in memory here, and its contents are sent to the guest.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/backend/cuda/session.h"

/* Runs before the first kernel, because every context is made by a call that waits. */
static void catch_prints(struct vgpu_worker *worker) {
  int file = memfd_create("printed", MFD_CLOEXEC);
  if (file < 0) return; /* the output then goes to the daemon's own standard output */
  fflush(stdout);
  if (dup2(file, STDOUT_FILENO) == STDOUT_FILENO) worker->printed.caught = true;
  close(file);
}

void vgpu_cuda_collect_prints(struct vgpu_worker *worker) {
  if (!worker->printed.agreed) return;
  if (!worker->printed.caught) {
    catch_prints(worker);
    return;
  }
  fflush(stdout);
  off_t size = lseek(STDOUT_FILENO, 0, SEEK_CUR);
  if (size <= 0) return;
  char piece[4096];
  for (off_t at = 0; at < size;) {
    ssize_t got = pread(STDOUT_FILENO, piece, sizeof piece, at);
    if (got <= 0) break;
    vgpu_printed_add(&worker->printed, piece, (size_t)got);
    at += got;
  }
  if (ftruncate(STDOUT_FILENO, 0) != 0) return;
  lseek(STDOUT_FILENO, 0, SEEK_SET);
}
