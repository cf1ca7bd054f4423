/* Finds the groups that may open NVIDIA's device nodes, if access to these is restricted. */
#include <glob.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "host/backend/cuda/filter.h"

uint32_t vgpu_cuda_device_groups(uint32_t *groups, uint32_t most) {
  static const char *const patterns[] = {"/dev/nvidia*", "/dev/nvidia-caps/*"};
  uint32_t count = 0;
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    glob_t found;
    if (glob(patterns[i], 0, NULL, &found) != 0) continue;
    for (size_t k = 0; k < found.gl_pathc; k++) {
      struct stat node;
      if (stat(found.gl_pathv[k], &node) != 0 || !S_ISCHR(node.st_mode) || (node.st_mode & 06) == 06 ||
          (node.st_mode & 060) != 060 || node.st_gid == 0) {
        continue;
      }
      bool known = false;
      for (uint32_t n = 0; n < count; n++) known = known || groups[n] == node.st_gid;
      if (!known && count < most) groups[count++] = node.st_gid;
    }
    globfree(&found);
  }
  return count;
}
