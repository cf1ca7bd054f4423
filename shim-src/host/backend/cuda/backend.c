/*
 * The host's GPU as a backend: its facts and its use. The daemon never initialises the driver itself, because
 * CUDA does not survive fork(). A child process asks the driver and ends.
 */
#include "host/backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_calls.h"
#include "host/backend/cuda/device_files.h"
#include "host/backend/cuda/driver.h"
#include "host/backend/cuda/filter.h"
#include "host/backend/cuda/graph.h"
#include "host/backend/cuda/load.h"
#include "host/backend/cuda/managed.h"
#include "host/backend/cuda/nvml.h"
#include "host/backend/cuda/pool.h"
#include "host/backend/cuda/self_check.h"
#include "host/backend/cuda/session.h"
#include "host/backend/cuda/resources.h"
#include "host/backend/cuda/slice.h"
#include "host/log.h"
#include "host/session/worker.h"
#include "wire/clock.h"
#include "wire/uuid.h"

#define EXIT_NO_GPU 3
#define INVENTORY_LIMIT_S 60 /* the first cuInit of a machine may load the kernel driver */
#define REFUSAL_MS 100       /* least time between NVML queries for refusals while nothing changes */
#define PCI_BUS 33
#define PCI_DEVICE 34
#define PCI_DOMAIN 50
#define COMPUTE_MAJOR 75
#define COMPUTE_MINOR 76

struct answer {
  bool done;
  int status;
  char error[512];
  struct vgpu_inventory inventory;
};

