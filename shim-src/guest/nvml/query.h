#ifndef VGPU_GUEST_NVML_QUERY_H
#define VGPU_GUEST_NVML_QUERY_H

#include <string.h>

#include "guest/nvml/nvml.h"

/*
 * Sends a query (wire/query.h) to the host. `values` are the parameters behind the device, as the caller
 * passed them: numbers, handles and addresses. Returns an nvml_result.
 */
int vgpu_nvml_query(nvml_device device, uint32_t number, const uint64_t *values);

/* Returns an nvml_result: whether NVML is ready and the handle is that of a device. */
int vgpu_nvml_ready_device(nvml_device device);

/* Zeros all of a structure except its version. False: the version is not in `versions`, which ends with 0. */
bool vgpu_nvml_clear(void *structure, const uint32_t *versions);

#endif
