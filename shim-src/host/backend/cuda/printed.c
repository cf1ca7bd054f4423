/*
 * The output of kernels on the host's GPU. The driver writes it to the standard output of this process when a
 * call waits. Standard output is a file in memory here, and its contents are sent to the guest. The file's
 * first page is mapped, so that a call without output costs no system call.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/backend/cuda/session.h"

#define PAGE 4096u
#define MOST_UNSEEN 64u /* calls until output is found that begins with zeros */

/* A worker has one session. NULL: the file is asked each time. */
static const volatile uint64_t *first_page;
static unsigned unseen;

/* Empties the file, and leaves a page of zeros that the driver overwrites. */
static bool empty(int file) {
  return ftruncate(file, 0) == 0 && ftruncate(file, PAGE) == 0 && lseek(file, 0, SEEK_SET) == 0;
}

static bool is_empty(void) {
  if (first_page == NULL || first_page[0] != 0 || first_page[1] != 0) return false;
  return ++unseen % MOST_UNSEEN != 0;
}

/* Runs before the first kernel, because every context is made by a call that waits. */
static void catch_prints(struct vgpu_worker *worker) {
  int file = memfd_create("printed", MFD_CLOEXEC);
  if (file < 0) return; /* the output then goes to the daemon's own standard output */
  void *page = empty(file) ? mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
  if (page != MAP_FAILED) first_page = page;
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
  if (is_empty()) return;
  off_t size = lseek(STDOUT_FILENO, 0, SEEK_CUR);
  if (size <= 0) return;
  char piece[4096];
  for (off_t at = 0; at < size;) {
    const off_t rest = size - at;
    const size_t wanted = rest < (off_t)sizeof piece ? (size_t)rest : sizeof piece;
    ssize_t got = pread(STDOUT_FILENO, piece, wanted, at);
    if (got <= 0) break;
    vgpu_printed_add(&worker->printed, piece, (size_t)got);
    at += got;
  }
  (void)empty(STDOUT_FILENO);
}
