#include "host/daemon/worker_groups.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup"
#define OWN "vgpu-daemon"

/* Gives this process's control group (version 2), without the part that a predecessor has added. */
static bool own_group(char *path, size_t size) {
  char line[4096];
  bool found = false;
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (file == NULL) return false;
  while (!found && fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    found = strncmp(line, "0::/", 4) == 0;
  }
  fclose(file);
  const int length = found ? snprintf(path, size, ROOT "%s", line + 3) : -1;
  if (length < 0 || (size_t)length >= size) return false;
  char *last = strrchr(path, '/');
  if (last != NULL && strcmp(last + 1, OWN) == 0) *last = '\0';
  return true;
}

static bool put(int directory, const char *name, const char *text) {
  const int descriptor = openat(directory, name, O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool written = write(descriptor, text, strlen(text)) == (ssize_t)strlen(text);
  const int error = errno;
  close(descriptor);
  errno = error;
  return written;
}

bool vgpu_worker_groups_begin(struct vgpu_worker_groups *groups, char *error, unsigned long error_size) {
  char path[4200];
  const char *step = "/proc/self/cgroup has no group of version 2";
  errno = 0;
  groups->directory = -1;
  int directory = -1;
  if (own_group(path, sizeof path)) {
    step = "cannot open the group";
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  if (directory >= 0) {
    step = "cannot make a group of the daemon's own (Delegate= of the unit)";
    if ((mkdirat(directory, OWN, 0755) == 0 || errno == EEXIST) && put(directory, OWN "/cgroup.procs", "0")) {
      step = "the group has no controllers pids and memory for others (Delegate=pids memory of the unit)";
      if (put(directory, "cgroup.subtree_control", "+pids +memory")) {
        groups->directory = directory;
        return true;
      }
    }
  }
  const int reason = errno;
  if (directory >= 0) close(directory);
  snprintf(error, error_size, "%s%s%s", step, reason == 0 ? "" : ": ", reason == 0 ? "" : strerror(reason));
  return false;
}

static void name_of(uint32_t slot, const char *file, char *name, size_t size) {
  snprintf(name, size, "worker-%ld-%u%s", (long)getpid(), slot, file);
}

int vgpu_worker_groups_join(const struct vgpu_worker_groups *groups, uint32_t slot, uint64_t memory) {
  char name[64], limit[32];
  vgpu_worker_groups_leave(groups, slot);
  name_of(slot, "", name, sizeof name);
  if (mkdirat(groups->directory, name, 0755) != 0 && errno != EEXIST) return -1;
  name_of(slot, "/pids.max", name, sizeof name);
  snprintf(limit, sizeof limit, "%u", VGPU_WORKER_TASKS);
  if (!put(groups->directory, name, limit)) return -1;
  if (memory > 0) {
    name_of(slot, "/memory.max", name, sizeof name);
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)(memory + VGPU_WORKER_MEMORY));
    if (!put(groups->directory, name, limit)) return -1;
    name_of(slot, "/memory.swap.max", name, sizeof name);
    (void)put(groups->directory, name, "0"); /* missing in a kernel without swap */
  }
  name_of(slot, "/cgroup.procs", name, sizeof name);
  return openat(groups->directory, name, O_WRONLY | O_CLOEXEC);
}

void vgpu_worker_groups_leave(const struct vgpu_worker_groups *groups, uint32_t slot) {
  char name[64];
  name_of(slot, "", name, sizeof name);
  if (groups->directory >= 0) (void)unlinkat(groups->directory, name, AT_REMOVEDIR);
}
