#ifndef VGPU_GUEST_CUDA_BEGINS_WORK_H
#define VGPU_GUEST_CUDA_BEGINS_WORK_H

#include <stdbool.h>
#include <stdint.h>

bool vgpu_cuda_begins_work(uint32_t opcode);

#endif
