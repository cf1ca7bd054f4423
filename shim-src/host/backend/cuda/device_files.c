/*
 * Limits the files below /dev that a worker can open to the files of its session's GPUs and those that every
 * CUDA program opens, and the compiler's caches to that of its peer. Landlock does this, because a daemon
 * without privileges can use it, too. A mount namespace needs root, and DevicePolicy= of the unit is the same
 * for all workers.
 */
#include "host/backend/cuda/device_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/session/accounts.h"

#define OPENS ((uint64_t)LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE)
/* Else a worker could remove or replace the files of other peers' caches. */
#define CHANGES                                                                                              \
  ((uint64_t)LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_DIR |  \
   LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_MAKE_FIFO |                \
   LANDLOCK_ACCESS_FS_MAKE_SOCK)
#define CACHE_BYTES "268435456" /* of one peer, unless the administrator sets CUDA_CACHE_MAXSIZE */
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

/* True if `path` is `directory` or below it. */
static bool is_in(const char *path, const char *directory) {
  size_t length = strlen(directory);
  return strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Allows all below `directory` ("": the root) but /dev and `hidden` ("": nothing), one level after the other.
 */
static bool allow_outside(int rules, uint64_t handled, const char *directory, const char *hidden) {
  DIR *opened = opendir(*directory == '\0' ? "/" : directory);
  if (opened == NULL)
    return *directory != '\0'; /* a directory that cannot be read: nothing in it is allowed */
  bool good = true;
  for (const struct dirent *entry; good && (entry = readdir(opened)) != NULL;) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || length >= (int)sizeof path ||
        strcmp(path, "/dev") == 0 || strcmp(path, hidden) == 0)
      continue;
    good = *hidden != '\0' && is_in(hidden, path) ? allow_outside(rules, handled, path, hidden)
                                                  : allow(rules, handled, path);
  }
  closedir(opened);
  return good;
}

/*
 * A directory of the peer for what the driver compiles, below the one that systemd made (CacheDirectory=).
 * One for all could be poisoned: the driver runs the code that it finds there. Stores the directory of all
 * caches and the peer's; both empty: there is no cache.
 */
static void find_cache(const struct vgpu_peer *peer, char caches[PATH_MAX], char own[PATH_MAX]) {
  static const char *const kinds[] = {"other", "unix", "vsock", "tcp"};
  const char *given = getenv("CACHE_DIRECTORY");
  *own = *caches = '\0';
  if (given == NULL || realpath(given, caches) == NULL || strcmp(caches, "/") == 0) {
    *caches = '\0';
    return;
  }
  if (peer == NULL) return;
  int length = snprintf(own, PATH_MAX, "%s/%s-%u", caches,
                        peer->kind < sizeof kinds / sizeof *kinds ? kinds[peer->kind] : kinds[0], peer->id);
  if (length >= PATH_MAX || (mkdir(own, 0700) != 0 && errno != EEXIST)) *own = '\0';
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

bool vgpu_cuda_limit_files(const struct vgpu_inventory *inventory, const struct vgpu_peer *peer) {
  char caches[PATH_MAX], own[PATH_MAX];
  find_cache(peer, caches, own);
  int has = version();
  if (has == 0) return true; /* the daemon has logged this; without Landlock there is no cache */
  if (*own != '\0' &&
      (setenv("CUDA_CACHE_PATH", own, 1) != 0 || setenv("CUDA_CACHE_MAXSIZE", CACHE_BYTES, 0) != 0))
    return false;
  struct landlock_ruleset_attr attributes = {.handled_access_fs = OPENS | CHANGES | (has >= 2 ? REFER : 0)};
  int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
  if (rules < 0) return false;
  bool good = allow_outside(rules, attributes.handled_access_fs, "", caches) &&
              allow_gpus(rules, attributes.handled_access_fs, inventory) &&
              (*own == '\0' || allow(rules, attributes.handled_access_fs, own));
  for (size_t i = 0; good && i < sizeof common / sizeof *common; i++)
    good = allow(rules, attributes.handled_access_fs, common[i]);
  good = good && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_landlock_restrict_self, rules, 0) == 0;
  int error = errno;
  close(rules);
  errno = error;
  return good;
}
