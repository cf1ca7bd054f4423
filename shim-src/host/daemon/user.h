/* The user that workers run as when root started the daemon: never root, unless the administrator says so. */
#ifndef VGPU_HOST_USER_H
#define VGPU_HOST_USER_H

#include "host/backend/backend.h"
#include "host/session/setup.h"

/*
 * Finds the user. `wanted`: a name or number from --user or hostd.conf; messages name the source as `where`.
 * NULL: a number that belongs to no user. Workers get the groups that may open the backend's device nodes,
 * and no others. False with the reason in `error`.
 */
bool vgpu_user_choose(const char *wanted, const char *where, const struct vgpu_backend *backend,
                      struct vgpu_worker_user *user, char *error, size_t error_size);

#endif
