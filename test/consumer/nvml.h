#ifndef NVML_H
#define NVML_H

#include "standin.h"

/* The driver's major version by NVML: 580; 0 when NVML is not there or does not say. */
int nvml_driver_major(void);

/* A device's memory in bytes by NVML, as ggml asks for it; false when NVML cannot say. */
bool nvml_memory(const char *uuid, uint64_t *total, uint64_t *available);

#endif
