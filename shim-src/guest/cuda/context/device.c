/* Answers come from the facts fetched once. */
#include <stdio.h>
#include <string.h>

#include "api/device_attributes.h"
#include "cuda_api.h"
#include "cuda_calls.h"
#include "guest/cuda/internal.h"

int vgpu_cuda_device_count(void) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  return driver == NULL ? 0 : driver->device_count;
}

const struct vgpu_device_facts *vgpu_cuda_device_facts(int ordinal) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL || ordinal < 0 || ordinal >= driver->device_count) return NULL;
  return &driver->facts[ordinal];
}

static int facts_of(int32_t dev, const struct vgpu_device_facts **facts) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  *facts = vgpu_cuda_device_facts(dev);
  return *facts == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

int cuDeviceGetCount(int32_t *count) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = vgpu_cuda_device_count();
  return CUDA_SUCCESS;
}

int cuDeviceGet(int32_t *device, int32_t ordinal) {
  const struct vgpu_device_facts *facts;
  int result = facts_of(ordinal, &facts);
  if (result != CUDA_SUCCESS) return result;
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

int cuDeviceGetName(char *name, int32_t len, int32_t dev) {
  const struct vgpu_device_facts *facts;
  int result = facts_of(dev, &facts);
  if (result != CUDA_SUCCESS) return result;
  if (name == NULL || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, (size_t)len, "%s", facts->name);
  return CUDA_SUCCESS;
}

int cuDeviceGetUuid(void *uuid, int32_t dev) {
  const struct vgpu_device_facts *facts;
  int result = facts_of(dev, &facts);
  if (result != CUDA_SUCCESS) return result;
  if (uuid == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(uuid, facts->uuid, sizeof facts->uuid);
  return CUDA_SUCCESS;
}

int cuDeviceGetUuid_v2(void *uuid, int32_t dev) {
  return cuDeviceGetUuid(uuid, dev);
}

int cuDeviceTotalMem_v2(size_t *bytes, int32_t dev) {
  const struct vgpu_device_facts *facts;
  int result = facts_of(dev, &facts);
  if (result != CUDA_SUCCESS) return result;
  if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
  *bytes = facts->total_memory;
  return CUDA_SUCCESS;
}

/*
 * The call is older than 64-bit device pointers: a size that does not fit into 32 bits becomes the largest
 * that does.
 */
int cuDeviceTotalMem(uint32_t *bytes, int32_t dev) {
  size_t total = 0;
  int result = cuDeviceTotalMem_v2(&total, dev);
  if (result != CUDA_SUCCESS) return result;
  if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
  *bytes = total > UINT32_MAX ? UINT32_MAX : (uint32_t)total;
  return CUDA_SUCCESS;
}

/* Features that this library does not carry: a program that asks gets 0 and takes its other path. */
static bool not_carried(int32_t attribute) {
  switch (attribute) {
    case VGPU_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case VGPU_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case VGPU_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case VGPU_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case VGPU_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case VGPU_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case VGPU_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
    case VGPU_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case VGPU_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case VGPU_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED:
    case VGPU_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED:
    case VGPU_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED:
    case VGPU_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case VGPU_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED:
    case VGPU_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED:
    case VGPU_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case VGPU_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
    case VGPU_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
    case VGPU_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED:
    case VGPU_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case VGPU_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case VGPU_ATTRIBUTE_MULTICAST_SUPPORTED:
    case VGPU_ATTRIBUTE_D3D12_CIG_SUPPORTED:
    case VGPU_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK:
    case VGPU_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH:
    case VGPU_ATTRIBUTE_VULKAN_CIG_SUPPORTED:
    case VGPU_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case VGPU_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
    case VGPU_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED:
    case VGPU_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
    case VGPU_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case VGPU_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED:
    case VGPU_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED:
    case VGPU_ATTRIBUTE_ATOMIC_REDUCTION_SUPPORTED:
    case VGPU_ATTRIBUTE_LOCALITY_DOMAIN_COUNT:
    case VGPU_ATTRIBUTE_MAX_OVERSIZED_SHARED_MEMORY_PER_BLOCK:
    case VGPU_ATTRIBUTE_D3D12_CIG_STREAMS_SUPPORTED:
    case VGPU_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED:
    case VGPU_ATTRIBUTE_LOGICAL_ENDPOINT_UNICAST_SUPPORTED:
    case VGPU_ATTRIBUTE_LOGICAL_ENDPOINT_MULTICAST_SUPPORTED:
    case VGPU_ATTRIBUTE_LOGICAL_ENDPOINT_COUNTED_OPS_SUPPORTED:
    case VGPU_ATTRIBUTE_LOGICAL_ENDPOINT_UNICAST_ACCESS_ON_OWNER_DEVICE_SUPPORTED:
    case VGPU_ATTRIBUTE_LOCALITY_DOMAIN_MULTIPROCESSOR_COUNT:
    case VGPU_ATTRIBUTE_LOGICAL_ENDPOINT_SUPPORTED_HANDLE_TYPES:
    case VGPU_ATTRIBUTE_VULKAN_CIG_STREAMS_SUPPORTED:
    case VGPU_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED:
      return true;
    default:
      return false;
  }
}

static bool reads_only(void) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  return driver != NULL && vgpu_session_reads_only(driver->session);
}

int cuDeviceGetAttribute(int32_t *pi, int32_t attrib, int32_t dev) {
  const struct vgpu_device_facts *facts;
  int result = facts_of(dev, &facts);
  if (result != CUDA_SUCCESS) return result;
  if (pi == NULL || attrib < 0 || attrib >= (int32_t)VGPU_ATTRIBUTES_MAX) return CUDA_ERROR_INVALID_VALUE;
  /* Where guest and host see the same bytes, both may use them at any time. */
  if (attrib == VGPU_ATTRIBUTE_CAN_MAP_HOST_MEMORY || attrib == VGPU_ATTRIBUTE_MANAGED_MEMORY ||
      attrib == VGPU_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) {
    *pi = vgpu_lent_possible();
    return CUDA_SUCCESS;
  }
  if (attrib == VGPU_ATTRIBUTE_IPC_EVENT_SUPPORTED) {
    *pi = vgpu_ipc_possible();
    return CUDA_SUCCESS;
  }
  if (attrib == VGPU_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) {
    *pi = vgpu_physical_shares_possible(dev);
    return CUDA_SUCCESS;
  }
  if (attrib == VGPU_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES) {
    *pi = vgpu_pool_shares_possible(dev);
    return CUDA_SUCCESS;
  }
  if (not_carried(attrib) || (attrib == VGPU_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED && !reads_only())) {
    *pi = 0;
    return CUDA_SUCCESS;
  }
  bool known = (facts->attribute_known[attrib / 8] >> (attrib % 8) & 1) != 0;
  /* An attribute that exists but that the host did not send is a feature that the device does not have. */
  if (!known && (attrib == 0 || attrib >= VGPU_ATTRIBUTE_END)) return CUDA_ERROR_INVALID_VALUE;
  int32_t otherwise = attrib == VGPU_ATTRIBUTE_TENSOR_MAP_LARGE_TENSOR_MIN_SIZE ? INT32_MAX : 0;
  *pi = known ? facts->attributes[attrib] : otherwise;
  return CUDA_SUCCESS;
}

int cuDeviceComputeCapability(int32_t *major, int32_t *minor, int32_t dev) {
  const struct vgpu_device_facts *facts;
  int result = facts_of(dev, &facts);
  if (result != CUDA_SUCCESS) return result;
  if (major == NULL || minor == NULL) return CUDA_ERROR_INVALID_VALUE;
  *major = (int32_t)facts->compute_major;
  *minor = (int32_t)facts->compute_minor;
  return CUDA_SUCCESS;
}

int cuDeviceGetPCIBusId(char *pciBusId, int32_t len, int32_t dev) {
  const struct vgpu_device_facts *facts;
  int result = facts_of(dev, &facts);
  if (result != CUDA_SUCCESS) return result;
  if (pciBusId == NULL || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(pciBusId, (size_t)len, "%04x:%02x:%02x.0", facts->pci_domain, facts->pci_bus, facts->pci_device);
  return CUDA_SUCCESS;
}

/* "domain:bus:device.function", "domain:bus:device" or "bus:device.function", in hexadecimal. */
int cuDeviceGetByPCIBusId(int32_t *dev, const char *pciBusId) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (dev == NULL || pciBusId == NULL) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain, bus, device, function = 0;
  int fields = sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &device, &function);
  if (fields < 3) {
    domain = 0;
    if (sscanf(pciBusId, "%x:%x.%x", &bus, &device, &function) < 3) return CUDA_ERROR_INVALID_VALUE;
  }
  for (int32_t i = 0; i < vgpu_cuda_device_count(); i++) {
    const struct vgpu_device_facts *facts = vgpu_cuda_device_facts(i);
    if (facts->pci_domain == domain && facts->pci_bus == bus && facts->pci_device == device &&
        function == 0) {
      *dev = i;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

int cuDeviceGetProperties(void *prop, int32_t dev) {
  /* CUdevprop: the attributes of each member in order. */
  static const int32_t order[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  int32_t values[sizeof order / sizeof *order];
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    int result = cuDeviceGetAttribute(&values[i], order[i], dev);
    if (result != CUDA_SUCCESS) return result;
  }
  if (prop == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(prop, values, sizeof values);
  return CUDA_SUCCESS;
}

enum { P2P_ACCESS_SUPPORTED = 2, P2P_ATTRIBUTES = 5 }; /* CUdevice_P2PAttribute */

/* An older host does not know the call and allows no access. */
static int p2p_attribute(int32_t attribute, int32_t from, int32_t to) {
  int result;
  const struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  if (driver == NULL) return 0;
  struct vgpu_send_cuDeviceGetP2PAttribute send = {
      .attribute = attribute, .source = driver->host_index[from], .destination = driver->host_index[to]};
  struct vgpu_reply_cuDeviceGetP2PAttribute reply;
  result = vgpu_cuda_call(VGPU_OP_cuDeviceGetP2PAttribute, &send, sizeof send, &reply, sizeof reply);
  return result == CUDA_SUCCESS ? reply.value : 0;
}

bool vgpu_peer_possible(int32_t ordinal, int32_t peer) {
  return ordinal != peer && p2p_attribute(P2P_ACCESS_SUPPORTED, ordinal, peer) != 0;
}

int cuDeviceCanAccessPeer(int32_t *canAccessPeer, int32_t dev, int32_t peerDev) {
  const struct vgpu_device_facts *facts;
  int result = facts_of(dev, &facts);
  if (result == CUDA_SUCCESS) result = facts_of(peerDev, &facts);
  if (result != CUDA_SUCCESS) return result;
  if (canAccessPeer == NULL) return CUDA_ERROR_INVALID_VALUE;
  *canAccessPeer = vgpu_peer_possible(dev, peerDev);
  return CUDA_SUCCESS;
}

int cuDeviceGetP2PAttribute(int32_t *value, int32_t attrib, int32_t srcDevice, int32_t dstDevice) {
  const struct vgpu_device_facts *facts;
  int result = facts_of(srcDevice, &facts);
  if (result == CUDA_SUCCESS) result = facts_of(dstDevice, &facts);
  if (result != CUDA_SUCCESS) return result;
  if (srcDevice == dstDevice) return CUDA_ERROR_INVALID_DEVICE;
  if (value == NULL || attrib < 1 || attrib > P2P_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
  *value = p2p_attribute(attrib, srcDevice, dstDevice);
  return CUDA_SUCCESS;
}

int cuDeviceGetExecAffinitySupport(int32_t *pi, int32_t type, int32_t dev) {
  const struct vgpu_device_facts *facts;
  int result = facts_of(dev, &facts);
  if (result != CUDA_SUCCESS) return result;
  if (pi == NULL || type != 0) return CUDA_ERROR_INVALID_VALUE;
  *pi = 0;
  return CUDA_SUCCESS;
}

int cuModuleGetLoadingMode(int32_t *mode) {
  int result = vgpu_cuda_ready();
  if (result != CUDA_SUCCESS) return result;
  if (mode == NULL) return CUDA_ERROR_INVALID_VALUE;
  *mode = 2; /* CU_MODULE_LAZY_LOADING */
  return CUDA_SUCCESS;
}
