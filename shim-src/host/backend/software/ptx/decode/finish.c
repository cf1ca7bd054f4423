/* The final form of a function's code, and at a module's end the needs of functions and their callees. */
#include <string.h>

#include "host/backend/software/ptx/alu/fpu.h"
#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/modes.h"
#include "host/backend/software/ptx/text/parser.h"

void ptx_begin_function(struct parser *p, struct ptx_function *f) {
  ptx_arena_free(&p->scratch);
  p->function = f;
  p->code = NULL;
  p->x = NULL;
  p->registers = NULL;
  p->calls = NULL;
  p->code_count = p->code_room = p->x_count = p->x_room = 0;
  p->register_count = p->register_room = 0;
  p->call_count = p->call_room = 0;
  p->frame_params = 0;
  p->local_bytes = f->entry ? p->module_local : 0;
  /* A kernel and a function that it calls run at the same time, so their places differ. */
  p->shared_base = (p->module_shared + 127) / 128 * 128;
  if (!f->entry) p->shared_base += MAX_SHARED + p->callee_shared;
  p->shared_bytes = p->shared_base;
  p->shared_uses = NULL;
  p->shared_use_count = p->shared_use_room = 0;
  p->addressed = NULL;
  p->addressed_count = p->addressed_room = 0;
  p->carry = PTX_NONE;
  p->returned_count = 0;
  p->fixups = NULL;
  ptx_open_scope(p);
}

static void *keep(struct parser *p, const void *from, size_t bytes) {
  if (bytes == 0) return NULL;
  void *to = ptx_take(p, bytes);
  memcpy(to, from, bytes);
  return to;
}

/* Instructions to which subnormals do not matter treat them as most others do. */
static void choose_control(struct ptx_instruction *code, uint32_t count) {
  uint32_t flush[2] = {0, 0};
  for (uint32_t i = 0; i < count; i++) {
    uint32_t control = code[i].control;
    if (control != 0 && (control & PTX_CONTROL_EITHER) == 0) flush[(control - 1) & 1]++;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t control = code[i].control & ~PTX_CONTROL_EITHER;
    if (control != code[i].control)
      code[i].control = (uint8_t)PTX_CONTROL((control - 1) / 2, flush[1] > flush[0]);
  }
}

void ptx_finish_function(struct parser *p) {
  struct ptx_function *f = p->function;
  ptx_close_scope(p);
  p->guard = 0;
  ptx_store_results(p);
  p->code = ptx_room(p, p->code, p->code_count, &p->code_room, sizeof *p->code);
  p->code[p->code_count++] = (struct ptx_instruction){
      .kind = K_RET, .line = p->line, .d = PTX_NONE, .a = PTX_NONE, .b = PTX_NONE, .c = PTX_NONE};
  for (uint32_t i = 0; i < p->code_count; i++) p->code[i].join = PTX_NO_PC;
  choose_control(p->code, p->code_count);
  ptx_find_joins(p);
  ptx_place_registers(p);
  for (uint32_t i = 0; i < p->code_count; i++) p->code[i].dispatch = p->code[i].kind;
  f->code = keep(p, p->code, p->code_count * sizeof *p->code);
  f->code_count = p->code_count;
  f->x = keep(p, p->x, p->x_count * sizeof *p->x);
  f->x_count = p->x_count;
  f->calls = keep(p, p->calls, p->call_count * sizeof *p->calls);
  f->call_count = p->call_count;
  f->local_bytes = (p->local_bytes + 15) / 16 * 16;
  if (p->shared_bytes > p->shared_base && p->shared_bytes > f->shared_end) f->shared_end = p->shared_bytes;
  f->shared_own = p->shared_bytes - p->shared_base;
  if (!f->entry) p->callee_shared += (f->shared_own + 127) / 128 * 128;
  f->shared_uses = keep(p, p->shared_uses, p->shared_use_count * sizeof *p->shared_uses);
  f->shared_use_count = p->shared_use_count;
  f->addressed = keep(p, p->addressed, p->addressed_count * sizeof *p->addressed);
  f->addressed_count = p->addressed_count;
  p->function = NULL;
}

