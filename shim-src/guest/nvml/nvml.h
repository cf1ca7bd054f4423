/*
 * The hand-written part of libnvidia-ml.so.1 (docs/reference/nvml.md); the rest is generated from
 * shim-src/api/nvml.api. Constant facts are fetched once, at nvmlInit; used memory, load and processes at
 * each call.
 */
#ifndef VGPU_GUEST_NVML_H
#define VGPU_GUEST_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/session.h"

#define NVML_API __attribute__((visibility("default")))

enum nvml_result {
  NVML_SUCCESS = 0,
  NVML_UNINITIALIZED = 1,
  NVML_INVALID_ARGUMENT = 2,
  NVML_NOT_SUPPORTED = 3,
  NVML_NOT_FOUND = 6,
  NVML_INSUFFICIENT_SIZE = 7,
  NVML_DRIVER_NOT_LOADED = 9,
  NVML_TIMEOUT = 10,
  NVML_FUNCTION_NOT_FOUND = 13,
  NVML_GPU_IS_LOST = 15,
  NVML_MEMORY = 20,
  NVML_VERSION_MISMATCH = 25,
  NVML_UNKNOWN = 999,
};

/*
 * nvmlDevice_t: points to a byte of a table of this library, so that any other value is recognised as
 * invalid.
 */
typedef void *nvml_device;

struct nvml_pci_v2 {
  char bus_id[16]; /* "0000:01:00.0" */
  uint32_t domain;
  uint32_t bus;
  uint32_t device;
  uint32_t pci_device_id; /* device above vendor: 0x233010de */
  uint32_t pci_subsystem_id;
  uint32_t reserved[4];
};
/* nvmlDeviceGetPciInfo without a version ends before pci_subsystem_id. */
enum { NVML_PCI_V1_SIZE = 32 };

struct nvml_pci_v3 {
  char bus_id_legacy[16];
  uint32_t domain;
  uint32_t bus;
  uint32_t device;
  uint32_t pci_device_id;
  uint32_t pci_subsystem_id;
  char bus_id[32]; /* "00000000:01:00.0" */
};

struct nvml_pci_ext_v1 {
  uint32_t version;
  uint32_t domain;
  uint32_t bus;
  uint32_t device;
  uint32_t pci_device_id;
  uint32_t pci_subsystem_id;
  uint32_t base_class;
  uint32_t sub_class;
  char bus_id[32];
};

struct nvml_memory_v1 {
  uint64_t total;
  uint64_t free;
  uint64_t used;
};

struct nvml_memory_v2 {
  uint32_t version;
  uint32_t padding;
  uint64_t total;
  uint64_t reserved;
  uint64_t free;
  uint64_t used;
};

struct nvml_utilization {
  uint32_t gpu;
  uint32_t memory;
};

struct nvml_process_v1 {
  uint32_t pid;
  uint32_t padding;
  uint64_t used;
};

/* Versions 2 and 3 of the calls use this structure. */
struct nvml_process_v2 {
  uint32_t pid;
  uint32_t padding;
  uint64_t used;
  uint32_t gpu_instance;
  uint32_t compute_instance;
};

struct nvml_process_detail {
  uint32_t pid;
  uint32_t padding;
  uint64_t used;
  uint32_t gpu_instance;
  uint32_t compute_instance;
  uint64_t protected_memory;
};
struct nvml_process_details_v1 {
  uint32_t version;
  uint32_t mode; /* compute, graphics, MPS, all */
  uint32_t count;
  uint32_t padding;
  struct nvml_process_detail *processes;
};

struct nvml_process_load {
  uint64_t time;
  uint32_t pid;
  uint32_t of[6]; /* multiprocessors, memory, encoder, decoder, JPEG, OFA */
};
struct nvml_process_loads_v1 {
  uint32_t version;
  uint32_t count;
  uint64_t since;
  struct nvml_process_load *processes;
};

