/*
 * NVML's getters of a simulated GPU: the answers of a healthy GPU of its kind (model: an H100 with driver
 * 580). Not supported are values that only a real device has: sensors, serial and part numbers, firmware.
 */
#include <string.h>
#include <time.h>

#include "api/device_attributes.h"
#include "host/backend/software/profile/profile.h"
#include "host/backend/software/software.h"
#include "host/session/query.h"
#include "nvml_queries.h"

#define ENABLED 1u
/* nvmlClockType_t */
enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO, CLOCKS };
/* nvmlClockId_t */
enum { CLOCK_ID_CURRENT, CLOCK_ID_TARGET, CLOCK_ID_DEFAULT, CLOCK_ID_BOOST };
/* nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t */
enum { P2P_NVLINK = 2, P2P_OK = 0, P2P_NOT_SUPPORTED = 5 };
/* Clocks of an idle H100, MHz. */
#define IDLE_CLOCK 345u
#define IDLE_VIDEO_CLOCK 765u
#define SAMPLING_PERIOD_US 20000u
#define MIB ((uint64_t)1 << 20)

struct asked {
  struct vgpu_worker *worker;
  const struct vgpu_device_profile *profile;
  const uint64_t *values;
};

static int32_t put(const struct asked *asked, uint32_t i, uint32_t value) {
  memcpy((void *)(uintptr_t)asked->values[i], &value, sizeof value);
  return VGPU_NVML_SUCCESS;
}

static int32_t put_words(const struct asked *asked, uint32_t i, const uint64_t *words, size_t count) {
  memcpy((void *)(uintptr_t)asked->values[i], words, count * sizeof *words);
  return VGPU_NVML_SUCCESS;
}

static int32_t put_known(const struct asked *asked, uint32_t i, uint32_t value) {
  return value == 0 ? VGPU_NVML_NOT_SUPPORTED : put(asked, i, value);
}

/* The memory is already zero. */
static int32_t zeros_if(bool has) {
  return has ? VGPU_NVML_SUCCESS : VGPU_NVML_NOT_SUPPORTED;
}

/* Writes a list with one element. `count` is the parameter that has the list's count. */
static int32_t put_list(const struct asked *asked, uint32_t count, uint32_t items, uint32_t value) {
  uint32_t capacity;
  memcpy(&capacity, (const void *)(uintptr_t)asked->values[count], sizeof capacity);
  put(asked, count, 1);
  return capacity < 1 || asked->values[items] == 0 ? VGPU_NVML_INSUFFICIENT_SIZE : put(asked, items, value);
}

static uint32_t compute(const struct asked *asked) {
  return asked->profile->compute_major * 10 + asked->profile->compute_minor;
}

static uint32_t attribute(const struct asked *asked, unsigned number) {
  return (uint32_t)asked->profile->attributes[number];
}

static bool has_ecc(const struct asked *asked) {
  return attribute(asked, VGPU_ATTRIBUTE_ECC_ENABLED) == 1;
}

static bool remaps_rows(const struct asked *asked) {
  return has_ecc(asked) && compute(asked) >= 80;
}

static bool can_be_divided(const struct asked *asked) {
  return compute(asked) == 80 || compute(asked) == 90 || compute(asked) == 100;
}

static uint32_t cores_of_multiprocessor(uint32_t compute) {
  return compute == 60 || (compute >= 70 && compute <= 80) ? 64 : 128;
}

static uint32_t pcie_generation(const struct asked *asked) {
  return compute(asked) >= 90 ? 5 : compute(asked) >= 80 ? 4 : 3;
}

static bool is_busy(const struct asked *asked) {
  return vgpu_software_load(asked->worker) > 0;
}

