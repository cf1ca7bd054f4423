/* Builds filters of system calls, for the lists of the backends. */
#ifndef VGPU_HOST_FILTER_H
#define VGPU_HOST_FILTER_H

#include <errno.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>

#define VGPU_CALL(name) SCMP_SYS(name)

/*
 * Adds a rule for each call. A negative number is a call that this architecture lacks. Returns 0 or the
 * error.
 */
static inline int vgpu_filter_add(scmp_filter_ctx filter, uint32_t action, const int *calls, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (calls[i] < 0) continue;
    int result = seccomp_rule_add(filter, action, calls[i], 0);
    if (result != 0 && result != -EEXIST) return result;
  }
  return 0;
}

#endif
