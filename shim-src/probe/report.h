/* Shared with the child that opens the libraries, so that findings survive a hang or crash. */
#ifndef VGPU_PROBE_REPORT_H
#define VGPU_PROBE_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "guest/transport.h"

enum { VGPU_PROBE_DEVICES = 64 };

struct vgpu_probe_device {
  char name[256];
  char uuid[48]; /* "GPU-..." */
  char pci[32];  /* "0000:01:00.0" */
  int compute_major;
  int compute_minor;
  uint64_t memory; /* bytes */
};

struct vgpu_probe_report {
  char step[48]; /* the present step, for a probe that ends early */
  char library[4096];
  int driver; /* 13000 is 13.0; 0: not known */

  uint32_t device_count; /* count of the devices below */
  struct vgpu_probe_device devices[VGPU_PROBE_DEVICES];

  bool trip_done;
  bool trip_ok;
  uint64_t trip_bytes;
  uint64_t trip_microseconds;

  bool compute_begun; /* the kernels were requested, and that step was reached */
  bool compute_ok;
  uint64_t compute_values; /* numbers that were compared */
  uint64_t compute_wrong;  /* how many of those differ */
  uint64_t compute_microseconds;

  bool nvml_ok;
  char nvml_driver[96];
  char nvml_error[512];

  /* Only vgpu-agent's libcuda answers; `size` is 0 with any other. */
  struct vgpu_transport_word host;

  bool failed;
  enum vgpu_probe_failure kind;
  bool coded; /* code and name are set */
  int code;
  char name[64];
  char message[512];

  bool cuda_done; /* all CUDA steps are done, with or without success */
  bool finished;  /* the child has finished, except perhaps for NVML */
};

/* Runs in the child. Sets report->step before each step. */
void vgpu_probe_cuda(struct vgpu_probe_report *report, const char *library, bool compute);
void vgpu_probe_nvml(struct vgpu_probe_report *report, const char *library);

/* Every CUDA call succeeded, and all bytes and results compared equal. NVML has its own verdict. */
bool vgpu_probe_ok(const struct vgpu_probe_report *report);

bool vgpu_probe_print(const struct vgpu_probe_report *report, FILE *out);

#endif
