#include "host/backend/software/kernel/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_handlers.h"
#include "host/log.h"
#include "host/backend/software/ptx/ptx.h"
#include "host/backend/software/kernel/internal.h"
#include "host/backend/software/memory/virtual.h"
#include "host/backend/software/ptx/compile/compiler.h"
#include "host/backend/software/software.h"
#include "host/backend/software/order/during_kernel.h"
#include "cuda_results.h"
#include "wire/clock.h"

int32_t vgpu_device_allocate(struct vgpu_worker *worker, uint64_t context, uint64_t bytes,
                             uint64_t *address) {
  struct vgpu_send_cuMemAlloc_v2 send = {.context = context, .bytes = bytes};
  struct vgpu_reply_cuMemAlloc_v2 reply = {0};
  int32_t result = vgpu_software_cuMemAlloc_v2(worker, &send, &reply);
  if (result == CUDA_SUCCESS) *address = reply.address;
  return result;
}

void vgpu_device_free(struct vgpu_worker *worker, uint64_t address) {
  struct vgpu_send_cuMemFree_v2 send = {.address = address};
  vgpu_software_cuMemFree_v2(worker, &send);
}

#define PRINTED_BYTES (1u << 20) /* CU_LIMIT_PRINTF_FIFO_SIZE of a new context */
#define HEAP_BYTES (8u << 20)    /* CU_LIMIT_MALLOC_HEAP_SIZE of a new context */
#define WORKSPACE_BYTES 256u
#define CROWDED_NS 5000u  /* between two checks for other sessions */
#define TIME_LIMIT_S 600u /* of a kernel: a session has one thread for all its requests */

struct heap {
  struct heap *next;
  uint64_t context, address;
  struct ptx_heap *heap;
};

struct vgpu_compute {
  struct ptx_pool *pool;
  struct heap *heaps;
};

static bool find_region(void *user, uint64_t address, struct ptx_region *region) {
  struct vgpu_worker *worker = user;
  const struct vgpu_allocation *found = vgpu_memory_holding(&software_of(worker)->memory, address);
  if (found == NULL || !vgpu_peer_reaches(worker, found)) return false;
  *region = (struct ptx_region){
      .address = found->address, .size = found->size, .bytes = found->memory, .written = found->written};
  if (!found->reserved) return true;
  /* Only the mapped, accessible part of reserved addresses counts. */
  if (!vgpu_virtual_extent(software_of(worker)->memory.virtual, address, software_of(worker)->peers.device,
                           &region->address, &region->size))
    return false;
  /* An adjacent mapping may belong to another reservation and be elsewhere in this process. */
  uint64_t start = region->address > found->address ? region->address : found->address;
  uint64_t end = region->address + region->size, last = found->address + found->size;
  region->address = start;
  region->size = (end < last ? end : last) - start;
  region->bytes = found->memory + (start - found->address);
  return true;
}

/*
 * Returns the helper threads of the session, which are made at the first launch: most sessions never launch.
 */
static struct ptx_pool *helpers(struct vgpu_worker *worker) {
  struct vgpu_compute *compute = software_of(worker)->programs.compute;
  if (compute == NULL) {
    compute = calloc(1, sizeof *compute);
    if (compute == NULL) return NULL;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    compute->pool = ptx_pool_new(processors > 1 ? (uint32_t)(processors < 64 ? processors - 1 : 63) : 0);
    software_of(worker)->programs.compute = compute;
  }
  return compute->pool;
}

/*
 * Returns the heap of a context. NULL: no memory; malloc in kernels then returns NULL, as if the heap were
 * full.
 */
static struct ptx_heap *heap_of(struct vgpu_worker *worker, uint64_t context) {
  struct heap *heap = software_of(worker)->programs.compute->heaps;
  while (heap != NULL && heap->context != context) heap = heap->next;
  /* Destroying the context freed the memory. */
  if (heap != NULL && vgpu_memory_at(&software_of(worker)->memory, heap->address, HEAP_BYTES) != NULL)
    return heap->heap;
  uint64_t address;
  if (vgpu_device_allocate(worker, context, HEAP_BYTES, &address) != CUDA_SUCCESS) return NULL;
  if (heap == NULL) {
    heap = calloc(1, sizeof *heap);
    if (heap == NULL) {
      vgpu_device_free(worker, address);
      return NULL;
    }
    heap->next = software_of(worker)->programs.compute->heaps;
    software_of(worker)->programs.compute->heaps = heap;
  }
  ptx_heap_free(heap->heap);
  heap->context = context;
  heap->address = address;
  heap->heap = ptx_heap_new(address, HEAP_BYTES);
  return heap->heap;
}

static void enter_turn(void *user) {
  const struct vgpu_turns turns = vgpu_pace_turns(user);
  vgpu_share_enter(&turns);
}

static bool try_turn(void *user) {
  const struct vgpu_turns turns = vgpu_pace_turns(user);
  return vgpu_share_try(&turns);
}

