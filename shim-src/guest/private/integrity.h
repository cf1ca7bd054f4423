/*
 * The answer that NVIDIA's CUDA runtime requests from the library it finds as libcuda.so.1.
 *
 * Unmodified CUDA programs are to run on a genuine NVIDIA GPU, through NVIDIA's own driver at the other side
 * of a VM's border. The runtime asks three times at its start and stops (cudaError 103) without the right
 * answer. The answer depends on the asking process (its id, thread, addresses of its tables), so the host
 * cannot give it. This is interoperability only: nothing is decrypted, no licence is tested, and the ZLUDA
 * project documents the format.
 */
#ifndef VGPU_PRIVATE_INTEGRITY_H
#define VGPU_PRIVATE_INTEGRITY_H

#include <stdint.h>

enum { VGPU_INTEGRITY_ANSWER = 16 };

struct vgpu_integrity_question {
  uint32_t driver_version;  /* as from cuDriverGetVersion, 13000 = 13.0 */
  uint32_t runtime_version; /* as the runtime passes it */
  uint32_t process;
  uint32_t thread;
  uint64_t cudart_table; /* addresses in the asking process */
  uint64_t integrity_table;
  uint64_t function;
  uint64_t seconds; /* as the runtime passes it: Unix time */
};

struct vgpu_integrity_device {
  uint8_t uuid[16];
  int32_t pci_domain;
  int32_t pci_bus;
  int32_t pci_device;
};

void vgpu_integrity_answer(const struct vgpu_integrity_question *question,
                           const struct vgpu_integrity_device *devices, unsigned count,
                           uint8_t answer[VGPU_INTEGRITY_ANSWER]);

#endif
