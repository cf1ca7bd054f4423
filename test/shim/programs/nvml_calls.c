/*
 * nvml_calls CALL...: makes the calls one after the other, and prints a line for each: its name, its result,
 * and its values. CALL is NAME or NAME:ARGUMENT; the table at the end lists them.
 */
#include "guest/nvml/nvml.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nvml_queries.h"

static char text[256];

static nvml_device device(const char *index) {
  nvml_device found = NULL;

  if (nvmlDeviceGetHandleByIndex_v2((unsigned)atoi(index), &found) != 0)
    return (nvml_device)&text; /* no handle at all */
  return found;
}

static int call_driver(const char *size) {
  return nvmlSystemGetDriverVersion(text, *size ? (unsigned)atoi(size) : sizeof text);
}

static int call_nvml(const char *ignored) {
  (void)ignored;
  return nvmlSystemGetNVMLVersion(text, sizeof text);
}

static int number(int result, long long value) {
  snprintf(text, sizeof text, "%lld", value);
  return result;
}

static int call_cuda(const char *ignored) {
  int version = -1;
  (void)ignored;
  int result = nvmlSystemGetCudaDriverVersion_v2(&version);
  return number(result, version);
}

static int call_count(const char *ignored) {
  unsigned count = 999;
  (void)ignored;
  int result = nvmlDeviceGetCount_v2(&count);
  return number(result, count);
}

static int index_of(int result, nvml_device found) {
  unsigned index = 999;
  if (result == 0) result = nvmlDeviceGetIndex(found, &index);
  return number(result, index);
}

static int call_handle(const char *index) {
  nvml_device found = NULL;
  int result = nvmlDeviceGetHandleByIndex_v2((unsigned)atoi(index), &found);
  return index_of(result, found);
}

static int call_uuid_handle(const char *uuid) {
  nvml_device found = NULL;
  int result = nvmlDeviceGetHandleByUUID(uuid, &found);
  return index_of(result, found);
}

static int call_pci_handle(const char *id) {
  nvml_device found = NULL;
  int result = nvmlDeviceGetHandleByPciBusId_v2(id, &found);
  return index_of(result, found);
}

static int call_name(const char *index) {
  const char *size = strchr(index, ',');
  return nvmlDeviceGetName(device(index), text, size ? (unsigned)atoi(size + 1) : 96);
}

static int call_uuid(const char *index) {
  return nvmlDeviceGetUUID(device(index), text, 80);
}

static int call_pci(const char *index) {
  struct nvml_pci_v3 pci;
  struct nvml_pci_v2 older, oldest;

  memset(&older, 0x55, sizeof older);
  memset(&oldest, 0x55, sizeof oldest);
  int result = nvmlDeviceGetPciInfo_v3(device(index), &pci);
  if (result || (result = nvmlDeviceGetPciInfo_v2(device(index), &older)) ||
      (result = nvmlDeviceGetPciInfo(device(index), &oldest)))
    return result;
  snprintf(text, sizeof text, "%s %s %x:%x:%x %08x %08x | %s %08x | %s %08x", pci.bus_id, pci.bus_id_legacy,
           pci.domain, pci.bus, pci.device, pci.pci_device_id, pci.pci_subsystem_id, older.bus_id,
           older.pci_subsystem_id, oldest.bus_id, oldest.pci_subsystem_id);
  return 0;
}

static int call_pci_ext(const char *index) {
  struct nvml_pci_ext_v1 pci = {.version = NVML_STRUCT_VERSION(struct nvml_pci_ext_v1, 1)};
  int result = nvmlDeviceGetPciInfoExt(device(index), &pci);
  if (result == 0)
    snprintf(text, sizeof text, "%s %08x %08x %x", pci.bus_id, pci.pci_device_id, pci.pci_subsystem_id,
             pci.base_class);
  pci.version = 1;
  return result ? result : nvmlDeviceGetPciInfoExt(device(index), &pci) == 25 ? 0 : -1;
}

static int call_memory(const char *index) {
  struct nvml_memory_v1 first;
  struct nvml_memory_v2 second = {.version = NVML_STRUCT_VERSION(struct nvml_memory_v2, 2)};
  int result = nvmlDeviceGetMemoryInfo(device(index), &first);
  if (result == 0) result = nvmlDeviceGetMemoryInfo_v2(device(index), &second);
  if (result == 0)
    snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 " %" PRIu64 " | %" PRIu64 " %" PRIu64 " %" PRIu64,
             first.total, first.used, first.free, second.total, second.used, second.free);
  second.version = 1;
  return result ? result : nvmlDeviceGetMemoryInfo_v2(device(index), &second) == 25 ? 0 : -1;
}

