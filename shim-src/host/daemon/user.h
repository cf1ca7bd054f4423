/* The user of workers when root started the daemon: never root, unless the administrator says so. */
#ifndef VGPU_HOST_USER_H
#define VGPU_HOST_USER_H

#include "host/backend/backend.h"
#include "host/session/setup.h"

/*
 * Finds the user. `wanted` is a name or number from `where` (--user or hostd.conf, for messages); NULL: a
 * number that belongs to no user. Workers get the groups that may open the backend's device nodes, and no
 * others. False: `error` has the reason.
 */
bool vgpu_user_choose(const char *wanted, const char *where, const struct vgpu_backend *backend,
                      struct vgpu_worker_user *user, char *error, size_t error_size);

#endif