static bool crowded(void *user) {
  /* Reading all seats takes time, so the answer may be this old. */
  static _Thread_local uint64_t asked;
  const uint64_t now = vgpu_now_ns();
  if (now - asked < CROWDED_NS) return false;
  asked = now;
  const struct vgpu_turns turns = vgpu_pace_turns(user);
  return vgpu_share_crowded(&turns);
}

static void leave_turn(void *user, uint64_t used) {
  const struct vgpu_worker *worker = user;
  const uint64_t computed = vgpu_pace_charge(user, used);
  __atomic_fetch_add(&worker->accounts->slots[worker->slot].computed, computed, __ATOMIC_RELAXED);
}

static const struct ptx_turns turns = {
    .enter = enter_turn, .try = try_turn, .crowded = crowded, .leave = leave_turn};

static void serve_nested(void *user) {
  struct vgpu_worker *worker = user;
  worker->serve_nested(worker, vgpu_accepts_during_kernel);
}

static bool spoils_context(enum ptx_status status) {
  return status >= PTX_ILLEGAL_ADDRESS;
}

/* Runs one grid. `order` has its dimensions and parameters. */
static int32_t run_grid(struct vgpu_worker *worker, const struct vgpu_checked_launch *launch, uint32_t kernel,
                        const struct ptx_launch *order, struct ptx_fault *fault) {
  struct ptx_module *code = launch->module->code;
  struct ptx_pool *pool = helpers(worker);
  /* Local memory of threads is device memory, as on a GPU. */
  uint64_t local = ptx_launch_local_bytes(code, kernel, order, pool);
  if (local > 0 && !vgpu_accounts_take(worker->accounts, worker->slot, launch->module->device, local,
                                       worker->limits->session_memory)) {
    vgpu_host_log("refused", worker->session,
                  "kernel %.200s: no device memory for %llu bytes of local memory",
                  ptx_module_kernel(code, kernel)->name, (unsigned long long)local);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  vgpu_pace_pause(worker);
  ptx_launch(code, kernel, order, pool, fault);
  vgpu_pace_go_on(worker);
  if (local > 0) vgpu_accounts_give(worker->accounts, worker->slot, launch->module->device, local);
  return CUDA_SUCCESS;
}

/*
 * Runs the grids that the launch's kernels have launched, until there are none. For the stream they are one
 * launch.
 */
static int32_t run_children(struct vgpu_worker *worker, const struct vgpu_checked_launch *launch,
                            const struct ptx_launch *parent, const char **name, struct ptx_fault *fault) {
  struct ptx_module *code = launch->module->code;
  struct ptx_child child;
  uint64_t deadline = vgpu_now_ns() + parent->timeout;
  while (ptx_children_next(parent->children, code, parent, &child, fault)) {
    *name = ptx_module_kernel(code, child.kernel)->name;
    int32_t ready = vgpu_run_ready(worker, launch->module, child.kernel);
    if (ready != CUDA_SUCCESS) return ready;
    struct ptx_launch order = *parent;
    memcpy(order.grid, child.grid, sizeof order.grid);
    memcpy(order.block, child.block, sizeof order.block);
    memset(order.cluster, 0, sizeof order.cluster);
    order.dynamic_shared = child.dynamic_shared;
    order.parameters = child.parameters;
    order.parameter_bytes = child.parameter_bytes;
    order.cooperative = false;
    order.workspace = 0;
    uint64_t now = vgpu_now_ns();
    order.timeout = now < deadline ? deadline - now : 1;
    int32_t result = run_grid(worker, launch, child.kernel, &order, fault);
    if (result != CUDA_SUCCESS || fault->status != PTX_OK) return result;
  }
  return CUDA_SUCCESS;
}

/* Finds the kernel of a function and makes it ready. Logs why it cannot run. */
static int32_t find_kernel(struct vgpu_worker *worker, struct vgpu_module_object *module, const char *name,
                           int32_t *kernel) {
  struct ptx_module *code = module->code;
  *kernel = code == NULL ? -1 : ptx_module_find_kernel(code, name);
  if (*kernel >= 0) return vgpu_run_ready(worker, module, (uint32_t)*kernel);
  vgpu_run_refuse(worker, module, name, code == NULL ? module->unrunnable : "its module has no such kernel");
  return module->loaded->program.ptx == NULL ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_NOT_SUPPORTED;
}

static int32_t run(struct vgpu_worker *worker, const struct vgpu_checked_launch *launch) {
  if (worker->sticky != CUDA_SUCCESS && worker->sticky_context == launch->context) return worker->sticky;
  struct ptx_module *code = launch->module->code;
  const char *name = launch->function->name;
  int32_t kernel;
  int32_t result = find_kernel(worker, launch->module, name, &kernel);
  if (result != CUDA_SUCCESS) return result;
  struct ptx_launch order = {.dynamic_shared = launch->dynamic_shared,
                             .parameters = launch->parameters,
                             .parameter_bytes = launch->function->parameter_bytes,
                             .cooperative = launch->cooperative,
                             .timeout = TIME_LIMIT_S * 1000000000ull,
                             .find = find_region,
                             .find_texture = vgpu_texture_find,
                             .print = vgpu_run_print,
                             .checks = worker->code_options->checks,
                             .report = vgpu_run_report,
                             .compiler = software_of(worker)->compiler,
                             .turns = &turns,
                             .serve = software_of(worker)->queue.running != NULL ? serve_nested : NULL,
                             .user = worker};
  const struct vgpu_device_profile *profile = &worker->inventory->profiles->devices[launch->module->device];
  const struct ptx_device device = {.number = (int32_t)launch->module->device,
                                    .count = (int32_t)worker->inventory->count,
                                    .attributes = profile->attributes,
                                    .known = profile->attribute_known,
                                    .attribute_count = VGPU_ATTRIBUTES_MAX,
                                    .heap_bytes = HEAP_BYTES,
                                    .printed_bytes = PRINTED_BYTES};
  order.device = &device;
  const struct vgpu_handle *context = find_context(worker, launch->context);
  if (context != NULL) order.stack_limit = context->stack;
  helpers(worker);
  if (software_of(worker)->programs.compute != NULL && ptx_module_allocates(code))
    order.heap = heap_of(worker, launch->context);
  if (launch->cooperative) {
    result = vgpu_device_allocate(worker, launch->context, WORKSPACE_BYTES, &order.workspace);
    if (result != CUDA_SUCCESS) return result;
    vgpu_memory_to_write(&software_of(worker)->memory, order.workspace, WORKSPACE_BYTES);
  }
  if (order.heap != NULL && ptx_module_launches(code)) order.children = ptx_children_new();
  memcpy(order.grid, launch->grid, sizeof order.grid);
  memcpy(order.block, launch->block, sizeof order.block);
  memcpy(order.cluster, launch->cluster, sizeof order.cluster);
  software_of(worker)->peers.context = launch->context;
  software_of(worker)->peers.device = launch->module->device;
  struct ptx_fault fault = {.status = PTX_OK};
  result = run_grid(worker, launch, (uint32_t)kernel, &order, &fault);
  if (order.compiler != NULL && order.compiler->socket < 0)
    worker->accounts->slots[worker->slot].interprets = 1;
  if (result == CUDA_SUCCESS && fault.status == PTX_OK && order.children != NULL)
    result = run_children(worker, launch, &order, &name, &fault);
  ptx_children_free(order.children, order.heap);
  if (order.workspace != 0) vgpu_device_free(worker, order.workspace);
  if (result != CUDA_SUCCESS || fault.status == PTX_OK) return result;
  vgpu_host_log("fault", worker->session,
                "kernel %.200s: %s: line %u of its PTX, block %u,%u,%u thread %u,%u,%u: %s", name,
                ptx_status_name(fault.status), fault.line, fault.block[0], fault.block[1], fault.block[2],
                fault.thread[0], fault.thread[1], fault.thread[2], fault.text);
  if (spoils_context(fault.status)) {
    worker->sticky = vgpu_run_result(fault.status);
    worker->sticky_context = launch->context;
  }
  return vgpu_run_result(fault.status);
}

void vgpu_run_refuse_all(const struct vgpu_worker *worker, struct vgpu_program *program) {
  int32_t result = CUDA_SUCCESS;
  if (worker->code_options->kernels == VGPU_KERNELS_REFUSE) result = CUDA_ERROR_NOT_SUPPORTED;
  else if (worker->code_options->kernels == VGPU_KERNELS_RUN && program->ptx == NULL)
    result = CUDA_ERROR_NO_BINARY_FOR_GPU;
  for (uint32_t i = 0; i < program->function_count; i++) program->functions[i].refused = result;
}

int32_t vgpu_run_refused(struct vgpu_worker *worker, struct vgpu_module_object *module,
                         const struct vgpu_program_function *function) {
  int32_t kernel;
  if (worker->code_options->kernels == VGPU_KERNELS_RUN)
    return find_kernel(worker, module, function->name, &kernel);
  vgpu_host_log("refused", worker->session, "kernel %.200s: this simulated device executes no kernels",
                function->name);
  vgpu_worker_refused_kernel(worker, function->name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

int32_t vgpu_run_launch(struct vgpu_worker *worker, const struct vgpu_checked_launch *launch) {
  switch (worker->code_options->kernels) {
    case VGPU_KERNELS_SKIP:
      return CUDA_SUCCESS;
    case VGPU_KERNELS_RUN: {
      int32_t result = run(worker, launch);
      if (result == CUDA_SUCCESS) vgpu_worker_launched(worker);
      return result;
    }
    case VGPU_KERNELS_REFUSE:
      break;
  }
  return vgpu_run_refused(worker, launch->module, launch->function);
}