static bool ends_in(const char *text, const char *suffix) {
  size_t length = strlen(text), tail = strlen(suffix);
  return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

static uint32_t attribute(const struct vgpu_device_facts *facts, unsigned number) {
  return (uint32_t)facts->attributes[number];
}

static int describe_device(const struct vgpu_driver_api *api, int ordinal, struct vgpu_device_facts *facts) {
  int32_t device;
  size_t total = 0;
  int result = VGPU_DRIVER(api, cuDeviceGet, &device, ordinal);
  if (result == 0) result = VGPU_DRIVER(api, cuDeviceGetName, facts->name, sizeof facts->name, device);
  if (result == 0) result = VGPU_DRIVER(api, cuDeviceTotalMem_v2, &total, device);
  if (result != 0) return result;
  facts->name[sizeof facts->name - 1] = '\0';
  facts->total_memory = total;
  result = vgpu_cuda_uuid(api, device, facts->uuid);
  if (result != 0) return result;
  for (int i = 1; i < (int)VGPU_ATTRIBUTES_MAX; i++) {
    if (VGPU_DRIVER(api, cuDeviceGetAttribute, &facts->attributes[i], i, device) != 0) continue;
    facts->attribute_known[i / 8] = (uint8_t)(facts->attribute_known[i / 8] | 1u << i % 8);
  }
  facts->pci_bus = attribute(facts, PCI_BUS);
  facts->pci_device = attribute(facts, PCI_DEVICE);
  facts->pci_domain = attribute(facts, PCI_DOMAIN);
  facts->compute_major = attribute(facts, COMPUTE_MAJOR);
  facts->compute_minor = attribute(facts, COMPUTE_MINOR);
  /*
   * The driver that this host opened may be a shim with a software device behind it. Then the device here is
   * simulated, too.
   */
  facts->simulated = ends_in(facts->name, " (simulated)");
  return 0;
}

static int fail(struct answer *answer, int status, const char *library, const char *step,
                const struct vgpu_driver_api *api, int code) {
  const char *name = NULL;
  if (api->cuGetErrorName == NULL || api->cuGetErrorName(code, &name) != 0) name = NULL;
  snprintf(answer->error, sizeof answer->error, "%s: %s failed with %d (%s)%s", library, step, code,
           name == NULL ? "unknown" : name,
           code == CUDA_ERROR_NO_DEVICE ? "; the driver is there, but it sees no GPU on this machine"
           : code == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
               ? "; libcuda and the kernel's driver are of different versions: reboot"
           : code == CUDA_ERROR_UNKNOWN ? "; see the kernel's log for nvidia"
                                        : "");
  return status;
}

/* An older driver does not report the parameters of a kernel (cuFuncGetParamInfo), so it could launch none.
 */
static int refuse_old(struct answer *answer, const char *library, int version) {
  const char *driver = answer->inventory.nvml_version;
  snprintf(
      answer->error, sizeof answer->error,
      "%s: the driver%s%s is of CUDA %d.%d, and vgpu-hostd needs CUDA %d.%d: install driver 550 or newer",
      library, *driver == '\0' ? "" : " ", driver, version / 1000, version % 1000 / 10,
      VGPU_CUDA_OLDEST / 1000, VGPU_CUDA_OLDEST % 1000 / 10);
  return EXIT_NO_GPU;
}

/* Adds all devices that the driver shows this process to the inventory. Returns 0, or an exit status. */
static int ask_driver(const struct vgpu_options *options, struct answer *answer) {
  struct vgpu_driver_api api;
  char error[400];
  if (!vgpu_driver_load(options->cuda_library, &api, error, sizeof error)) {
    snprintf(answer->error, sizeof answer->error, "no CUDA driver: %s", error);
    return EXIT_NO_GPU;
  }
  const char *library = options->cuda_library;
  struct vgpu_inventory *inventory = &answer->inventory;
  int count = 0;
  int version = 0;
  /* The driver reports its version even without a GPU. */
  if (api.cuDriverGetVersion(&version) == 0 && version < VGPU_CUDA_OLDEST)
    return refuse_old(answer, library, version);
  int result = api.cuInit(0);
  if (result != 0) return fail(answer, EXIT_NO_GPU, library, "cuInit", &api, result);
  result = api.cuDriverGetVersion(&inventory->cuda_version);
  if (result != 0) return fail(answer, 1, library, "cuDriverGetVersion", &api, result);
  result = api.cuDeviceGetCount(&count);
  if (result != 0) return fail(answer, 1, library, "cuDeviceGetCount", &api, result);
  for (int i = 0; i < count && inventory->count < VGPU_DEVICES_MAX; i++) {
    result = describe_device(&api, i, &inventory->devices[inventory->count]);
    if (result != 0) return fail(answer, 1, library, "asking what a device is", &api, result);
    if (inventory->devices[inventory->count].simulated) inventory->simulated = true;
    inventory->count++;
  }
  return 0;
}

/* Waits until `deadline` for a child that queries the driver. Returns its exit status. */
static int await(pid_t child, int64_t deadline, struct answer *answer) {
  int status;
  pid_t ended;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0 && vgpu_now_ms() < deadline) {
    struct timespec nap = {.tv_nsec = 5000000};
    nanosleep(&nap, NULL);
  }
  if (ended == 0) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    snprintf(answer->error, sizeof answer->error, "the driver did not answer within %d s", INVENTORY_LIMIT_S);
    return 1;
  }
  if (answer->done) return answer->status;
  snprintf(answer->error, sizeof answer->error, "the driver ended the process that asked it (%s %d)",
           WIFSIGNALED(status) ? "signal" : "status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return 1;
}

