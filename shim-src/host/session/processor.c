#include "host/session/processor.h"

#include <sched.h>

bool vgpu_leave_processor(uint32_t processor) {
  int here = sched_getcpu();
  if (processor == 0 || here < 0 || (uint32_t)here + 1 != processor) return true;
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return false;
  cpu_set_t others = usable;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return false;
  /* The thread has moved. From now on the kernel may choose among all processors again. */
  (void)sched_setaffinity(0, sizeof usable, &usable);
  return true;
}
