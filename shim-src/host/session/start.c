/* The start of a worker: builds the session from the inherited descriptors and closes everything else. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/log.h"
#include "host/session/images.h"
#include "host/session/setup.h"

/* If memory runs out, the kernel should kill the worker that used it, not the daemon or another worker. */
static void offer_to_oom_killer(void) {
  int descriptor = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  ssize_t written = write(descriptor, "900", 3);
  (void)written; /* not allowed everywhere, and optional */
  close(descriptor);
}

/* Maps a descriptor's memory, private to this process. NULL: the memory has fewer than `least` bytes. */
static void *take(int descriptor, size_t least) {
  struct stat status;
  if (fstat(descriptor, &status) != 0 || (size_t)status.st_size < least) return NULL;
  void *memory = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
  close(descriptor);
  return memory == MAP_FAILED ? NULL : memory;
}

/* Returns the inherited descriptor; -1: the daemon passed none. */
static int there(enum vgpu_worker_descriptor number) {
  return fcntl((int)number, F_GETFD) < 0 ? -1 : (int)number;
}

static bool enter(struct vgpu_worker *worker, struct vgpu_host_setup *host,
                  const struct vgpu_session_setup *session) {
  static struct vgpu_options options;
  options.cuda_library = host->cuda_library;
  options.nvml_library = host->nvml_library;
  host->inventory.options = &options;
  host->inventory.profiles =
      host->inventory.profiles_bytes == 0 ? NULL : (struct vgpu_device_profiles *)host->profiles;
  worker->backend = vgpu_backend_named(host->backend);
  if (worker->backend == NULL) return false;
  if (worker->backend->keep_addresses != NULL) worker->backend->keep_addresses();
  vgpu_inventory_choose(&host->inventory, &session->devices);
  if (host->image_cache == 0) close(VGPU_WORKER_IMAGES);
  else host->code.images = vgpu_images_map(VGPU_WORKER_IMAGES, host->image_cache);
  if (host->image_cache != 0) close(VGPU_WORKER_IMAGES);
  if (host->code.launch_log >= 0) host->code.launch_log = VGPU_WORKER_LAUNCH_LOG;
  else close(VGPU_WORKER_LAUNCH_LOG);
  worker->vm_memory = (struct vgpu_vm_memory){.bytes = session->vm_memory,
                                              .holder = VGPU_WORKER_VM_MEMORY,
                                              .lock_probe = VGPU_WORKER_VM_MEMORY_AGAIN};
  syscall(SYS_close_range, VGPU_WORKER_DESCRIPTORS, ~0u, 0); /* all others have O_CLOEXEC as well */
  worker->link.descriptor = VGPU_WORKER_CONNECTION;
  vgpu_line_init(&worker->link.line, VGPU_WORKER_CONNECTION, there(VGPU_WORKER_LINE), there(VGPU_WORKER_PEER),
                 session->peer_is_guest, session->limits.reconnect);
  worker->session = session->session;
  worker->secret = session->secret;
  worker->direct = session->direct;
  worker->slot = session->slot;
  worker->watched = true;
  worker->exchanges = fcntl(VGPU_WORKER_EXCHANGE, F_GETFD) >= 0;
  worker->peer = session->peer;
  worker->limits = &session->limits;
  worker->inventory = &host->inventory;
  worker->code_options = &host->code;
  worker->accounts = vgpu_accounts_map(VGPU_WORKER_ACCOUNTS_WRITE, VGPU_WORKER_ACCOUNTS_READ, session->slot);
  return worker->accounts != NULL;
}

bool vgpu_worker_become(const struct vgpu_worker_user *user) {
  if (!user->changes) return true;
  vgpu_confine_bounds();
  gid_t groups[VGPU_WORKER_GROUPS];
  for (uint32_t i = 0; i < user->group_count; i++) groups[i] = user->groups[i];
  if (setgroups(user->group_count, groups) != 0 || setresgid(user->gid, user->gid, user->gid) != 0 ||
      setresuid(user->uid, user->uid, user->uid) != 0) {
    return false;
  }
  /* After the change of user: else /proc/self belongs to root, and this process cannot read it. */
  return prctl(PR_SET_DUMPABLE, 1) == 0;
}

int vgpu_worker_main(void) {
  struct vgpu_host_setup *host = take(VGPU_WORKER_HOST, sizeof *host);
  const struct vgpu_session_setup *session = take(VGPU_WORKER_SESSION, sizeof *session);
  if (host == NULL || session == NULL) {
    fprintf(stderr, "vgpu-hostd: " VGPU_WORKER_WORD " is for workers, which the daemon starts\n");
    return 2;
  }
  prctl(PR_SET_NAME, "vgpu-hostd"); /* instead of the number of the executed descriptor */
  /* Nanoseconds. The default of 50 us would be added to each short sleep. */
  prctl(PR_SET_TIMERSLACK, 1);
  signal(SIGPIPE, SIG_IGN);
  vgpu_host_log_of_worker();
  offer_to_oom_killer();
  static struct vgpu_worker worker; /* large */
  if (!enter(&worker, host, session)) {
    vgpu_host_log("error", session->session, "the worker cannot be set up: %s", strerror(errno));
    return 1;
  }
  if (!vgpu_worker_become(&host->user)) {
    vgpu_host_log("error", session->session, "cannot become user %u: %s", host->user.uid, strerror(errno));
    return 1;
  }
  /* After the change of user, which clears the signal. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != session->daemon) return 1; /* the daemon died before PR_SET_PDEATHSIG */
  if (worker.backend->limit_files != NULL && !worker.backend->limit_files(&host->inventory, &worker.peer)) {
    vgpu_host_log("error", worker.session, "cannot limit the devices of the worker: %s", strerror(errno));
    return 1;
  }
  if (worker.backend->prepare != NULL) worker.backend->prepare(&worker, host->filter);
  int32_t *denied = &worker.accounts->slots[worker.slot].denied;
  if (!vgpu_confine(host->filter ? &host->program : NULL, worker.backend->reads_itself, denied)) {
    vgpu_host_log("error", worker.session, "cannot confine the worker: %s", strerror(errno));
    return 1;
  }
  vgpu_host_log_limit_all();
  int status = worker.backend->begin(&worker) ? vgpu_worker_serve(&worker, &session->hello) : 1;
  vgpu_host_log_flush();
  _exit(status); /* the kernel frees everything that the session holds */
}