_Static_assert(sizeof(struct nvml_pci_v2) == 52 && sizeof(struct nvml_pci_v3) == 68 &&
                   sizeof(struct nvml_pci_ext_v1) == 64 && sizeof(struct nvml_memory_v1) == 24 &&
                   sizeof(struct nvml_memory_v2) == 40 && sizeof(struct nvml_process_v1) == 16 &&
                   sizeof(struct nvml_process_v2) == 24 && sizeof(struct nvml_process_detail) == 32 &&
                   sizeof(struct nvml_process_details_v1) == 24 && sizeof(struct nvml_process_load) == 40 &&
                   sizeof(struct nvml_process_loads_v1) == 24,
               "structures of NVML's interface");

/* The first field of a versioned structure: its size and number. */
#define NVML_STRUCT_VERSION(type, number) ((uint32_t)sizeof(type) | (uint32_t)(number) << 24)

/*
 * A session and the facts of its host. It does not change after it was made, so a thread that entered it may
 * read it without a lock. The last user ends it.
 */
struct vgpu_nvml {
  unsigned users; /* the threads inside, and one while it is the current one. Under the process's lock */
  struct vgpu_session *session;
  uint32_t device_count;
  struct vgpu_device_facts facts[VGPU_DEVICES_MAX];
};

/*
 * Enters the current session, for a call that then leaves it. NULL: *result has the reason. No lock is held
 * until leave, so a call that waits for the host delays no other call. A lost session is opened again, at
 * most once a second, so that a monitor survives a restart of the host.
 */
struct vgpu_nvml *vgpu_nvml_enter(int *result);
void vgpu_nvml_leave(struct vgpu_nvml *nvml);

/*
 * Enters and leaves, for a call that only needs to know whether there is a session. Returns an nvml_result.
 */
int vgpu_nvml_ready(void);

/*
 * Enters the session for one device. *facts is valid until leave, and *index is the device's number at the
 * host. NULL: *result has the reason.
 */
struct vgpu_nvml *vgpu_nvml_enter_device(nvml_device device, const struct vgpu_device_facts **facts,
                                         uint32_t *index, int *result);

/* Finds the number of a device at the host. False: the handle is not that of a device. */
bool vgpu_nvml_number(const struct vgpu_nvml *nvml, nvml_device device, uint32_t *number);

/*
 * Copies a device's facts, for calls that need nothing else. Returns NVML_INVALID_ARGUMENT if `out`, the
 * caller's own result pointer, is NULL. `number` may be NULL.
 */
int vgpu_nvml_facts(nvml_device device, const void *out, struct vgpu_device_facts *copy, uint32_t *number);

/* Writes "GPU-" and the UUID, 40 characters. */
void vgpu_nvml_format_uuid(const struct vgpu_device_facts *facts, char text[48]);

nvml_device vgpu_nvml_handle(uint32_t index);

/* Requests the current values from the host. Returns an nvml_result. */
int vgpu_nvml_usage(struct vgpu_nvml *nvml, uint32_t index, struct vgpu_usage_reply *usage);

/* Returns the nvmlReturn_t for the outcome of a call and, if the host answered, its status. */
int vgpu_nvml_outcome(enum vgpu_outcome outcome, int32_t status);

/*
 * Copies `text` with its terminating zero. Returns NVML_INVALID_ARGUMENT if `to` is NULL, and
 * NVML_INSUFFICIENT_SIZE if the text does not fit in `size` bytes.
 */
int vgpu_nvml_text(char *to, unsigned size, const char *text);

/*
 * Gives a device attribute (a CUdevice_attribute). Returns NVML_NOT_SUPPORTED if the host does not know it.
 */
int vgpu_nvml_attribute(const struct vgpu_device_facts *facts, unsigned attribute, int32_t *value);

