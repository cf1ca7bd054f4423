/*
 * Maps base name, version and per-thread variant to an entry point. The table is generated, and sorted in
 * that order.
 */
#ifndef VGPU_GUEST_CUDA_PROCADDRESS_H
#define VGPU_GUEST_CUDA_PROCADDRESS_H

struct vgpu_proc_row {
  const char *base;
  int version; /* first CUDA version with this signature */
  int per_thread;
  void (*entry)(void);
};

extern const struct vgpu_proc_row vgpu_proc_rows[];
extern const unsigned vgpu_proc_row_count;

#endif
