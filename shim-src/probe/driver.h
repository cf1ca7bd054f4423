/*
 * The part of the driver API that the probe uses. CUcontext, CUmodule and CUfunction are pointers,
 * CUdeviceptr has 64 bits.
 */
#ifndef VGPU_PROBE_DRIVER_H
#define VGPU_PROBE_DRIVER_H

#include "probe/report.h"

#include <stddef.h>

struct vgpu_probe_driver {
  void *library;
  int (*init)(unsigned flags);
  int (*version)(int *version);
  int (*count)(int *count);
  int (*device)(int *device, int ordinal);
  int (*name)(char *name, int size, int device);
  int (*total)(size_t *bytes, int device);
  int (*attribute)(int *value, int attribute, int device);
  int (*uuid)(unsigned char uuid[16], int device);
  int (*pci)(char *id, int size, int device);
  int (*retain)(void **context, int device);
  int (*release)(int device);
  int (*current)(void *context);
  int (*allocate)(uint64_t *address, size_t bytes);
  int (*give_back)(uint64_t address);
  int (*to_device)(uint64_t to, const void *from, size_t bytes);
  int (*within)(uint64_t to, uint64_t from, size_t bytes);
  int (*from_device)(void *to, uint64_t from, size_t bytes);
  int (*error_name)(int code, const char **name);
  int (*table)(const void **table, const unsigned char id[16]);
};

/* Names the step that follows. The report has this name if the probe ends early. */
void vgpu_probe_begin(struct vgpu_probe_report *report, const char *step);

/* Always returns false. */
__attribute__((format(printf, 3, 4))) bool
vgpu_probe_fail(struct vgpu_probe_report *report, enum vgpu_probe_failure kind, const char *format, ...);

/* True if the call succeeded (`code` is 0). False: the report has the failure. */
bool vgpu_probe_good(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver, int code);

/*
 * Looks a function up and stores it in *function, the newer name first, because the real driver keeps the
 * older one for old programs. False: the report has the failure.
 */
bool vgpu_probe_find(struct vgpu_probe_report *report, void *library, void *function, const char *newer,
                     const char *older);

/* Runs the kernels of compute.ptx in the current context and compares every number with the CPU's. */
void vgpu_probe_compute(struct vgpu_probe_report *report, const struct vgpu_probe_driver *driver);

/* Microseconds, monotonic. */
uint64_t vgpu_probe_now(void);

/* Fills `bytes` bytes from the kernel's generator. False: the report has the failure. */
bool vgpu_probe_random(struct vgpu_probe_report *report, void *to, size_t bytes);

#endif