static int call_load(const char *index) {
  struct nvml_utilization rates;
  int result = nvmlDeviceGetUtilizationRates(device(index), &rates);
  if (result == 0) snprintf(text, sizeof text, "%u %u", rates.gpu, rates.memory);
  return result;
}

static int call_processes(const char *index) {
  const char *size = strchr(index, ',');
  unsigned count = size ? (unsigned)atoi(size + 1) : 8;
  struct nvml_process_v2 list[8];
  struct nvml_process_v1 old[8];
  unsigned same = count;

  int result = nvmlDeviceGetComputeRunningProcesses_v3(device(index), &count, count ? list : NULL);
  int older = nvmlDeviceGetComputeRunningProcesses(device(index), &same, same ? old : NULL);
  if (result != older || count != same) return -1;
  char *at = text + snprintf(text, sizeof text, "%u", count);
  for (unsigned i = 0; result == 0 && i < count; i++) {
    if (list[i].pid != old[i].pid || list[i].used != old[i].used) return -1;
    at += snprintf(at, sizeof text - (size_t)(at - text), " %u=%" PRIu64, list[i].pid, list[i].used);
  }
  return result;
}

/* The list with details and the utilization. If a list is too short, the call returns only its length. */
static int call_details(const char *index) {
  struct nvml_process_detail processes[4];
  struct nvml_process_details_v1 list = {.version = NVML_STRUCT_VERSION(list, 1), .mode = 3};
  struct nvml_process_loads_v1 loads = {.version = NVML_STRUCT_VERSION(loads, 1)};
  int result = nvmlDeviceGetRunningProcessDetailList(device(index), &list);
  char *at = text + snprintf(text, sizeof text, "%d %u", result, list.count);
  list.processes = processes;
  result = nvmlDeviceGetRunningProcessDetailList(device(index), &list);
  for (unsigned i = 0; result == 0 && i < list.count; i++)
    at +=
        snprintf(at, sizeof text - (size_t)(at - text), " %u=%" PRIu64, processes[i].pid, processes[i].used);
  list.mode = 1;
  int graphics = nvmlDeviceGetRunningProcessDetailList(device(index), &list);
  at += snprintf(at, sizeof text - (size_t)(at - text), " | %d %u", graphics, list.count);
  list.mode = 4;
  at += snprintf(at, sizeof text - (size_t)(at - text), " | %d",
                 nvmlDeviceGetRunningProcessDetailList(device(index), &list));
  list.version = 1;
  snprintf(at, sizeof text - (size_t)(at - text), " %d %d %d",
           nvmlDeviceGetRunningProcessDetailList(device(index), &list),
           nvmlDeviceGetRunningProcessDetailList(device(index), NULL),
           nvmlDeviceGetProcessesUtilizationInfo(device(index), &loads));
  return result;
}

/* Finds this process in the list, and prints its use of multiprocessors, memory, encoder and OFA. */
static int call_loads(const char *index) {
  struct nvml_process_load processes[4];
  struct nvml_process_loads_v1 list = {.version = NVML_STRUCT_VERSION(list, 1), .since = 1000};
  if (nvmlDeviceGetProcessesUtilizationInfo(device(index), &list) != 7 || list.count != 1) return -1;
  list.processes = processes;
  int result = nvmlDeviceGetProcessesUtilizationInfo(device(index), &list);
  const uint32_t *of = processes[0].of;
  if (result == 0)
    snprintf(text, sizeof text, "%d %u %u %u %u",
             processes[0].pid == (unsigned)getpid() && processes[0].time == 1001, of[0], of[1], of[2], of[5]);
  return result;
}

typedef int (*one_number)(nvml_device, unsigned *);