static uint32_t most_of_clock(const struct asked *asked, uint64_t type) {
  const uint32_t graphics = attribute(asked, VGPU_ATTRIBUTE_CLOCK_RATE) / 1000;
  if (type == CLOCK_MEMORY) return attribute(asked, VGPU_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000;
  return type == CLOCK_VIDEO ? graphics * 1545 / 1980 : graphics; /* the ratio of an H100 */
}

static int32_t put_clock(const struct asked *asked, uint32_t i, uint32_t id) {
  const uint64_t type = asked->values[0];
  if (type >= CLOCKS || id > CLOCK_ID_BOOST) return VGPU_NVML_INVALID_ARGUMENT;
  uint32_t mhz = most_of_clock(asked, type);
  if (id != CLOCK_ID_CURRENT && type == CLOCK_VIDEO) return VGPU_NVML_NOT_SUPPORTED;
  if (id == CLOCK_ID_BOOST && type == CLOCK_MEMORY) return VGPU_NVML_NOT_SUPPORTED;
  if (id == CLOCK_ID_CURRENT && type != CLOCK_MEMORY && !is_busy(asked)) {
    uint32_t idle = type == CLOCK_VIDEO ? IDLE_VIDEO_CLOCK : IDLE_CLOCK;
    if (idle < mhz) mhz = idle;
  }
  return put_known(asked, i, mhz);
}

static int32_t put_bar(const struct asked *asked) {
  uint64_t total = 256 * MIB; /* the BAR without resizing */
  while (compute(asked) >= 80 && total < asked->profile->total_memory) total *= 2;
  return put_words(asked, 0, (const uint64_t[]){total, total - MIB, MIB}, 3);
}

static uint64_t microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint32_t least_power_limit(const struct asked *asked) {
  return asked->profile->power_limit / 7 * 2; /* the ratio of an H100 */
}

/* nvmlFieldValue_t */
struct field {
  uint32_t id, scope;
  int64_t timestamp, latency; /* microseconds */
  uint32_t type, result;
  uint64_t value;
};
_Static_assert(sizeof(struct field) == 40, "field");
enum { FIELD_UNSIGNED_INT = 1 };

static int32_t field_value(const struct asked *asked, uint32_t id, uint32_t *value) {
  enum { ECC_CURRENT = 1, ECC_PENDING = 2, NVLINKS = 91, REPLAYS = 94, ROLLOVERS = 95, RECOVERY = 230 };
  enum { REMAPPED_CORRECTABLE = 142, REMAPPED_FAILURE = 145 };
  enum { AVERAGE = 185, INSTANT, LEAST_LIMIT, MOST_LIMIT, DEFAULT_LIMIT, CURRENT_LIMIT };
  enum { REQUESTED_LIMIT = 192 };
  const struct vgpu_device_profile *profile = asked->profile;
  switch (id) {
    case ECC_CURRENT:
    case ECC_PENDING:
      *value = has_ecc(asked);
      return VGPU_NVML_SUCCESS;
    case NVLINKS:
    case REPLAYS:
    case ROLLOVERS:
    case RECOVERY:
      return VGPU_NVML_SUCCESS;
    case AVERAGE:
    case INSTANT:
      *value = profile->power;
      break;
    case LEAST_LIMIT:
      *value = least_power_limit(asked);
      break;
    case MOST_LIMIT:
    case DEFAULT_LIMIT:
    case CURRENT_LIMIT:
    case REQUESTED_LIMIT:
      *value = profile->power_limit;
      break;
    default:
      return zeros_if(id >= REMAPPED_CORRECTABLE && id <= REMAPPED_FAILURE && remaps_rows(asked));
  }
  return *value == 0 ? VGPU_NVML_NOT_SUPPORTED : VGPU_NVML_SUCCESS;
}

/* Each field has its own result. */
static int32_t put_fields(const struct asked *asked) {
  const int32_t count = (int32_t)asked->values[0];
  unsigned char *at = (unsigned char *)(uintptr_t)asked->values[1];
  if (count < 1) return VGPU_NVML_INVALID_ARGUMENT;
  const uint64_t now = microseconds();
  for (int32_t i = 0; i < count; i++, at += sizeof(struct field)) {
    struct field field;
    uint32_t value = 0;
    memcpy(&field, at, sizeof field);
    field.timestamp = (int64_t)now;
    field.latency = 0;
    field.type = FIELD_UNSIGNED_INT;
    field.result = (uint32_t)field_value(asked, field.id, &value);
    field.value = field.result == VGPU_NVML_SUCCESS ? value : 0;
    memcpy(at, &field, sizeof field);
  }
  return VGPU_NVML_SUCCESS;
}

/* One state, then the end of the list. */
static int32_t put_states(const struct asked *asked) {
  enum { UNKNOWN = 32 };
  const uint64_t count = asked->values[1] / sizeof(uint32_t);
  for (uint64_t i = 1; i < count; i++) {
    const uint32_t end = UNKNOWN;
    memcpy((unsigned char *)(uintptr_t)asked->values[0] + i * sizeof end, &end, sizeof end);
  }
  return count > 0 ? VGPU_NVML_SUCCESS : VGPU_NVML_INSUFFICIENT_SIZE;
}

static int32_t answer(const struct asked *asked, uint32_t number) {
  const struct vgpu_device_profile *profile = asked->profile;
  const uint64_t *values = asked->values;
  enum { BUS_PCIE = 2, NODE = 40, IDLE = 1, EVENT_REASONS = 0x1ff, PENDING_BUFFER = 4000, BANKS = 2560 };
  switch (number) {
    case VGPU_QUERY_nvmlDeviceGetApplicationsClock:
      return put_clock(asked, 1, CLOCK_ID_TARGET);
    case VGPU_QUERY_nvmlDeviceGetDefaultApplicationsClock:
      return put_clock(asked, 1, CLOCK_ID_DEFAULT);
    case VGPU_QUERY_nvmlDeviceGetMaxCustomerBoostClock:
      return put_clock(asked, 1, CLOCK_ID_BOOST);
    case VGPU_QUERY_nvmlDeviceGetClockInfo:
      return put_clock(asked, 1, CLOCK_ID_CURRENT);
    case VGPU_QUERY_nvmlDeviceGetClock:
      return put_clock(asked, 2, (uint32_t)values[1]);
    case VGPU_QUERY_nvmlDeviceGetMaxClockInfo:
      return values[0] < CLOCKS ? put_known(asked, 1, most_of_clock(asked, values[0]))
                                : VGPU_NVML_INVALID_ARGUMENT;
    case VGPU_QUERY_nvmlDeviceGetSupportedMemoryClocks:
      return put_list(asked, 0, 1, most_of_clock(asked, CLOCK_MEMORY));
    case VGPU_QUERY_nvmlDeviceGetSupportedGraphicsClocks:
      return values[0] == most_of_clock(asked, CLOCK_MEMORY)
                 ? put_list(asked, 1, 2, most_of_clock(asked, CLOCK_GRAPHICS))
                 : VGPU_NVML_NOT_FOUND;
    case VGPU_QUERY_nvmlDeviceGetCurrentClocksEventReasons:
    case VGPU_QUERY_nvmlDeviceGetCurrentClocksThrottleReasons:
      return put_words(asked, 0, (const uint64_t[]){is_busy(asked) ? 0 : IDLE}, 1);
    case VGPU_QUERY_nvmlDeviceGetSupportedClocksEventReasons:
    case VGPU_QUERY_nvmlDeviceGetSupportedClocksThrottleReasons:
      return put_words(asked, 0, (const uint64_t[]){EVENT_REASONS}, 1);
    case VGPU_QUERY_nvmlDeviceGetSupportedPerformanceStates:
      return put_states(asked);

    case VGPU_QUERY_nvmlDeviceGetCurrPcieLinkGeneration:
    case VGPU_QUERY_nvmlDeviceGetMaxPcieLinkGeneration:
    case VGPU_QUERY_nvmlDeviceGetGpuMaxPcieLinkGeneration:
    case VGPU_QUERY_nvmlDeviceGetPcieLinkMaxSpeed: /* numbered like the generations */
      return put(asked, 0, pcie_generation(asked));
    case VGPU_QUERY_nvmlDeviceGetCurrPcieLinkWidth:
    case VGPU_QUERY_nvmlDeviceGetMaxPcieLinkWidth:
      return put(asked, 0, 16);
    case VGPU_QUERY_nvmlDeviceGetPcieSpeed:
      return put(asked, 0, 1000u << pcie_generation(asked));
    case VGPU_QUERY_nvmlDeviceGetBusType:
      return put(asked, 0, BUS_PCIE);
    case VGPU_QUERY_nvmlDeviceGetBoardId:
      return put(asked, 0, profile->pci_domain << 16 | profile->pci_bus << 8 | profile->pci_device);
    case VGPU_QUERY_nvmlDeviceGetBAR1MemoryInfo:
      return put_bar(asked);
    case VGPU_QUERY_nvmlDeviceGetP2PStatus: /* equal to cuDeviceGetP2PAttribute; no NVLink */
      return put(asked, 2, asked->values[1] == P2P_NVLINK ? P2P_NOT_SUPPORTED : P2P_OK);
    case VGPU_QUERY_nvmlDeviceGetTopologyCommonAncestor:
      return put(asked, 1, NODE);

    case VGPU_QUERY_nvmlDeviceGetDecoderUtilization:
    case VGPU_QUERY_nvmlDeviceGetEncoderUtilization:
    case VGPU_QUERY_nvmlDeviceGetJpgUtilization:
    case VGPU_QUERY_nvmlDeviceGetOfaUtilization:
      return put(asked, 1, SAMPLING_PERIOD_US); /* no load */
    case VGPU_QUERY_nvmlDeviceGetNumGpuCores:
      return put(asked, 0,
                 attribute(asked, VGPU_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                     cores_of_multiprocessor(compute(asked)));
    case VGPU_QUERY_nvmlDeviceGetProcessUtilization:
      put(asked, 1, 0);
      return VGPU_NVML_NOT_FOUND; /* there are no samples */
    case VGPU_QUERY_nvmlDeviceGetViolationStatus:
      return put_words(asked, 1, (const uint64_t[]){microseconds(), 0}, 2);
    case VGPU_QUERY_nvmlDeviceGetFieldValues:
      return put_fields(asked);

    case VGPU_QUERY_nvmlDeviceGetTemperature:
      return values[0] == 0 ? put_known(asked, 1, profile->temperature) : VGPU_NVML_INVALID_ARGUMENT;
    case VGPU_QUERY_nvmlDeviceGetPowerUsage:
      return put_known(asked, 0, profile->power);
    case VGPU_QUERY_nvmlDeviceGetEnforcedPowerLimit:
    case VGPU_QUERY_nvmlDeviceGetPowerManagementLimit:
    case VGPU_QUERY_nvmlDeviceGetPowerManagementDefaultLimit:
      return put_known(asked, 0, profile->power_limit);
    case VGPU_QUERY_nvmlDeviceGetPowerManagementLimitConstraints:
      put_known(asked, 0, least_power_limit(asked));
      return put_known(asked, 1, profile->power_limit);
    case VGPU_QUERY_nvmlDeviceGetPowerManagementMode: /* nvidia-smi shows the limits only if this is on */
      return profile->power_limit == 0 ? VGPU_NVML_NOT_SUPPORTED : put(asked, 0, ENABLED);

    case VGPU_QUERY_nvmlDeviceGetDefaultEccMode:
      return put(asked, 0, has_ecc(asked));
    case VGPU_QUERY_nvmlDeviceGetTotalEccErrors:
    case VGPU_QUERY_nvmlDeviceGetMemoryErrorCounter:
    case VGPU_QUERY_nvmlDeviceGetDetailedEccErrors:
      return zeros_if(has_ecc(asked));
    case VGPU_QUERY_nvmlDeviceGetRetiredPages:
    case VGPU_QUERY_nvmlDeviceGetRetiredPages_v2:
      if (remaps_rows(asked) || !has_ecc(asked)) return VGPU_NVML_NOT_SUPPORTED;
      return put(asked, 1, 0);
    case VGPU_QUERY_nvmlDeviceGetRetiredPagesPendingStatus:
      return zeros_if(has_ecc(asked) && !remaps_rows(asked));
    case VGPU_QUERY_nvmlDeviceGetRowRemapperHistogram:
      return compute(asked) == 90 ? put(asked, 0, BANKS) : VGPU_NVML_NOT_SUPPORTED;
    case VGPU_QUERY_nvmlDeviceGetRemappedRows:
    case VGPU_QUERY_nvmlDeviceGetRemappedRows_v2:
    case VGPU_QUERY_nvmlDeviceGetRepairStatus:
    case VGPU_QUERY_nvmlDeviceGetUnrepairableMemoryFlag_v1:
    case VGPU_QUERY_nvmlDeviceGetSramEccErrorStatus:
      return zeros_if(remaps_rows(asked));
    case VGPU_QUERY_nvmlDeviceGetMigMode:
      return zeros_if(can_be_divided(asked));
    case VGPU_QUERY_nvmlDeviceGetAccountingBufferSize:
      return put(asked, 0, PENDING_BUFFER);
    case VGPU_QUERY_nvmlDeviceGetConfComputeMemSizeInfo:
      return put_words(asked, 0, (const uint64_t[]){0, profile->total_memory / 1024}, 2);

    case VGPU_QUERY_nvmlDeviceGetAccountingMode:
    case VGPU_QUERY_nvmlDeviceGetAddressingMode:
    case VGPU_QUERY_nvmlDeviceGetC2cModeInfoV:
    case VGPU_QUERY_nvmlDeviceGetCapabilities:
    case VGPU_QUERY_nvmlDeviceGetConfComputeProtectedMemoryUsage:
    case VGPU_QUERY_nvmlDeviceGetNumFans:
    case VGPU_QUERY_nvmlDeviceGetPcieReplayCounter:
    case VGPU_QUERY_nvmlDeviceGetPcieThroughput:
    case VGPU_QUERY_nvmlDeviceGetPerformanceState:
    case VGPU_QUERY_nvmlDeviceGetPersistenceMode:
    case VGPU_QUERY_nvmlDeviceGetPowerSource:
    case VGPU_QUERY_nvmlDeviceGetPowerState:
    case VGPU_QUERY_nvmlDeviceGetVirtualizationMode:
    case VGPU_QUERY_nvmlDeviceOnSameBoard:
      return VGPU_NVML_SUCCESS;
    default:
      return VGPU_NVML_NOT_SUPPORTED;
  }
}

int32_t vgpu_software_query(struct vgpu_worker *worker, const struct vgpu_query *query, uint32_t device,
                            const uint64_t *values) {
  const struct asked asked = {worker, &worker->inventory->profiles->devices[device], values};
  return answer(&asked, query->number);
}
