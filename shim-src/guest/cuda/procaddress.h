/* Generated; sorted by base name, version and per-thread variant. */
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