static int call_number(const char *what) {
  static const struct {
    const char *name;
    one_number call;
  } calls[] = {
      {"minor", nvmlDeviceGetMinorNumber},
      {"brand", (one_number)nvmlDeviceGetBrand},
      {"architecture", nvmlDeviceGetArchitecture},
      {"bus", nvmlDeviceGetMemoryBusWidth},
      {"compute-mode", (one_number)nvmlDeviceGetComputeMode},
      {"persistence", nvmlDeviceGetPersistenceMode},
      {"power", nvmlDeviceGetPowerUsage},
      {"limit", nvmlDeviceGetEnforcedPowerLimit},
      {"multi", nvmlDeviceGetMultiGpuBoard},
      {"mig", nvmlDeviceIsMigDeviceHandle},
  };
  unsigned value = 999;

  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    size_t length = strlen(calls[i].name);
    if (strncmp(what, calls[i].name, length) == 0 && what[length] == ',') {
      if (calls[i].call(device(what + length + 1), NULL) != 2) return -1;
      int result = calls[i].call(device(what + length + 1), &value);
      return number(result, value);
    }
  }
  return -1;
}

/* nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t and _v3_t, as NVIDIA's header lays them out. */
struct fabric_fields {
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};
struct fabric_versioned {
  unsigned version;
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health;
  unsigned char summary; /* since version 3 */
};

/* The call fills all requested fields, and writes nothing behind them. */
static int call_fabric(const char *index) {
  struct fabric_fields plain;
  struct fabric_versioned info;
  memset(&plain, 0x55, sizeof plain);
  int result = nvmlDeviceGetGpuFabricInfo(device(index), &plain);
  if (result != 0) return result;
  char *at = text + snprintf(text, sizeof text, "%d %u %u", plain.status, plain.clique, plain.state);
  for (unsigned version = 1; version <= 4; version++) {
    unsigned size = version == 2 ? 36 : 40;
    memset(&info, 0x55, sizeof info);
    info.version = size | version << 24;
    result = nvmlDeviceGetGpuFabricInfoV(device(index), &info);
    at += snprintf(at, sizeof text - (size_t)(at - text), " | %d", result);
    if (result != 0) continue;
    at += snprintf(at, sizeof text - (size_t)(at - text), " %d %u %u %u %x", info.status, info.clique,
                   info.state, info.health, info.summary);
    if (info.version != (size | version << 24)) return -1;
    for (int i = 0; i < 16; i++) {
      if (info.cluster[i] != 0 || plain.cluster[i] != 0) return -1;
    }
  }
  info.version = 36 | 3u << 24;
  return nvmlDeviceGetGpuFabricInfoV(device(index), &info) == 25 &&
                 nvmlDeviceGetGpuFabricInfoV(device(index), NULL) == 2
             ? 0
             : -1;
}

static int call_compute(const char *index) {
  int major = -1, minor = -1;
  int result = nvmlDeviceGetCudaComputeCapability(device(index), &major, &minor);
  snprintf(text, sizeof text, "%d.%d", major, minor);
  return result;
}

static int call_clocks(const char *index) {
  unsigned sm = 0, memory = 0, video = 0;
  int result = nvmlDeviceGetMaxClockInfo(device(index), 1, &sm);
  if (result == 0) result = nvmlDeviceGetMaxClockInfo(device(index), 2, &memory);
  snprintf(text, sizeof text, "%u %u %d", sm, memory, nvmlDeviceGetMaxClockInfo(device(index), 3, &video));
  return result;
}

static int call_ecc(const char *index) {
  int now = -1, later = -1;
  int result = nvmlDeviceGetEccMode(device(index), &now, &later);
  snprintf(text, sizeof text, "%d %d", now, later);
  return result;
}

static int call_fields(const char *index) {
  static const unsigned ids[] = {1, 186, 190, 9999};
  struct { /* nvmlFieldValue_t */
    uint32_t id, scope;
    int64_t timestamp, latency;
    uint32_t type, result;
    uint64_t value;
  } values[4];
  memset(values, 0x5a, sizeof values);
  for (size_t i = 0; i < 4; i++) values[i].id = ids[i];
  int result = nvmlDeviceGetFieldValues(device(index), 4, values);
  for (size_t i = 0; i < 4; i++)
    if (result != 0 && (int)values[i].result != result) return -1;
  return result;
}

