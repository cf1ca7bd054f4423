#include <string.h>

#include "cuda_api.h"
#include "guest/cuda/errors.h"
#include "guest/cuda/internal.h"
#include "guest/cuda/procaddress.h"
#include "guest/log.h"
#include "guest/private/private.h"

static const struct vgpu_error_row *find_error(int value) {
  for (unsigned i = 0; i < vgpu_error_row_count; i++) {
    if (vgpu_error_rows[i].value == value) return &vgpu_error_rows[i];
  }
  return NULL;
}

int cuGetErrorName(int32_t error, const char **pStr) {
  if (pStr == NULL) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_error_row *row = find_error(error);
  *pStr = row == NULL ? NULL : row->name;
  return row == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

int cuGetErrorString(int32_t error, const char **pStr) {
  if (pStr == NULL) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_error_row *row = find_error(error);
  *pStr = row == NULL ? NULL : row->text;
  return row == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Returns the first row of a base name, or the count of rows if there is none. */
static unsigned first_row(const char *base) {
  unsigned low = 0, high = vgpu_proc_row_count;
  while (low < high) {
    unsigned middle = low + (high - low) / 2;
    if (strcmp(vgpu_proc_rows[middle].base, base) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

enum { PROC_FOUND = 0, PROC_NOT_FOUND = 1, PROC_VERSION_TOO_LOW = 2 };
enum { FLAG_DEFAULT = 0, FLAG_LEGACY = 1, FLAG_PER_THREAD = 2 };

/*
 * Finds the newest signature that a program built for `version` knows, and its per-thread variant if that is
 * wanted and exists.
 */
static int find_entry(const char *base, int version, bool per_thread, void (**entry)(void)) {
  bool any = false, found = false, found_per_thread = false;
  for (unsigned i = first_row(base); i < vgpu_proc_row_count; i++) {
    const struct vgpu_proc_row *row = &vgpu_proc_rows[i];
    if (strcmp(row->base, base) != 0) break;
    any = true;
    if (row->version > version || (row->per_thread && !per_thread)) continue;
    if (found_per_thread && !row->per_thread) continue;
    *entry = row->entry;
    found = true;
    found_per_thread = row->per_thread;
  }
  return found ? PROC_FOUND : any ? PROC_VERSION_TOO_LOW : PROC_NOT_FOUND;
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int32_t cudaVersion, uint64_t flags,
                        int32_t *symbolStatus) {
  if (symbol == NULL || pfn == NULL || flags > FLAG_PER_THREAD) return CUDA_ERROR_INVALID_VALUE;
  void (*entry)(void) = NULL;
  int status = find_entry(symbol, cudaVersion, flags == FLAG_PER_THREAD, &entry);
  memcpy(pfn, &entry, sizeof entry);
  if (status != PROC_FOUND) vgpu_log("cuGetProcAddress: no \"%s\" for version %d", symbol, (int)cudaVersion);
  if (symbolStatus != NULL) *symbolStatus = status;
  /* The caller gets an error if it passes no pointer for the reason. */
  return status == PROC_FOUND || symbolStatus != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

int cuGetProcAddress(const char *symbol, void **pfn, int32_t cudaVersion, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
}

int cuGetExportTable(const void **ppExportTable, const void *pExportTableId) {
  if (ppExportTable == NULL || pExportTableId == NULL) return CUDA_ERROR_INVALID_VALUE;
  return vgpu_private_table(ppExportTable, pExportTableId);
}

/* No effect, as on a real driver without a profiler. */
int cuProfilerStart(void) {
  int result;
  struct vgpu_driver *driver = vgpu_cuda_driver(&result);
  struct vgpu_context *context = NULL;
  return driver == NULL ? result : vgpu_cuda_current(driver, &context);
}

int cuProfilerStop(void) {
  return cuProfilerStart();
}
