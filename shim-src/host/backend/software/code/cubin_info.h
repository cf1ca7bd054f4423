/*
 * Attributes of .nv.info in cubins, for reader and writer: u8 form, u8 name, then a u16 value or, in the
 * sized form, the size of the value that follows.
 */
#ifndef VGPU_HOST_SOFTWARE_CUBIN_INFO_H
#define VGPU_HOST_SOFTWARE_CUBIN_INFO_H

#define VGPU_CUBIN_ENTRY_POINT 0x10 /* st_other: a kernel, not a device function */

enum {
  VGPU_INFO_IN_PLACE = 3,
  VGPU_INFO_SIZED = 4,

  VGPU_INFO_MAX_THREADS = 0x05,
  VGPU_INFO_REQUIRED_THREADS = 0x10,
  VGPU_INFO_FRAME_SIZE = 0x11,
  VGPU_INFO_PARAMETER = 0x17,
  VGPU_INFO_PARAMETER_BYTES = 0x19,
  VGPU_INFO_REGISTERS = 0x2f,
  VGPU_INFO_CLUSTER = 0x3d,
  VGPU_INFO_CLUSTER_MUST = 0x3e,
  VGPU_INFO_PARAMETER_LONG = 0x45,
};

#endif