static int call_affinity(const char *index) {
  unsigned long set[64];
  nvml_device found = device(index);
  memset(set, 0x5a, sizeof set);
  int result = nvmlDeviceGetCpuAffinity(found, 64, set);
  long bits = 0;
  for (size_t i = 0; i < 64; i++) bits += __builtin_popcountl(set[i]);
  bool last = set[63] == 0; /* no machine of these tests has 4,000 processors */
  snprintf(text, sizeof text, "%s, %d %d %d %d", bits == sysconf(_SC_NPROCESSORS_CONF) ? "all" : "not all",
           nvmlDeviceGetCpuAffinityWithinScope(found, 64, set, 1), last,
           nvmlDeviceGetCpuAffinityWithinScope(found, 64, set, 2), nvmlDeviceGetCpuAffinity(found, 0, set));
  return result;
}

static int call_temperature(const char *index) {
  unsigned celsius = 0;
  int result = nvmlDeviceGetTemperature(device(index), 0, &celsius);
  return number(result, celsius);
}

/* Invalid handles: each must be refused, and none may be dereferenced. */
static int call_bad_handles(const char *ignored) {
  char *first = NULL;
  int wrong = 0;
  (void)ignored;

  nvmlDeviceGetHandleByIndex_v2(0, (nvml_device *)&first);
  void *bad[] = {NULL, (void *)1, (void *)-1, text, first - 1, first + 2, first + 31, first + 4096};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    wrong += nvmlDeviceGetName(bad[i], text, sizeof text) != 2;
  return number(0, wrong);
}

