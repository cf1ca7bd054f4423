/* Which calls begin work at the host, and which wait for it to end: for what does not know CUDA's calls. */
#ifndef VGPU_GUEST_CUDA_BEGINS_WORK_H
#define VGPU_GUEST_CUDA_BEGINS_WORK_H

#include <stdbool.h>
#include <stdint.h>

bool vgpu_cuda_begins_work(uint32_t opcode);

/* The host may answer NOT_READY while it ends what this thread has freed or destroyed: to be asked again. */
bool vgpu_cuda_follows_endings(uint32_t opcode);

#endif
