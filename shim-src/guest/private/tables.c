#include "guest/private/private.h"

#include "guest/private/core.h"
#include "guest/private/integrity.h"
#include "guest/private/local_storage.h"
#include "guest/private/refusals.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/*
 * A table is an array of words: its size in bytes where it has a size header, then functions. The tables are
 * relocated read-only data: services with MemoryDenyWriteExecute=yes die of pages that are writable and
 * executable.
 */
typedef void (*function)(void);
union slot {
  uintptr_t size;
  function call;
};

/* Known slots override the refusing ones. */
#pragma GCC diagnostic ignored "-Woverride-init"

#define REFUSED(table, slot)                                                                                 \
  static int table##_##slot(void) {                                                                          \
    vgpu_private_core_refused(#table, slot);                                                                 \
    return VGPU_PRIVATE_NOT_SUPPORTED;                                                                       \
  }
#define CALL(name)                                                                                           \
  { .call = (function)(name) }

/* ---- CUDART_INTERFACE ---------------------------------------------------- */

static int module_load(void **module, const void *image) {
  if (!module || !image) return VGPU_PRIVATE_INVALID_VALUE;
  return vgpu_private_core_load(module, image);
}

/* The runtime asks in every process, and most never compute, so nothing is made at the host. */
static int primary_context(void **context, int device) {
  if (!context) return VGPU_PRIVATE_INVALID_VALUE;
  return vgpu_private_core_primary(device, context);
}

/* Options of an unknown kind must be empty. */
static int module_load_extended(void **module, const void *image, void *option, void *more, uint32_t flags) {
  if (option || more || flags) return VGPU_PRIVATE_NOT_SUPPORTED;
  return module_load(module, image);
}

static int module_load_image(const void *image, void **module, void *option, void *more, uint32_t flags) {
  return module_load_extended(module, image, option, more, flags);
}

static void notice(uintptr_t value) {
  (void)value;
}

/* A hint to load compilers early. The compilers are at the host. */
static int load_compilers(void) {
  return VGPU_PRIVATE_SUCCESS;
}

REFUSED(cudart, 3)
REFUSED(cudart, 4)
REFUSED(cudart, 5)
REFUSED(cudart, 9)
REFUSED(cudart, 11)

/* 11 slots in driver 535, 12 in 550, 13 in those of CUDA 13; slot 10 is empty in real ones, too. */
static const union slot cudart_table[] = {
    {.size = 13 * sizeof(union slot)},
    CALL(module_load),
    CALL(primary_context),
    CALL(cudart_3),
    CALL(cudart_4),
    CALL(cudart_5),
    CALL(module_load_extended),
    CALL(notice),
    CALL(module_load_image),
    CALL(cudart_9),
    {.size = 0},
    CALL(cudart_11),
    CALL(load_compilers),
};

/* ---- TOOLS_RUNTIME_CALLBACK_HOOKS, TOOLS_TLS ------------------------------ */

/* The calls that a profiler wants to see, a word each: none. The sizes are those of drivers 535 and 550. */
static uint64_t hooks_a[1024];
static uint64_t hooks_b[14];

static void hooks_first(void **buffer, uintptr_t *size) {
  if (buffer) *buffer = hooks_a;
  if (size) *size = sizeof hooks_a / sizeof *hooks_a;
}

static void hooks_second(void **buffer, uintptr_t *size) {
  if (buffer) *buffer = hooks_b;
  if (size) *size = sizeof hooks_b / sizeof *hooks_b;
}

REFUSED(hooks, 1)
REFUSED(hooks, 3)
REFUSED(hooks, 4)
REFUSED(hooks, 5)

static const union slot hooks_table[] = {
    {.size = 7 * sizeof(union slot)},
    CALL(hooks_1),
    CALL(hooks_first),
    CALL(hooks_3),
    CALL(hooks_4),
    CALL(hooks_5),
    CALL(hooks_second),
};

/* cublasLt asks before it asks for the context's number below. */
static int tls_context(void **context) {
  if (!context) return VGPU_PRIVATE_INVALID_VALUE;
  *context = NULL;
  return vgpu_private_core_current(context);
}

REFUSED(tls, 1)

static const union slot tls_table[] = {
    {.size = 3 * sizeof(union slot)},
    CALL(tls_1),
    CALL(tls_context),
};

/* ---- CONTEXT_LOCAL_STORAGE (no size header) ------------------------------- */

REFUSED(storage, 3)

static const union slot storage_table[] = {
    CALL(vgpu_local_put),
    CALL(vgpu_local_delete),
    CALL(vgpu_local_get),
    CALL(storage_3),
};

/* ---- CONTEXT (tools) ------------------------------------------------------ */

/* cuCtxGetId's number. cublasLt uses it as key of its kernels and makes no GEMM without it. */
static int context_number(void *context, uint64_t *number) {
  if (!number) return VGPU_PRIVATE_INVALID_VALUE;
  return vgpu_private_core_number(context, number);
}

/*
 * cuBLAS 13.1 stores its workspaces by stream. It requests the inner handle of a stream, then the number of
 * that handle. Here the inner handle is the stream's own; for the default stream it is the one that the
 * caller means (legacy or per thread).
 */