static int call_table(const char *ignored) {
  static const unsigned char id[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                       0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
  const void *const *table = NULL;
  const void *other = &table;
  (void)ignored;

  int result = nvmlInternalGetExportTable((const void **)&table, id);
  if (result) return result;
  int refusals = 0;
  for (size_t i = 3; i < (size_t)table[0] / sizeof *table; i++) refusals += ((int (*)(void))table[i])() == 3;
  snprintf(text, sizeof text, "%zu %d %d %d", (size_t)table[0], table[1] == NULL && table[2] == NULL,
           refusals, nvmlInternalGetExportTable(&other, (const unsigned char *)"0123456789abcdef"));
  return other ? -1 : 0;
}

static int call_null(const char *ignored) {
  int right = 0;
  (void)ignored;

  right += nvmlSystemGetDriverVersion(NULL, 10) == 2;
  right += nvmlSystemGetCudaDriverVersion(NULL) == 2;
  right += nvmlDeviceGetCount_v2(NULL) == 2;
  right += nvmlDeviceGetHandleByIndex_v2(0, NULL) == 2;
  right += nvmlDeviceGetHandleByUUID(NULL, (nvml_device *)&text) == 2;
  right += nvmlDeviceGetHandleByUUID("GPU-", NULL) == 2;
  right += nvmlDeviceGetHandleByPciBusId_v2(NULL, (nvml_device *)&text) == 2;
  right += nvmlDeviceGetName(device("0"), NULL, 96) == 2;
  right += nvmlDeviceGetPciInfo_v3(device("0"), NULL) == 2;
  right += nvmlDeviceGetMemoryInfo(device("0"), NULL) == 2;
  right += nvmlDeviceGetMemoryInfo_v2(device("0"), NULL) == 2;
  right += nvmlDeviceGetUtilizationRates(device("0"), NULL) == 2;
  right += nvmlDeviceGetComputeRunningProcesses_v3(device("0"), NULL, NULL) == 2;
  right += nvmlDeviceGetTemperature(device("0"), 0, NULL) == 2;
  right += nvmlDeviceGetCudaComputeCapability(device("0"), NULL, (int *)text) == 2;
  return number(0, right);
}

static int call_error(const char *code) {
  snprintf(text, sizeof text, "%s", nvmlErrorString(atoi(code)));
  return 0;
}

static int call_init(const char *ignored) {
  (void)ignored;
  return nvmlInit_v2();
}

static int call_shutdown(const char *ignored) {
  (void)ignored;
  return nvmlShutdown();
}

static int call_sleep(const char *milliseconds) {
  usleep((unsigned)atoi(milliseconds) * 1000);
  return 0;
}

/* Prints "ready" and waits for a line on stdin, while the test changes the host. */
static int call_wait(const char *ignored) {
  char line[8];
  (void)ignored;
  printf("ready\n");
  fflush(stdout);
  return fgets(line, sizeof line, stdin) ? 0 : -1;
}

/* A child is uninitialised until it initialises NVML itself. Then it works like its parent. */
static int call_fork(const char *ignored) {
  int status = -1;
  unsigned count = 0;
  (void)ignored;

  pid_t pid = fork();
  if (pid == 0) {
    if (nvmlDeviceGetCount_v2(&count) != 1) _exit(2);
    if (nvmlInit_v2() != 0 || nvmlDeviceGetCount_v2(&count) != 0) _exit(3);
    _exit(nvmlShutdown() == 0 ? 100 + (int)count : 4);
  }
  waitpid(pid, &status, 0);
  return number(0, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void *thread(void *argument) {
  struct nvml_memory_v1 memory;
  long wrong = 0;
  char name[96];
  (void)argument;

  for (int i = 0; i < 200; i++) {
    wrong += nvmlInit_v2() != 0;
    wrong += nvmlDeviceGetMemoryInfo(device("0"), &memory) != 0;
    wrong += nvmlDeviceGetName(device("1"), name, sizeof name) != 0;
    wrong += nvmlShutdown() != 0;
  }
  return (void *)wrong;
}

static int call_threads(const char *count) {
  pthread_t all[16];
  long wrong = 0;
  int wanted = atoi(count);

  for (int i = 0; i < wanted && i < 16; i++) pthread_create(&all[i], NULL, thread, NULL);
  for (int i = 0; i < wanted && i < 16; i++) {
    void *result;
    pthread_join(all[i], &result);
    wrong += (long)result;
  }
  return number(0, wrong);
}

static pthread_t beside;
static int beside_result;
static _Atomic int beside_ended;

static void *ask_beside(void *index) {
  struct nvml_memory_v1 memory;
  nvml_device found = NULL;

  beside_result = nvmlDeviceGetHandleByIndex_v2((unsigned)atoi(index), &found);
  if (beside_result == 0) beside_result = nvmlDeviceGetMemoryInfo(found, &memory);
  beside_ended = 1;
  return NULL;
}

/* Queries the used memory in a second thread, while the program continues. */
static int call_begin(const char *index) {
  beside_ended = 0;
  return pthread_create(&beside, NULL, ask_beside, (void *)(uintptr_t)index);
}

/* 1: the second thread's call has ended. */
static int call_ended(const char *ignored) {
  (void)ignored;
  return number(0, beside_ended);
}

/* The result of the second thread's call. */
static int call_join(const char *ignored) {
  (void)ignored;
  pthread_join(beside, NULL);
  return beside_result;
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int (*call)(const char *argument);
  } calls[] = {
      {"init", call_init},
      {"shutdown", call_shutdown},
      {"driver", call_driver},
      {"nvml", call_nvml},
      {"cuda", call_cuda},
      {"count", call_count},
      {"handle", call_handle},
      {"by-uuid", call_uuid_handle},
      {"by-pci", call_pci_handle},
      {"name", call_name},
      {"uuid", call_uuid},
      {"pci", call_pci},
      {"pci-ext", call_pci_ext},
      {"memory", call_memory},
      {"load", call_load},
      {"processes", call_processes},
      {"details", call_details},
      {"loads", call_loads},
      {"number", call_number},
      {"compute", call_compute},
      {"fabric", call_fabric},
      {"clocks", call_clocks},
      {"ecc", call_ecc},
      {"fields", call_fields},
      {"affinity", call_affinity},
      {"temperature", call_temperature},
      {"bad-handles", call_bad_handles},
      {"table", call_table},
      {"null", call_null},
      {"error", call_error},
      {"sleep", call_sleep},
      {"wait", call_wait},
      {"fork", call_fork},
      {"threads", call_threads},
      {"begin", call_begin},
      {"ended", call_ended},
      {"join", call_join},
  };

  for (int i = 1; i < argc; i++) {
    const char *colon = strchr(argv[i], ':');
    size_t length = colon ? (size_t)(colon - argv[i]) : strlen(argv[i]);
    size_t at = 0;
    while (at < sizeof calls / sizeof *calls &&
           (strlen(calls[at].name) != length || strncmp(calls[at].name, argv[i], length) != 0))
      at++;
    if (at == sizeof calls / sizeof *calls) return 2;
    text[0] = '\0';
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    int result = calls[at].call(colon ? colon + 1 : "");
    clock_gettime(CLOCK_MONOTONIC, &after);
    long spent = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    printf("%s\t%d\t%ld\t%s\n", argv[i], result, spent, result == 0 ? text : "");
    fflush(stdout);
  }
  return 0;
}
