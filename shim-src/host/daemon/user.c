#include "host/daemon/user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/log.h"

/* systemd's DynamicUser=: no distribution assigns these permanently. */
#define FIRST 61184u
#define LAST 65519u

static bool find(const char *wanted, const char *where, struct vgpu_worker_user *user, char *error,
                 size_t error_size) {
  char *end;
  unsigned long number = strtoul(wanted, &end, 10);
  bool numeric = wanted[0] >= '0' && wanted[0] <= '9' && *end == '\0' && number < UINT32_MAX;
  const struct passwd *found = numeric ? getpwuid((uid_t)number) : getpwnam(wanted);
  if (found == NULL && !numeric) {
    snprintf(error, error_size, "%s\"%s\": there is no such user", where, wanted);
    return false;
  }
  user->uid = found != NULL ? found->pw_uid : (uint32_t)number;
  user->gid = found != NULL ? found->pw_gid : (uint32_t)number;
  user->changes = user->uid != 0;
  return true;
}

static bool find_nobodys(struct vgpu_worker_user *user) {
  for (uint32_t number = FIRST; number <= LAST; number++) {
    if (getpwuid(number) != NULL || getgrgid(number) != NULL) continue;
    user->uid = user->gid = number;
    user->changes = true;
    return true;
  }
  return false;
}

static int try(const struct vgpu_worker_user *user) {
  pid_t child = fork();
  if (child == 0) _exit(vgpu_worker_become(user) ? 0 : errno);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EAGAIN;
}

bool vgpu_user_choose(const char *wanted, const char *where, const struct vgpu_backend *backend,
                      struct vgpu_worker_user *user, char *error, size_t error_size) {
  *user = (struct vgpu_worker_user){.changes = false};
  if (geteuid() != 0) {
    if (wanted == NULL) return true;
    snprintf(error, error_size, "%s\"%s\": only root can start workers as another user", where, wanted);
    return false;
  }
  if (wanted != NULL && !find(wanted, where, user, error, error_size)) return false;
  if (wanted == NULL && !find_nobodys(user)) {
    snprintf(error, error_size, "every user number from %u to %u is in use; name a user with --user", FIRST,
             LAST);
    return false;
  }
  if (!user->changes) return true;
  if (backend->device_groups != NULL)
    user->group_count = backend->device_groups(user->groups, VGPU_WORKER_GROUPS);
  int reason = try(user);
  if (reason == 0) {
    vgpu_host_log("user", 0, "workers run as user %u", user->uid);
    return true;
  }
  /* A container whose only user is root: workers run as root. */
  if (wanted == NULL && reason == EINVAL) {
    user->changes = false;
    vgpu_host_log("user", 0, "workers run as the daemon's user: the system has no other user");
    return true;
  }
  snprintf(error, error_size, "workers cannot run as user %u: %s; see --user", user->uid, strerror(reason));
  return false;
}
