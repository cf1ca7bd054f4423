/* Getters of NVML that the host answers. The exported functions are generated (shim-src/api/nvml.api). */
#ifndef VGPU_GUEST_NVML_QUERY_H
#define VGPU_GUEST_NVML_QUERY_H

#include <string.h>

#include "guest/nvml/nvml.h"

/*
 * Carries a query (wire/query.h). `values` has the parameters behind the device: numbers, handles and
 * addresses of the caller. Returns an nvml_result.
 */
int vgpu_nvml_query(nvml_device device, uint32_t number, const uint64_t *values);

/* Returns an nvml_result: whether NVML is ready and the handle is that of a device. */
int vgpu_nvml_ready_device(nvml_device device);

/* Zeros all but the version of a structure. False: its version is not in `versions`, which ends with 0. */
bool vgpu_nvml_clear(void *structure, const uint32_t *versions);

#endif
