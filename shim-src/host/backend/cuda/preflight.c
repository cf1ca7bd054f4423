#include "host/backend/cuda/preflight.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "host/backend/cuda/nvml.h"

#define STREAMS 16
#define NON_BLOCKING 1u
#define MAPPED 2u /* CU_MEMHOSTALLOC_DEVICEMAP */
#define GLOBAL 0  /* CU_STREAM_CAPTURE_MODE_GLOBAL */
#define BYTES ((size_t)2 << 20)

static void tell_version(const struct vgpu_inventory *inventory) {
  const char *driver = inventory->nvml_version;
  printf("driver: %s, CUDA %d.%d\n", *driver == '\0' ? "version unknown, NVML does not answer" : driver,
         inventory->cuda_version / 1000, inventory->cuda_version % 1000 / 10);
  const int major = atoi(driver);
  for (uint32_t i = 0; i < inventory->count && major > 0 && major < 570; i++) {
    if (inventory->devices[i].compute_major >= 7) continue;
    printf("warning: device %u is of compute capability %u.%u: Ollama 0.30 and newer uses the CPU with this "
           "driver; install driver 570 to 580 (590 and newer do not support this GPU)\n",
           i, inventory->devices[i].compute_major, inventory->devices[i].compute_minor);
  }
}

static void tell_node(const char *path) {
  struct stat node;
  if (stat(path, &node) != 0) {
    printf("warning: %s: %s; nvidia-modprobe makes it, as vgpu-hostd-driver.service does\n", path,
           strerror(errno));
    return;
  }
  printf("%s: %s %u:%u%s\n", path, S_ISCHR(node.st_mode) ? "device" : "no device", major(node.st_rdev),
         minor(node.st_rdev), access(path, R_OK | W_OK) == 0 ? "" : ", which this user cannot open");
}

/* Names that systemd resolves for DeviceAllow= of the unit. */
static void tell_names(void) {
  FILE *devices = fopen("/proc/devices", "re");
  char line[128];
  while (devices != NULL && fgets(line, sizeof line, devices) != NULL)
    if (strstr(line, "nvidia") != NULL) printf("/proc/devices: %s", line);
  if (devices != NULL) fclose(devices);
}

static void tell_device(const struct vgpu_options *options, const struct vgpu_inventory *inventory,
                        uint32_t index) {
  const struct vgpu_device_facts *facts = &inventory->devices[index];
  struct vgpu_usage_reply usage = {0};
  char path[32];
  printf("device %u: %s, compute capability %u.%u%s\n", index, facts->name, facts->compute_major,
         facts->compute_minor, inventory->is_part[index] ? ", a MIG instance" : "");
  if (inventory->minor[index] >= 0) {
    snprintf(path, sizeof path, "/dev/nvidia%d", (int)inventory->minor[index]);
    tell_node(path);
  }
  const int32_t mode = facts->attributes[VGPU_ATTRIBUTE_COMPUTE_MODE];
  if (mode != 0)
    printf("warning: device %u is in compute mode %d: it serves %s; nvidia-smi -c DEFAULT changes it\n",
           index, mode, mode == VGPU_CUDA_PROHIBITED ? "no session" : "one session at a time");
  vgpu_cuda_nvml_usage(options->nvml_library, facts, &usage);
  if (inventory->nvml_version[0] != '\0' && usage.persistence == 0)
    printf("warning: persistence mode of device %u is off: the first session after a pause waits until the "
           "driver is initialized; enable nvidia-persistenced.service\n",
           index);
}

void vgpu_cuda_preflight_machine(const struct vgpu_options *options, const struct vgpu_inventory *inventory) {
  const char *mps = getenv("CUDA_MPS_PIPE_DIRECTORY");
  tell_version(inventory);
  tell_names();
  if (!inventory->simulated) {
    tell_node("/dev/nvidiactl");
    tell_node("/dev/nvidia-uvm");
  }
  for (uint32_t i = 0; i < inventory->count; i++) tell_device(options, inventory, i);
  printf("MPS: %s\n", mps == NULL ? "not used (workers mps= of hostd.conf)" : mps);
}

