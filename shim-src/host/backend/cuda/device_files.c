/*
 * Limits the files below /dev that a worker can open to the files of its session's GPUs and those that every
 * CUDA program opens. Landlock does this, because a daemon without privileges can use it, too. A mount
 * namespace needs root, and DevicePolicy= of the unit is the same for all workers.
 */
#include "host/backend/cuda/device_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPENS ((uint64_t)LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE)
/* LANDLOCK_ACCESS_FS_REFER, of version 2: links and renames between directories. */
#define REFER (1ull << 13)

/* The files that every driver opens, for any GPU. CUDA programs need only the names of the other files. */
static const char *const common[] = {
    "/dev/null", "/dev/zero",      "/dev/full",       "/dev/random",           "/dev/urandom",
    "/dev/shm",  "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset",
    "/dev/dxg",
};

/* Returns the version of Landlock; 0: the kernel has none, or does not let this process use it. */
static int version(void) {
  long found = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return found < 0 ? 0 : (int)found;
}

bool vgpu_cuda_can_limit_files(void) {
  return version() > 0;
}

/*
 * Allows a path and all files below it, as their modes say. A path that does not exist cannot be opened in
 * any case.
 */
static bool allow(int rules, uint64_t handled, const char *path) {
  int descriptor = open(path, O_PATH | O_CLOEXEC);
  struct stat status;
  if (descriptor < 0) return true;
  bool directory = fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
  struct landlock_path_beneath_attr rule = {.allowed_access = directory ? handled : OPENS,
                                            .parent_fd = descriptor};
  bool added = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
  close(descriptor);
  return added;
}

/* Allows all paths outside /dev. */
static bool allow_outside(int rules, uint64_t handled) {
  DIR *root = opendir("/");
  if (root == NULL) return false;
  bool good = true;
  for (const struct dirent *entry; good && (entry = readdir(root)) != NULL;) {
    char path[NAME_MAX + 2];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
        strcmp(entry->d_name, "dev") == 0)
      continue;
    snprintf(path, sizeof path, "/%s", entry->d_name);
    good = allow(rules, handled, path);
  }
  closedir(root);
  return good;
}

static bool allow_all_of(int rules, uint64_t handled, const char *pattern) {
  glob_t found;
  if (glob(pattern, 0, NULL, &found) != 0) return true;
  bool good = true;
  for (size_t i = 0; good && i < found.gl_pathc; i++) good = allow(rules, handled, found.gl_pathv[i]);
  globfree(&found);
  return good;
}

static bool allow_gpus(int rules, uint64_t handled, const struct vgpu_inventory *inventory) {
  bool good = true;
  for (uint32_t i = 0; good && i < inventory->count; i++) {
    char path[64];
    snprintf(path, sizeof path, "/dev/nvidia%d", (int)inventory->minor[i]);
    /* If NVML does not report the minor numbers, the files of all GPUs are allowed. */
    good = inventory->minor[i] >= 0 ? allow(rules, handled, path)
                                    : allow_all_of(rules, handled, "/dev/nvidia[0-9]*");
    if (good && inventory->is_part[i]) good = allow(rules, handled, "/dev/nvidia-caps");
  }
  return good;
}

bool vgpu_cuda_limit_files(const struct vgpu_inventory *inventory) {
  int has = version();
  if (has == 0) return true; /* the daemon has said so */
  struct landlock_ruleset_attr attributes = {.handled_access_fs = OPENS | (has >= 2 ? REFER : 0)};
  int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
  if (rules < 0) return false;
  bool good = allow_outside(rules, attributes.handled_access_fs) &&
              allow_gpus(rules, attributes.handled_access_fs, inventory);
  for (size_t i = 0; good && i < sizeof common / sizeof *common; i++)
    good = allow(rules, attributes.handled_access_fs, common[i]);
  good = good && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_landlock_restrict_self, rules, 0) == 0;
  int error = errno;
  close(rules);
  errno = error;
  return good;
}