static struct answer *make_answers(uint32_t count) {
  void *answers =
      mmap(NULL, count * sizeof(struct answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return answers == MAP_FAILED ? NULL : answers;
}

/* Starts a child that queries the driver about one part. -1: it could not be started. */
static pid_t start_asking(const struct vgpu_options *options, const struct vgpu_nvml_part *part,
                          struct answer *answer) {
  pid_t child = fork();
  if (child != 0) return child;
  setenv("CUDA_VISIBLE_DEVICES", part->uuid, 1);
  answer->status = ask_driver(options, answer);
  answer->done = true;
  _exit(0);
}

/* Adds the answer about a part to the inventory. Returns an exit status. */
static int add_part(const struct vgpu_nvml_part *part, const struct answer *found, struct answer *answer) {
  struct vgpu_inventory *inventory = &answer->inventory;
  inventory->cuda_version = found->inventory.cuda_version;
  inventory->simulated |= found->inventory.simulated;
  for (uint32_t i = 0; i < found->inventory.count && inventory->count < VGPU_DEVICES_MAX; i++) {
    uint32_t at = inventory->count++;
    inventory->devices[at] = found->inventory.devices[i];
    inventory->is_part[at] = strncmp(part->uuid, "MIG-", 4) == 0;
    inventory->minor[at] = part->minor;
  }
  return 0;
}

/*
 * With MIG the driver shows a process only one instance. So a separate process is started for each instance,
 * and sees only that one. They run side by side: each cuInit takes seconds.
 */
static int ask_about_parts(const struct vgpu_options *options, const struct vgpu_nvml_part *parts,
                           uint32_t count, struct answer *answer) {
  pid_t children[VGPU_DEVICES_MAX];
  struct answer *answers = make_answers(count);
  if (answers == NULL) return 1;
  for (uint32_t i = 0; i < count; i++) {
    memcpy(answers[i].inventory.nvml_version, answer->inventory.nvml_version,
           sizeof answer->inventory.nvml_version);
    children[i] = start_asking(options, &parts[i], &answers[i]);
  }
  const int64_t deadline = vgpu_now_ms() + INVENTORY_LIMIT_S * 1000;
  int result = 0;
  for (uint32_t i = 0; i < count; i++) {
    int status = children[i] < 0 ? 1 : await(children[i], deadline, &answers[i]);
    if (status == 0 && result == 0) status = add_part(&parts[i], &answers[i], answer);
    if (status == 0 || result != 0) continue;
    result = status;
    snprintf(answer->error, sizeof answer->error, "%.80s: %.400s", parts[i].uuid, answers[i].error);
  }
  munmap(answers, count * sizeof *answers);
  return result;
}

/* Runs in a child that ends afterwards. NVML first: it lists instances that the driver would not show. */
static int ask(const struct vgpu_options *options, struct answer *answer) {
  struct vgpu_inventory *inventory = &answer->inventory;
  struct vgpu_nvml_part parts[VGPU_DEVICES_MAX];
  vgpu_cuda_nvml_version(options->nvml_library, inventory->nvml_version, sizeof inventory->nvml_version);
  /* If the administrator has set the variable, the choice is made already. */
  uint32_t count = getenv("CUDA_VISIBLE_DEVICES") != NULL
                       ? 0
                       : vgpu_cuda_nvml_parts(options->nvml_library, parts, VGPU_DEVICES_MAX);
  int status = count == 0 ? ask_driver(options, answer) : ask_about_parts(options, parts, count, answer);
  if (status != 0) return status;
  if (inventory->count == 0) {
    snprintf(answer->error, sizeof answer->error, "%s: no GPU is visible (CUDA_VISIBLE_DEVICES?)",
             options->cuda_library);
    return EXIT_NO_GPU;
  }
  for (uint32_t i = 0; count == 0 && i < inventory->count; i++)
    inventory->minor[i] = vgpu_cuda_nvml_minor(options->nvml_library, &inventory->devices[i]);
  return 0;
}

/* Logs a compute mode in which the driver refuses sessions, before the first session. */
static void tell_modes(const struct vgpu_inventory *inventory) {
  for (uint32_t i = 0; i < inventory->count; i++) {
    uint32_t mode = attribute(&inventory->devices[i], VGPU_ATTRIBUTE_COMPUTE_MODE);
    if (mode != VGPU_CUDA_EXCLUSIVE_PROCESS && mode != VGPU_CUDA_PROHIBITED) continue;
    vgpu_host_log("device", 0, "device %u is in compute mode %s: %s; nvidia-smi -c DEFAULT changes it", i,
                  mode == VGPU_CUDA_PROHIBITED ? "Prohibited" : "Exclusive_Process",
                  mode == VGPU_CUDA_PROHIBITED ? "no session can use it"
                                               : "only one session at a time can use it");
  }
}

static int take_inventory(const struct vgpu_options *options, struct vgpu_inventory *inventory) {
  struct answer *answer = make_answers(1);
  if (answer == NULL) return 1;
  answer->inventory = *inventory;
  pid_t child = fork();
  if (child == 0) {
    answer->status = ask(options, answer);
    answer->done = true;
    _exit(0); /* not exit(): the driver's own exit handlers are not needed */
  }
  int status = 1;
  /* Longer than the processes that this one may start. */
  if (child > 0) status = await(child, vgpu_now_ms() + (INVENTORY_LIMIT_S + 2) * 1000, answer);
  else snprintf(answer->error, sizeof answer->error, "fork failed");
  if (status != 0) {
    vgpu_host_log("error", 0, "%s", answer->error);
  } else {
    *inventory = answer->inventory;
    tell_modes(inventory);
    if (!vgpu_cuda_can_limit_files())
      vgpu_host_log("user", 0, "workers can open the files of all GPUs: this kernel has no Landlock");
  }
  munmap(answer, sizeof *answer);
  return status;
}

static int32_t usage(struct vgpu_worker *worker, uint32_t device, struct vgpu_usage_reply *reply) {
  const struct vgpu_device_facts *facts = &worker->inventory->devices[device];
  *reply = (struct vgpu_usage_reply){
      .total = facts->total_memory,
      .used =
          vgpu_accounts_used(worker->accounts, vgpu_accounts_device(worker->accounts, worker->slot, device))};
  /* Without NVML at the host, and for a part of a GPU, only the use by our own sessions is known. */
  if (!worker->inventory->is_part[device])
    vgpu_cuda_nvml_usage(worker->inventory->options->nvml_library, facts, reply);
  return VGPU_STATUS_OK;
}

/* Hash of the session's used memory and contexts. Two states may collide. */
static uint64_t state_of(const struct vgpu_worker *worker) {
  const struct vgpu_account *account = &worker->accounts->slots[worker->slot];
  uint64_t state = 0;
  for (uint32_t i = 0; i < worker->accounts->device_count; i++)
    state = (state * 31 + __atomic_load_n(&account->used[i], __ATOMIC_RELAXED)) * 31 + account->contexts[i];
  return state;
}

/*
 * Counts the driver's own memory on the devices where the session has a context, and no longer the memory
 * that its pools have released.
 */
static void correct_accounts(struct vgpu_worker *worker) {
  const struct vgpu_account *account = &worker->accounts->slots[worker->slot];
  struct vgpu_cuda *cuda = cuda_of(worker);
  vgpu_cuda_settle_pools(worker);
  /* Also where NVML does not list this process: the question costs as much. */
  if (cuda != NULL) {
    cuda->corrected = vgpu_now_ms();
    cuda->corrected_state = state_of(worker);
  }
  for (uint32_t i = 0; i < worker->inventory->count; i++) {
    uint64_t bytes;
    if (account->contexts[vgpu_accounts_device(worker->accounts, worker->slot, i)] == 0) bytes = 0;
    else if (!vgpu_cuda_nvml_own_memory(worker->inventory, i, &bytes)) continue;
    vgpu_accounts_correct(worker->accounts, worker->slot, i, bytes);
  }
}

/* Called before an allocation is refused. Programs retry in loops, and an NVML query costs a system call. */
static void correct_before_refusal(void *context) {
  struct vgpu_worker *worker = context;
  const struct vgpu_cuda *cuda = cuda_of(worker);
  vgpu_cuda_settle_pools(worker);
  if (cuda == NULL || vgpu_now_ms() - cuda->corrected >= REFUSAL_MS ||
      cuda->corrected_state != state_of(worker))
    correct_accounts(worker);
}

/* The driver is opened at the first call that needs it. A session that only requests facts never opens it. */
static bool begin(struct vgpu_worker *worker) {
  const struct vgpu_inventory *inventory = worker->inventory;
  vgpu_accounts_before_refusal(correct_before_refusal, worker);
  vgpu_cuda_slice_of_mps(worker);
  if (!inventory->chosen) return true;
  /* The driver then shows no other device. */
  char list[VGPU_DEVICES_MAX * VGPU_UUID_TEXT] = "";
  for (uint32_t i = 0; i < inventory->count; i++) {
    char *at = list + strlen(list);
    if (i > 0) *at++ = ',';
    vgpu_uuid_text(inventory->is_part[i] ? "MIG-" : "GPU-", inventory->devices[i].uuid, at);
  }
  return setenv("CUDA_VISIBLE_DEVICES", list, 1) == 0;
}

/* A query of NVML takes up to milliseconds. After a slow call the next one is earlier. */
static int64_t correction_period_ms(uint32_t opcode) {
  switch (opcode) {
    case VGPU_OP_cuDevicePrimaryCtxRetain:
    case VGPU_OP_cuCtxCreate_v2:
      return 0;
    case VGPU_OP_cuModuleLoadDataEx:
      return 100;
    default:
      return 1000;
  }
}

/* Ends reservations that the thread's upload did not use, for instance because the upload failed. */
static void end_rooms(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, int32_t result) {
  if (cuda_of(worker) != NULL && row->opcode != VGPU_OP_upload_room && result != VGPU_WAITS)
    vgpu_cuda_give_room(worker);
}

static int32_t carry_out(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                         void *reply, struct vgpu_bulk *bulk) {
  int32_t result = vgpu_cuda_await_endings(worker, row->opcode);
  if (result == CUDA_SUCCESS) result = row->run[VGPU_BACKEND_CUDA](worker, body, reply, bulk);
  int32_t failed = vgpu_cuda_failed_ending(worker);
  if (worker->deferred == 0) worker->deferred = failed;
  vgpu_cuda_collect_unpinned(worker);
  end_rooms(worker, row, result);
  if (row->oneway || result == VGPU_WAITS) return result;
  vgpu_cuda_collect_prints(worker);
  if (cuda_of(worker) != NULL &&
      vgpu_now_ms() - cuda_of(worker)->corrected >= correction_period_ms(row->opcode))
    correct_accounts(worker);
  return result;
}

static bool has_managed(const struct vgpu_worker *worker) {
  return cuda_of(worker) != NULL && cuda_of(worker)->managed != NULL;
}

static int32_t run(struct vgpu_worker *worker, const struct vgpu_dispatch_row *row, const void *body,
                   void *reply, struct vgpu_bulk *bulk) {
  int32_t status = CUDA_SUCCESS;
  if (has_managed(worker)) status = vgpu_cuda_managed_before(worker, row, body);
  if (status == CUDA_SUCCESS && (!has_managed(worker) || !vgpu_cuda_managed_reads(worker)))
    status = vgpu_cuda_slice_run(worker, carry_out, row, body, reply, bulk);
  else end_rooms(worker, row, status);
  if (status == CUDA_SUCCESS && has_managed(worker)) status = vgpu_cuda_managed_after(worker, row, bulk);
  return status;
}

static void call_over(struct vgpu_worker *worker, uint64_t note) {
  vgpu_cuda_waiting_call_over(worker, note);
  vgpu_cuda_load_over(worker, note);
  vgpu_cuda_side_call_over(worker, note);
  vgpu_cuda_copy_over(worker, note);
  vgpu_cuda_managed_over(worker, note);
}

static const struct vgpu_backend_graphs graphs = {.begin = vgpu_cuda_graph_begin,
                                                  .before = vgpu_cuda_graph_before,
                                                  .after = vgpu_cuda_graph_after,
                                                  .end = vgpu_cuda_graph_end,
                                                  .launch = vgpu_cuda_graph_launch,
                                                  .destroy = vgpu_cuda_graph_destroy,
                                                  .mark = vgpu_cuda_graph_mark,
                                                  .await_mark = vgpu_cuda_graph_await_mark,
                                                  .drop_mark = vgpu_cuda_graph_drop_mark,
                                                  .build = vgpu_cuda_graph_build};

const struct vgpu_backend vgpu_cuda_backend = {.name = "cuda",
                                               .number = VGPU_BACKEND_CUDA,
                                               .reads_itself = true,
                                               .take_inventory = take_inventory,
                                               .self_check = vgpu_cuda_self_check,
                                               .device_groups = vgpu_cuda_device_groups,
                                               .limit_files = vgpu_cuda_limit_files,
                                               .keep_addresses = vgpu_cuda_keep_addresses,
                                               .make_filter = vgpu_cuda_filter,
                                               .begin = begin,
                                               .run = run,
                                               .call_over = call_over,
                                               .awake_ns =
                                                   200000, /* most small kernels, and a model's graph */
                                               .idle = vgpu_cuda_slice_close,
                                               .turn_ns = 10000000,
                                               .usage = usage,
                                               .query = vgpu_cuda_nvml_query,
                                               .forget_shared = vgpu_cuda_unpin,
                                               .resources = &vgpu_cuda_resources,
                                               .graphs = &graphs};