int vgpu_cuda_preflight_register(const struct vgpu_driver_api *api) {
  int file = memfd_create("self-check", MFD_CLOEXEC);
  void *memory = MAP_FAILED;
  if (file >= 0 && ftruncate(file, (off_t)BYTES) == 0)
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address = 0;
  int result = VGPU_DRIVER(api, cuMemHostRegister_v2, memory, BYTES, MAPPED);
  if (result == CUDA_SUCCESS) {
    /* Programs use one pointer for both (lent.c). Without that, mapped and managed memory are refused. */
    int mapped = VGPU_DRIVER(api, cuMemHostGetDevicePointer_v2, &address, memory, 0);
    if (mapped != CUDA_SUCCESS || address != (uintptr_t)memory)
      printf(
          "  the device does not have it at its own address: programs get no mapped and no managed memory\n");
    result = VGPU_DRIVER(api, cuMemHostUnregister, memory);
  }
  munmap(memory, BYTES);
  return result;
}

int vgpu_cuda_preflight_capture(const struct vgpu_driver_api *api) {
  struct vgpu_stream *stream = NULL;
  uint64_t memory = 0;
  void *graph = NULL, *exec = NULL;
  int result = VGPU_DRIVER(api, cuMemAlloc_v2, &memory, BYTES);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuStreamCreateWithPriority, &stream, NON_BLOCKING, 0);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuStreamBeginCapture_v2, stream, GLOBAL);
  if (result == CUDA_SUCCESS)
    result = VGPU_DRIVER(api, cuMemsetD32Async, memory, 1, BYTES / sizeof(uint32_t), stream);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuStreamEndCapture, stream, &graph);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuGraphInstantiateWithFlags, &exec, graph, 0);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuGraphLaunch, exec, stream);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuStreamSynchronize, stream);
  return result;
}

struct freed {
  const struct vgpu_driver_api *api;
  struct vgpu_context *context;
  uint64_t memory;
  int result;
};

static void *free_memory(void *argument) {
  struct freed *freed = argument;
  freed->result = VGPU_DRIVER(freed->api, cuCtxSetCurrent, freed->context);
  if (freed->result == CUDA_SUCCESS) freed->result = VGPU_DRIVER(freed->api, cuMemFree_v2, freed->memory);
  return NULL;
}

int vgpu_cuda_preflight_gates(const struct vgpu_driver_api *api, struct vgpu_context *context) {
  struct vgpu_stream *streams[STREAMS] = {NULL};
  struct freed freed = {.api = api, .context = context};
  void *memory = NULL;
  uint64_t words = 0;
  pthread_t thread;
  int result = VGPU_DRIVER(api, cuMemHostAlloc, &memory, 4096, MAPPED);
  if (result == CUDA_SUCCESS) result = VGPU_DRIVER(api, cuMemHostGetDevicePointer_v2, &words, memory, 0);
  if (result != CUDA_SUCCESS) return result;
  memset(memory, 0, 4096);
  result = VGPU_DRIVER(api, cuMemAlloc_v2, &freed.memory, BYTES);
  for (int i = 0; result == CUDA_SUCCESS && i < STREAMS; i++) {
    result = VGPU_DRIVER(api, cuStreamCreateWithPriority, &streams[i], NON_BLOCKING, 0);
    if (result == CUDA_SUCCESS)
      result = VGPU_DRIVER(api, cuStreamWaitValue32_v2, streams[i], words + (uint64_t)i * 4, 1, 0);
  }
  if (result != CUDA_SUCCESS) return result;
  if (pthread_create(&thread, NULL, free_memory, &freed) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  for (int i = 0; i < STREAMS; i++) __atomic_store_n((uint32_t *)memory + i, 1, __ATOMIC_RELEASE);
  for (int i = 0; result == CUDA_SUCCESS && i < STREAMS; i++)
    while ((result = VGPU_DRIVER(api, cuStreamQuery, streams[i])) == CUDA_ERROR_NOT_READY)
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  pthread_join(thread, NULL);
  return result == CUDA_SUCCESS ? freed.result : result;
}