NVML_API int nvmlInit(void);
NVML_API int nvmlInit_v2(void);
NVML_API int nvmlInitWithFlags(unsigned flags);
NVML_API int nvmlShutdown(void);
NVML_API const char *nvmlErrorString(int result);
NVML_API int nvmlSystemGetDriverVersion(char *version, unsigned size);
NVML_API int nvmlSystemGetNVMLVersion(char *version, unsigned size);
NVML_API int nvmlSystemGetCudaDriverVersion(int *version);
NVML_API int nvmlSystemGetCudaDriverVersion_v2(int *version);
NVML_API int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size);
NVML_API int nvmlInternalGetExportTable(const void **table, const unsigned char uuid[16]);
NVML_API int nvmlEventSetCreate(void **set);
NVML_API int nvmlEventSetFree(void *set);

NVML_API int nvmlDeviceGetCount(unsigned *count);
NVML_API int nvmlDeviceGetCount_v2(unsigned *count);
NVML_API int nvmlDeviceGetHandleByIndex(unsigned index, nvml_device *device);
NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device);
NVML_API int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device);
NVML_API int nvmlDeviceGetHandleByPciBusId(const char *id, nvml_device *device);
NVML_API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device *device);
NVML_API int nvmlDeviceGetIndex(nvml_device device, unsigned *index);
NVML_API int nvmlDeviceGetName(nvml_device device, char *name, unsigned size);
NVML_API int nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned size);
NVML_API int nvmlDeviceGetPciInfo(nvml_device device, struct nvml_pci_v2 *pci);
NVML_API int nvmlDeviceGetPciInfo_v2(nvml_device device, struct nvml_pci_v2 *pci);
NVML_API int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci_v3 *pci);
NVML_API int nvmlDeviceGetPciInfoExt(nvml_device device, struct nvml_pci_ext_v1 *pci);
NVML_API int nvmlDeviceGetMinorNumber(nvml_device device, unsigned *minor);
NVML_API int nvmlDeviceGetBrand(nvml_device device, int *brand);
NVML_API int nvmlDeviceGetArchitecture(nvml_device device, unsigned *architecture);
NVML_API int nvmlDeviceGetCudaComputeCapability(nvml_device device, int *major, int *minor);
NVML_API int nvmlDeviceGetMemoryBusWidth(nvml_device device, unsigned *bits);
NVML_API int nvmlDeviceGetEccMode(nvml_device device, int *current, int *pending);
NVML_API int nvmlDeviceGetComputeMode(nvml_device device, int *mode);
NVML_API int nvmlDeviceGetMultiGpuBoard(nvml_device device, unsigned *multiple);

NVML_API int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory_v1 *memory);
NVML_API int nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory);
NVML_API int nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilization *rates);
NVML_API int nvmlDeviceGetCpuAffinity(nvml_device device, unsigned size, unsigned long *set);
NVML_API int nvmlDeviceGetCpuAffinityWithinScope(nvml_device device, unsigned size, unsigned long *set,
                                                 unsigned scope);
NVML_API int nvmlDeviceGetMemoryAffinity(nvml_device device, unsigned size, unsigned long *set,
                                         unsigned scope);
NVML_API int nvmlDeviceGetHandleBySerial(const char *serial, nvml_device *device);
NVML_API int nvmlDeviceGetTopologyNearestGpus(nvml_device device, unsigned level, unsigned *count,
                                              nvml_device *devices);
NVML_API int nvmlSystemGetTopologyGpuSet(unsigned processor, unsigned *count, nvml_device *devices);
NVML_API int nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned *count,
                                                  struct nvml_process_v1 *processes);
NVML_API int nvmlDeviceGetComputeRunningProcesses_v2(nvml_device device, unsigned *count,
                                                     struct nvml_process_v2 *processes);
NVML_API int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count,
                                                     struct nvml_process_v2 *processes);

NVML_API int nvmlDeviceGetRunningProcessDetailList(nvml_device device, struct nvml_process_details_v1 *list);
NVML_API int nvmlDeviceGetProcessesUtilizationInfo(nvml_device device, struct nvml_process_loads_v1 *list);

#endif
