#include "fuzz/serve.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_calls.h"
#include "fuzz/grammar.h"
#include "host/backend/common/graph.h"
#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/software.h"
#include "host/log.h"
#include "host/session/answer.h"
#include "wire/greeting.h"

static struct vgpu_inventory inventory;
static struct vgpu_accounts *accounts;

/* A guest's mistakes are not logged here. */
void __wrap_vgpu_host_log(const char *event, uint64_t session, const char *format, ...);
void __wrap_vgpu_host_log(const char *event, uint64_t session, const char *format, ...) {
  (void)event;
  (void)session;
  (void)format;
}

/* Code is loaded, and each launch is checked, as in a real worker. Only the kernels do not run. */
static const struct vgpu_code_options run = {
    .kernels = VGPU_KERNELS_RUN, .launch_log = -1, .session_bytes = 8u << 20};
static const struct vgpu_code_options skip = {
    .kernels = VGPU_KERNELS_SKIP, .launch_log = -1, .session_bytes = 8u << 20};

struct ptx_pool *__wrap_ptx_pool_new(uint32_t helpers);
struct ptx_pool *__wrap_ptx_pool_new(uint32_t helpers) {
  (void)helpers;
  return NULL;
}

enum ptx_status __wrap_ptx_launch(struct ptx_module *module, uint32_t kernel, const struct ptx_launch *launch,
                                  struct ptx_pool *pool, struct ptx_fault *fault);
enum ptx_status __wrap_ptx_launch(struct ptx_module *module, uint32_t kernel, const struct ptx_launch *launch,
                                  struct ptx_pool *pool, struct ptx_fault *fault) {
  (void)module, (void)kernel, (void)launch, (void)pool, (void)fault;
  return PTX_OK;
}

/* Where kernels do not run, a loop has one round, because nothing would end it. */
int32_t __real_vgpu_conditions_launch(struct vgpu_worker *worker, const struct vgpu_exec_object *exec,
                                      uint64_t stream);
int32_t __wrap_vgpu_conditions_launch(struct vgpu_worker *worker, const struct vgpu_exec_object *exec,
                                      uint64_t stream);
int32_t __wrap_vgpu_conditions_launch(struct vgpu_worker *worker, const struct vgpu_exec_object *exec,
                                      uint64_t stream) {
  worker->code_options = &skip;
  int32_t result = __real_vgpu_conditions_launch(worker, exec, stream);
  worker->code_options = &run;
  return result;
}

/* Runs once. Exits if VGPU_FUZZ_PROFILE, the device's profile, cannot be read. */
static void begin(void) {
  static struct vgpu_options options = {.device = "software", .kernels = VGPU_KERNELS_RUN};
  options.profiles[0] = getenv("VGPU_FUZZ_PROFILE");
  options.profile_count = options.profiles[0] != NULL;
  inventory.options = &options;
  if (vgpu_software_backend.take_inventory(&options, &inventory) != 0) exit(2);
  uint64_t totals[VGPU_DEVICES_MAX];
  for (uint32_t i = 0; i < inventory.count; i++) totals[i] = inventory.devices[i].total_memory;
  accounts = vgpu_accounts_make(totals, inventory.count, NULL, NULL);
  if (accounts == NULL) exit(2);
}

int LLVMFuzzerInitialize(int *count, char ***words);
int LLVMFuzzerInitialize(int *count, char ***words) {
  (void)count;
  (void)words;
  fuzz_images_load();
  begin();
  return 0;
}

/* Frees the objects that otherwise end with the process. Most of them go with their context. */
static void clean_up(struct vgpu_worker *worker) {
  for (size_t i = 0; i < worker->handles.capacity; i++) {
    const struct vgpu_handle *handle = &worker->handles.places[i];
    if (handle->number == 0 || handle->type != VGPU_HANDLE_CONTEXT) continue;
    uint64_t number = handle->number;
    const struct vgpu_dispatch_row *row = vgpu_dispatch_cuda(VGPU_OP_cuCtxDestroy_v2);
    struct vgpu_bulk bulk = {0};
    row->run[VGPU_BACKEND_SOFTWARE](worker, &number, NULL, &bulk);
    i = (size_t)-1; /* entries have moved: start again */
  }
  struct vgpu_allocation freed;
  while (software_of(worker)->memory.count > 0) {
    uint64_t address = software_of(worker)->memory.array[0].address;
    if (!vgpu_memory_free(&software_of(worker)->memory, address, &freed) &&
        !vgpu_memory_unreserve(&software_of(worker)->memory, address,
                               software_of(worker)->memory.array[0].size))
      break;
  }
  for (uint32_t shared_region = 1;
       worker->shared_regions.bytes > 0 && shared_region <= VGPU_SHARED_REGIONS_MAX; shared_region++) {
    (void)vgpu_shared_regions_drop(&worker->shared_regions, shared_region);
  }
  if (worker->link.rings.base != NULL) vgpu_doorbell_destroy(&worker->link.doorbell);
  vgpu_rings_unmap(&worker->link.rings);
  free(software_of(worker)->memory.array);
  for (uint32_t i = 0; i < software_of(worker)->textures.count; i++)
    free(software_of(worker)->textures.places[i]);
  free(software_of(worker)->textures.places);
  free(software_of(worker)->programs.compute);
  free(worker->device);
  free(worker->handles.places);
  free(worker->link.in);
  free(worker->link.ahead.bytes);
  free(worker->out);
}

void fuzz_serve(bool rings, const unsigned char *greeting, size_t size) {
  struct vgpu_hello hello;
  size_t wanted;
  if (vgpu_greeting_read(greeting, size, &wanted, &hello) != VGPU_GREETING_WHOLE) return;
  if (vgpu_greeting_status(&hello) != VGPU_STATUS_OK || hello.library == VGPU_LIBRARY_SESSIONS) return;
  const struct vgpu_account_owner owner = {.pid = 1, .peer = {.kind = VGPU_ADDRESS_UNIX}};
  vgpu_accounts_begin(accounts, 0, &owner);
  struct vgpu_limits limits = {.session_memory = 8u << 20,
                               .session_handles = 300,
                               .sessions = 1,
                               .outstanding = 4u << 20,
                               .session_shared = rings ? 4u << 20 : 0};
  /* On the heap, so that a sanitizer notices an access beyond it. */
  struct vgpu_worker *worker = calloc(1, sizeof *worker);
  if (worker == NULL) exit(2);
  *worker = (struct vgpu_worker){.link = {.descriptor = -1},
                                 .session = 1,
                                 .peer = {.kind = VGPU_ADDRESS_UNIX},
                                 .accounts = accounts,
                                 .backend = &vgpu_software_backend,
                                 .inventory = &inventory,
                                 .limits = &limits,
                                 .code_options = &run};
  if (!vgpu_software_backend.begin(worker)) exit(2);
  vgpu_worker_serve(worker, &hello);
  clean_up(worker);
  free(worker);
}
