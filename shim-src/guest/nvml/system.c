#include "guest/nvml/nvml.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "guest/refused.h"

const char *nvmlErrorString(int result) {
  static const char *const texts[] = {
      "Success",
      "Uninitialized",
      "Invalid Argument",
      "Not Supported",
      "Insufficient Permissions",
      "Already Initialized",
      "Not Found",
      "Insufficient Size",
      "Insufficient External Power",
      "Driver Not Loaded",
      "Timeout",
      "Interrupt Request Issue",
      "NVML Shared Library Not Found",
      "Function Not Found",
      "Corrupted infoROM",
      "GPU is lost",
      "GPU requires reset",
      "GPU access blocked by the operating system",
      "Driver/library version mismatch",
      "In use by another client",
      "Insufficient Memory",
      "No data",
      "vGPU ECC not supported",
      "Insufficient Resources",
      "Invalid Frequency",
      "Argument version mismatch",
      "Requested functionality has been deprecated",
      "System is not in ready state",
      "No supported GPUs were found",
      "Resource not in correct state to perform requested operation",
  };

  if (result < 0 || (size_t)result >= sizeof texts / sizeof *texts) return "Unknown Error";
  return texts[result];
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  int result;
  struct vgpu_nvml *nvml = vgpu_nvml_enter(&result);

  if (!nvml) return result;
  result = vgpu_nvml_text(version, size, vgpu_session_welcome(nvml->session)->nvml_version);
  vgpu_nvml_leave(nvml);
  return result;
}

/* Gives CUDA's major version and the driver's version, as the real library does, also before nvmlInit. */
int nvmlSystemGetNVMLVersion(char *version, unsigned size) {
  char text[48] = "13.580.65.06";
  int ignored;
  struct vgpu_nvml *nvml = vgpu_nvml_enter(&ignored);

  if (nvml) {
    const struct vgpu_welcome *welcome = vgpu_session_welcome(nvml->session);
    snprintf(text, sizeof text, "%d.%s", welcome->cuda_version / 1000, welcome->nvml_version);
    vgpu_nvml_leave(nvml);
  }
  return vgpu_nvml_text(version, size, text);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  int result;
  struct vgpu_nvml *nvml = vgpu_nvml_enter(&result);

  if (!nvml) return result;
  if (version) *version = vgpu_session_welcome(nvml->session)->cuda_version;
  vgpu_nvml_leave(nvml);
  return version ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

int nvmlSystemGetCudaDriverVersion(int *version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* The processes that NVML lists belong to this guest, so their names can be read here. */
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size) {
  char path[32], text[1024];
  int result = vgpu_nvml_ready();

  if (result != NVML_SUCCESS) return result;
  if (!name || size == 0) return NVML_INVALID_ARGUMENT;
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NVML_NOT_FOUND;
  ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return NVML_NOT_FOUND;
  text[got] = '\0'; /* the first of the zero-terminated arguments */
  snprintf(name, size, "%s", text);
  return NVML_SUCCESS;
}

/* nvidia-smi makes an empty set when it starts. No event can be registered (NOT_SUPPORTED). */
static const char event_set;

int nvmlEventSetCreate(void **set) {
  int result = vgpu_nvml_ready();

  if (result != NVML_SUCCESS) return result;
  if (!set) return NVML_INVALID_ARGUMENT;
  *set = (void *)(uintptr_t)&event_set;
  return NVML_SUCCESS;
}

int nvmlEventSetFree(void *set) {
  int result = vgpu_nvml_ready();

  if (result != NVML_SUCCESS) return result;
  return set == &event_set ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

/*
 * nvidia-smi requests this table, but works without its functions, whose signatures are not known. All
 * entries return an error, except the list of processes, which is empty.
 */
typedef int (*refusal)(void);

static int refused(void) {
  vgpu_refused("a function of NVML's internal table");
  return NVML_NOT_SUPPORTED;
}

/* nvidia-smi's list of compute processes. The layout of its entries is not known. */
static int list_processes(void *device, unsigned *count, void *entries) {
  unsigned found = 0;
  int result = nvmlDeviceGetComputeRunningProcesses_v3(device, &found, NULL);

  (void)entries;
  if (result == NVML_SUCCESS && count) *count = 0;
  return result == NVML_SUCCESS && count ? NVML_SUCCESS : refused();
}

enum { TABLE_SLOTS = 251 }; /* size in driver 550; 245 in driver 535 */

union slot {
  uintptr_t size;
  refusal call;
  int (*processes)(void *device, unsigned *count, void *entries);
};

#define FOUR                                                                                                 \
  {.call = refused}, {.call = refused}, {.call = refused}, {                                                 \
    .call = refused                                                                                          \
  }
#define SIXTEEN FOUR, FOUR, FOUR, FOUR
#define SIXTY_FOUR SIXTEEN, SIXTEEN, SIXTEEN, SIXTEEN
static const union slot internal_table[TABLE_SLOTS] = {
    {.size = sizeof internal_table},
    {.size = 0}, /* empty in the real library too */
    {.size = 0},
    SIXTY_FOUR,
    SIXTY_FOUR,
    SIXTY_FOUR,
    SIXTEEN,
    {.call = refused},
    {.call = refused},
    {.processes = list_processes}, /* 213 */
    {.call = refused},
    FOUR,
    FOUR,
    FOUR,
    SIXTEEN,
    FOUR,
    FOUR,
};
_Static_assert(3 + 3 * 64 + 16 + 4 + 3 * 4 + 16 + 2 * 4 == TABLE_SLOTS, "every slot is filled");

int nvmlInternalGetExportTable(const void **table, const unsigned char uuid[16]) {
  static const unsigned char known[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                          0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};

  if (!table || !uuid) return NVML_INVALID_ARGUMENT;
  if (memcmp(uuid, known, sizeof known) != 0) {
    *table = NULL;
    return NVML_FUNCTION_NOT_FOUND;
  }
  *table = internal_table;
  return NVML_SUCCESS;
}