static int inner_stream(void *context, void *stream, void **inner, int per_thread) {
  uint64_t number;
  (void)context;
  if (!inner) return VGPU_PRIVATE_INVALID_VALUE;
  if (!stream) stream = (void *)(uintptr_t)(per_thread ? 2 : 1);
  int result = vgpu_private_core_stream(stream, &number);
  if (result == VGPU_PRIVATE_SUCCESS) *inner = stream;
  return result;
}

static int stream_number(void *context, void *inner, uint64_t *number) {
  (void)context;
  if (!number) return VGPU_PRIVATE_INVALID_VALUE;
  return vgpu_private_core_stream(inner, number);
}

/* 77 slots in driver 535, 86 in 550. */
REFUSALS(context)
static const union slot context_table[128] = {
    REFUSING_SLOTS(context)[0] = {.size = 86 * sizeof(union slot)},
    [4] = CALL(context_number),
    [39] = CALL(stream_number),
    [51] = CALL(inner_stream),
};

/* ---- MODULES --------------------------------------------------------------- */

/* cuFFT finds its kernels with this function, not by name. */
static uint64_t module_functions(void *context, void *module, vgpu_private_function *take, void *user) {
  (void)context;
  return take == NULL ? 0 : vgpu_private_core_functions(module, take, user);
}

/* 88 slots in driver 535, 92 in 550. */
REFUSALS(modules)
static const union slot modules_table[128] = {
    REFUSING_SLOTS(modules)[0] = {.size = 92 * sizeof(union slot)},
    [7] = CALL(module_functions),
};

/* ---- CONTEXT_CHECKS ------------------------------------------------------- */

static int context_check(void *context, uint32_t *flags, const void **detail) {
  (void)context;
  (void)detail;
  if (flags) *flags = 0; /* an ordinary context */
  return VGPU_PRIVATE_SUCCESS;
}

static uint32_t process_check(void) {
  return 0;
}

REFUSED(checks, 1)
REFUSED(checks, 4)

static const union slot checks_table[] = {
    {.size = 5 * sizeof(union slot)},
    CALL(checks_1),
    CALL(context_check),
    CALL(process_check),
    CALL(checks_4),
};

/* ---- INTEGRITY_CHECK ------------------------------------------------------ */

static int integrity_check(uint32_t version, uint64_t seconds, uint8_t answer[16]);

REFUSED(integrity, 2)

static const union slot integrity_table[] = {
    {.size = 3 * sizeof(union slot)},
    CALL(integrity_check),
    CALL(integrity_2),
};

static int integrity_check(uint32_t version, uint64_t seconds, uint8_t answer[16]) {
  struct vgpu_integrity_device devices[VGPU_PRIVATE_MAX_DEVICES];
  unsigned count = 0;
  struct vgpu_integrity_question question = {
      .runtime_version = version,
      .process = (uint32_t)getpid(),
      /* The low half of pthread_self(), not the kernel's thread id. */
      .thread = (uint32_t)(uintptr_t)pthread_self(),
      .cudart_table = (uintptr_t)cudart_table,
      .integrity_table = (uintptr_t)integrity_table,
      .function = integrity_table[1].size,
      .seconds = seconds,
  };

  if (!answer) return VGPU_PRIVATE_INVALID_VALUE;
  int result = vgpu_private_core_devices(&question.driver_version, devices, &count);
  if (result != VGPU_PRIVATE_SUCCESS) return result;
  vgpu_integrity_answer(&question, devices, count, answer);
  return VGPU_PRIVATE_SUCCESS;
}

/* ---- our own: the way to the host (guest/transport.h) ----------------------- */

static const union slot transport_table[] = {
    {.size = VGPU_TRANSPORT_TABLE_BYTES},
    CALL(vgpu_private_core_transport),
};
_Static_assert(sizeof transport_table == VGPU_TRANSPORT_TABLE_BYTES, "transport table");

/* ---- any other ------------------------------------------------------------- */

/*
 * Some libraries (cublasLt 13.1) call into unknown tables without a check: NULL crashes them, an error does
 * not. So each unknown id gets this table. Slot 0 is a size, as in all known tables but one.
 */
REFUSALS(unknown)
static const union slot unknown_table[128] = {
    REFUSING_SLOTS(unknown)[0] = {.size = sizeof unknown_table},
};

/* ---- by id ---------------------------------------------------------------- */

static const struct {
  unsigned char uuid[16];
  const union slot *table;
} known[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
     cudart_table},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
     hooks_table},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
     tls_table},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
     storage_table},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
     context_table},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e},
     modules_table},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
     checks_table},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
     integrity_table},
    {VGPU_TRANSPORT_TABLE, transport_table},
};

/* The runtime asks whether to skip its initialization; drivers 535 and 550 have no such table. */
static const unsigned char none[16] = {0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e,
                                       0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9};

int vgpu_private_table(const void **table, const unsigned char uuid[16]) {
  if (!table) return VGPU_PRIVATE_INVALID_VALUE;
  *table = NULL;
  if (!uuid) return VGPU_PRIVATE_INVALID_VALUE;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (memcmp(known[i].uuid, uuid, sizeof known[i].uuid) == 0) {
      *table = known[i].table;
      return VGPU_PRIVATE_SUCCESS;
    }
  }
  if (memcmp(none, uuid, sizeof none) == 0) return VGPU_PRIVATE_INVALID_VALUE;
  vgpu_private_core_unknown(uuid);
  *table = unknown_table;
  return VGPU_PRIVATE_SUCCESS;
}