/* Results and parameters in CUDA's headers: the function's name decides how its parameters are read. */
static const struct {
  const char *name;
  uint8_t number, returns, parameters;
} builtins[] = {
    {"vprintf", BUILTIN_VPRINTF, 1, 2},
    {"malloc", BUILTIN_MALLOC, 1, 1},
    {"free", BUILTIN_FREE, 0, 1},
    {"__assertfail", BUILTIN_ASSERT, 0, 5},
    {"cudaGraphSetConditional", BUILTIN_SET_CONDITIONAL, 0, 2},
    {"__cudaCDP2GetParameterBuffer", BUILTIN_BUFFER, 1, 2},
    {"__cudaCDP2GetParameterBufferV2", BUILTIN_BUFFER_V2, 1, 4},
    {"__cudaCDP2LaunchDevice", BUILTIN_LAUNCH, 1, 6},
    {"__cudaCDP2LaunchDevice_ptsz", BUILTIN_LAUNCH, 1, 6},
    {"__cudaCDP2LaunchDeviceV2", BUILTIN_LAUNCH_V2, 1, 2},
    {"__cudaCDP2LaunchDeviceV2_ptsz", BUILTIN_LAUNCH_V2, 1, 2},
    {"__cudaCDP2StreamCreateWithFlags", BUILTIN_MAKE, 1, 2},
    {"__cudaCDP2StreamDestroy", BUILTIN_ORDER, 1, 1},
    {"__cudaCDP2StreamWaitEvent", BUILTIN_ORDER, 1, 3},
    {"__cudaCDP2StreamWaitEvent_ptsz", BUILTIN_ORDER, 1, 3},
    {"__cudaCDP2EventCreateWithFlags", BUILTIN_MAKE, 1, 2},
    {"__cudaCDP2EventRecord", BUILTIN_ORDER, 1, 2},
    {"__cudaCDP2EventRecord_ptsz", BUILTIN_ORDER, 1, 2},
    {"__cudaCDP2EventRecordWithFlags", BUILTIN_ORDER, 1, 3},
    {"__cudaCDP2EventRecordWithFlags_ptsz", BUILTIN_ORDER, 1, 3},
    {"__cudaCDP2EventDestroy", BUILTIN_ORDER, 1, 1},
    {"__cudaCDP2GetLastError", BUILTIN_LAST_ERROR, 1, 0},
    {"__cudaCDP2PeekAtLastError", BUILTIN_PEEK_ERROR, 1, 0},
    {"__cudaCDP2GetErrorString", BUILTIN_ERROR_TEXT, 1, 1},
    {"__cudaCDP2GetErrorName", BUILTIN_ERROR_NAME, 1, 1},
    {"__cudaCDP2Malloc", BUILTIN_RUNTIME_MALLOC, 1, 2},
    {"__cudaCDP2Free", BUILTIN_RUNTIME_FREE, 1, 1},
    {"__cudaCDP2MemcpyAsync", BUILTIN_COPY, 1, 5},
    {"__cudaCDP2MemcpyAsync_ptsz", BUILTIN_COPY, 1, 5},
    {"__cudaCDP2MemsetAsync", BUILTIN_FILL, 1, 4},
    {"__cudaCDP2MemsetAsync_ptsz", BUILTIN_FILL, 1, 4},
    {"__cudaCDP2Memcpy2DAsync", BUILTIN_COPY_ROWS, 1, 8},
    {"__cudaCDP2Memcpy2DAsync_ptsz", BUILTIN_COPY_ROWS, 1, 8},
    {"__cudaCDP2Memcpy3DAsync", BUILTIN_COPY_BOX, 1, 2},
    {"__cudaCDP2Memcpy3DAsync_ptsz", BUILTIN_COPY_BOX, 1, 2},
    {"__cudaCDP2Memset2DAsync", BUILTIN_FILL_ROWS, 1, 6},
    {"__cudaCDP2Memset2DAsync_ptsz", BUILTIN_FILL_ROWS, 1, 6},
    {"__cudaCDP2Memset3DAsync", BUILTIN_FILL_BOX, 1, 4},
    {"__cudaCDP2Memset3DAsync_ptsz", BUILTIN_FILL_BOX, 1, 4},
    {"__cudaCDP2GetDevice", BUILTIN_DEVICE, 1, 1},
    {"__cudaCDP2GetDeviceCount", BUILTIN_DEVICE_COUNT, 1, 1},
    {"__cudaCDP2DeviceGetAttribute", BUILTIN_DEVICE_ATTRIBUTE, 1, 3},
    {"__cudaCDP2DeviceGetLimit", BUILTIN_DEVICE_LIMIT, 1, 2},
    {"__cudaCDP2DeviceGetCacheConfig", BUILTIN_CACHE_CONFIG, 1, 1},
    {"__cudaCDP2DeviceGetSharedMemConfig", BUILTIN_SHARED_CONFIG, 1, 1},
    {"__cudaCDP2RuntimeGetVersion", BUILTIN_RUNTIME_VERSION, 1, 1},
    {"__cudaCDP2FuncGetAttributes", BUILTIN_NOT_OFFERED, 1, 2},
    {"__cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessor", BUILTIN_NOT_OFFERED, 1, 4},
    {"__cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessorWithFlags", BUILTIN_NOT_OFFERED, 1, 5},
};

static void find_builtin(struct parser *p, struct ptx_function *f) {
  for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++) {
    if (strcmp(f->name, builtins[i].name) != 0) continue;
    f->builtin = true;
    f->builtin_number = builtins[i].number;
    if (f->return_count == builtins[i].returns &&
        f->parameter_count == builtins[i].returns + builtins[i].parameters)
      return;
    p->line = f->line;
    ptx_fail(p, PTX_UNSUPPORTED, "'%s' with other parameters than CUDA's", f->name);
  }
}

