/*
 * The findings of vgpu-probe, in memory that the probe shares with the child that opens the libraries. If the
 * child hangs or dies, the probe still reports the findings so far.
 */
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

  /* The state of the connection to the host, from vgpu-agent's libcuda; `size` is 0 with any other library.
   */
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

/* Each runs in the child, sets report->step before each step, and returns when it has nothing more to do. */
void vgpu_probe_cuda(struct vgpu_probe_report *report, const char *library, bool compute);
void vgpu_probe_nvml(struct vgpu_probe_report *report, const char *library);

/*
 * True if every CUDA call succeeded, the memory round trip returned the same bytes and, if kernels were
 * requested, so did their results. NVML has its own verdict.
 */
bool vgpu_probe_ok(const struct vgpu_probe_report *report);

/* Prints one JSON document and a newline. False: it could not be written. */
bool vgpu_probe_print(const struct vgpu_probe_report *report, FILE *out);

#endif