void ptx_finish_module(struct parser *p) {
  struct ptx_module *m = p->module;
  for (uint32_t i = 0; i < m->function_count; i++) {
    struct ptx_function *f = m->functions[i];
    if (f->entry && f->defined) m->kernel_count++;
    if (f->defined) continue;
    find_builtin(p, f);
  }
  m->kernels = ptx_take(p, m->kernel_count * sizeof *m->kernels);
  m->kernel_function = ptx_take(p, m->kernel_count * sizeof *m->kernel_function);
  m->findings = ptx_take(p, m->kernel_count * sizeof *m->findings);
  uint32_t next = 0;
  for (uint32_t i = 0; i < m->function_count; i++) {
    const struct ptx_function *f = m->functions[i];
    if (!f->entry || !f->defined) continue;
    m->kernel_function[next] = i;
    m->kernels[next++] =
        (struct ptx_kernel_info){.name = f->name,
                                 .parameters = f->parameters,
                                 .parameter_count = f->parameter_count,
                                 .parameter_bytes = f->parameter_bytes,
                                 .max_threads = f->max_threads,
                                 .required_threads = {f->reqntid[0], f->reqntid[1], f->reqntid[2]},
                                 .cluster = {f->cluster[0], f->cluster[1], f->cluster[2]},
                                 .version = m->version,
                                 .target = m->target};
  }
}

uint32_t ptx_module_kernel_count(const struct ptx_module *module) {
  return module->kernel_count;
}
const struct ptx_kernel_info *ptx_module_kernel(const struct ptx_module *module, uint32_t index) {
  return index < module->kernel_count ? &module->kernels[index] : NULL;
}
int32_t ptx_module_find_kernel(const struct ptx_module *module, const char *name) {
  for (uint32_t i = 0; i < module->kernel_count; i++) {
    if (strcmp(module->kernels[i].name, name) == 0) return (int32_t)i;
  }
  return -1;
}
uint32_t ptx_module_global_count(const struct ptx_module *module) {
  return module->global_count;
}
const struct ptx_global_info *ptx_module_global(const struct ptx_module *module, uint32_t index) {
  return index < module->global_count ? &module->globals[index] : NULL;
}
uint64_t ptx_module_data_bytes(const struct ptx_module *module) {
  return module->data_bytes;
}

bool ptx_module_allocates(const struct ptx_module *module) {
  for (uint32_t i = 0; i < module->function_count; i++) {
    uint8_t number = module->functions[i]->builtin_number;
    if (number == BUILTIN_MALLOC || number == BUILTIN_RUNTIME_MALLOC) return true;
  }
  return ptx_module_launches(module);
}

bool ptx_module_launches(const struct ptx_module *module) {
  for (uint32_t i = 0; i < module->function_count; i++) {
    if (module->functions[i]->builtin_number >= BUILTIN_BUFFER) return true;
  }
  return false;
}

void ptx_module_place(struct ptx_module *m, uint64_t address, unsigned char *bytes) {
  m->address = address;
  m->placed = true;
  if (bytes != NULL && m->data_bytes > 0) memcpy(bytes, m->data, m->data_bytes);
  for (uint32_t i = 0; i < m->relocation_count; i++) {
    const struct ptx_data *r = &m->relocations[i];
    uint64_t value = (address + r->addend) >> r->shift;
    if (r->symbol == 0) {
      if (bytes != NULL) memcpy(bytes + r->offset, &value, r->bytes);
      continue;
    }
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) memcpy(m->constants + r->offset + lane * 8, &value, 8);
  }
}

void ptx_module_move(struct ptx_module *m, uint64_t address, unsigned char *bytes) {
  for (uint32_t i = 0; i < m->relocation_count; i++) {
    const struct ptx_data *r = &m->relocations[i];
    uint64_t before = (m->address + r->addend) >> r->shift, after = (address + r->addend) >> r->shift;
    if (r->symbol == 0) {
      /* A value that the program has written since then is kept. */
      if (memcmp(bytes + r->offset, &before, r->bytes) == 0) memcpy(bytes + r->offset, &after, r->bytes);
      continue;
    }
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) memcpy(m->constants + r->offset + lane * 8, &after, 8);
  }
  m->address = address;
}

const char *ptx_status_name(enum ptx_status status) {
  static const char *const names[] = {"ok",
                                      "out of memory",
                                      "invalid PTX",
                                      "unsupported",
                                      "bad launch",
                                      "illegal address",
                                      "misaligned address",
                                      "trap",
                                      "assert",
                                      "timeout",
                                      "stack overflow",
                                      "invalid call",
                                      "unknown version"};
  return (size_t)status < sizeof names / sizeof *names ? names[status] : "unknown";
}
