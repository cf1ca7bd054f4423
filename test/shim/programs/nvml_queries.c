/*
 * nvml_queries [answers]: asks every getter that the description carries to the host (shim-src/api/nvml.api),
 * for device 0 and with several values, and prints a line for each: its name, its numbers, its result and
 * what it wrote. What lies behind the memory that it was given must stay as it was. Without "answers" it also
 * asks what our library must refuse. Ends with 1 if anything is wrong, and with 2 without a device.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvml_queries.h"
#include "wire/query.h"

enum { INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25 };
enum { TEXT_BYTES = 96, ELEMENTS = 64, BEHIND = 64, PLACE = 8192, FIELD_BYTES = 40 };
static const uint32_t field_ids[] = {1, 94, 186, 187, 190, 192, 9999};
enum { FIELDS = sizeof field_ids / sizeof *field_ids };

static _Alignas(8) unsigned char memory[VGPU_QUERY_PARAMETERS][PLACE];
static void *devices[2];
static int wrong;

static void complain(const char *symbol, const char *what) {
  printf("%s: %s\n", symbol, what);
  wrong = 1;
}

static uint64_t size_of(const struct vgpu_query *query, uint32_t i, uint32_t version) {
  const struct vgpu_query_parameter *parameter = &query->parameters[i];
  switch (parameter->kind) {
    case VGPU_QUERY_TEXT:
      return TEXT_BYTES;
    case VGPU_QUERY_ITEMS:
      return (uint64_t)ELEMENTS * parameter->size;
    case VGPU_QUERY_FIELDS:
      return (uint64_t)FIELDS * parameter->size;
    case VGPU_QUERY_STRUCTURE:
      return version & 0xffffff;
    default:
      return parameter->size;
  }
}

/* Fills the values of a call whose numbers are `one` and `other`. */
static void prepare(const struct vgpu_query *query, uint64_t one, uint64_t other, uint64_t *values) {
  uint64_t next = one;
  memset(memory, 0x5a, sizeof memory);
  for (uint32_t i = 0; i < query->count; i++) {
    const uint32_t kind = query->parameters[i].kind;
    const uint32_t elements = ELEMENTS;
    values[i] = (uintptr_t)memory[i];
    if (kind == VGPU_QUERY_DEVICE) values[i] = (uintptr_t)devices[1];
    if (kind == VGPU_QUERY_COUNT) memcpy(memory[i], &elements, sizeof elements);
    if (kind == VGPU_QUERY_STRUCTURE) {
      const uint32_t version = query->parameters[i].versions[0];
      memset(memory[i], 0, version & 0xffffff);
      memcpy(memory[i], &version, sizeof version);
    }
    if (kind == VGPU_QUERY_FIELDS) {
      for (size_t k = 0; k < FIELDS; k++) memcpy(memory[i] + k * FIELD_BYTES, &field_ids[k], 4);
    }
    if (kind != VGPU_QUERY_VALUE) continue;
    values[i] = next;
    next = other;
    if (i > 0 && query->parameters[i - 1].kind == VGPU_QUERY_TEXT) values[i] = TEXT_BYTES;
    if (i + 1 < query->count && query->parameters[i + 1].kind == VGPU_QUERY_FIELDS) values[i] = FIELDS;
  }
}

static void print_written(const struct vgpu_query *query, uint32_t i) {
  uint32_t count = ELEMENTS, version;
  memcpy(&version, memory[i], sizeof version);
  uint64_t size = size_of(query, i, version);
  const uint32_t kind = query->parameters[i].kind;
  for (uint64_t k = size; k < size + BEHIND; k++)
    if (memory[i][k] != 0x5a) return complain(query->symbol, "it wrote behind its memory");
  if (kind == VGPU_QUERY_TEXT && strcmp(query->symbol, "nvmlDeviceGetSupportedPerformanceStates") != 0) {
    printf(" \"%.*s\"", TEXT_BYTES, (const char *)memory[i]);
    return;
  }
  for (uint32_t k = 0; k < query->count; k++)
    if (query->parameters[k].kind == VGPU_QUERY_COUNT) memcpy(&count, memory[k], sizeof count);
  if (kind == VGPU_QUERY_ITEMS) size = (uint64_t)count * query->parameters[i].size;
  printf(" ");
  for (uint64_t k = 0; k < size; k++) {
    /* The times of fields and of violations differ from one call to the next. */
    if (kind == VGPU_QUERY_FIELDS && k % FIELD_BYTES >= 8 && k % FIELD_BYTES < 24) continue;
    if (query->number == VGPU_QUERY_nvmlDeviceGetViolationStatus && k < 8) continue;
    printf("%02x", memory[i][k]);
  }
}

static void ask(const struct vgpu_query *query, vgpu_query_call call, void (*function)(void), uint64_t one,
                uint64_t other) {
  uint64_t values[VGPU_QUERY_PARAMETERS];
  prepare(query, one, other, values);
  int result = call(function, devices[0], values);
  printf("%s %" PRIu64 " %" PRIu64 " = %d", query->symbol, one, other, result);
  for (uint32_t i = 0; result == 0 && i < query->count; i++) {
    const uint32_t kind = query->parameters[i].kind;
    if (kind != VGPU_QUERY_VALUE && kind != VGPU_QUERY_DEVICE) print_written(query, i);
  }
  printf("\n");
}

/* NULL, versions and handles that are not accepted: the library refuses them without the host. */
static void ask_wrongly(const struct vgpu_query *query, vgpu_query_call call, void (*function)(void)) {
  uint64_t values[VGPU_QUERY_PARAMETERS];
  prepare(query, 0, 0, values);
  if (call(function, memory, values) != INVALID_ARGUMENT) complain(query->symbol, "takes any handle");
  for (uint32_t i = 0; i < query->count; i++) {
    const struct vgpu_query_parameter *parameter = &query->parameters[i];
    if (parameter->kind == VGPU_QUERY_VALUE || parameter->kind == VGPU_QUERY_ITEMS) continue;
    prepare(query, 0, 0, values);
    values[i] = 0;
    if (call(function, devices[0], values) != INVALID_ARGUMENT) complain(query->symbol, "takes NULL");
    if (parameter->kind != VGPU_QUERY_STRUCTURE) continue;
    for (uint32_t version = 0; version < 3; version++) {
      const uint32_t words[] = {9u << 24 | (parameter->versions[0] & 0xffffff), 1u << 24 | 0xffffff, 0};
      prepare(query, 0, 0, values);
      memcpy(memory[i], &words[version], sizeof *words);
      if (call(function, devices[0], values) != VERSION_MISMATCH)
        complain(query->symbol, "takes a version that is not carried");
    }
  }
}

/* A list that does not fit, and its length from a call without a list. */
static void ask_length(const struct vgpu_query *query, vgpu_query_call call, void (*function)(void)) {
  uint64_t values[VGPU_QUERY_PARAMETERS];
  for (uint32_t i = 0; i < query->count; i++) {
    if (query->parameters[i].kind != VGPU_QUERY_COUNT) continue;
    uint32_t count = 0;
    prepare(query, 2619, 0, values); /* a memory clock, for the clocks at it */
    memcpy(memory[i], &count, sizeof count);
    for (uint32_t k = 0; k < query->count; k++)
      if (query->parameters[k].kind == VGPU_QUERY_ITEMS) values[k] = 0;
    int result = call(function, devices[0], values);
    memcpy(&count, memory[i], sizeof count);
    printf("%s length = %d %" PRIu32 "\n", query->symbol, result, count);
  }
}

static uint32_t numbers(const struct vgpu_query *query) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < query->count; i++) found += query->parameters[i].kind == VGPU_QUERY_VALUE;
  return found;
}

int main(int argc, char **argv) {
  const bool only_answers = argc > 1 && strcmp(argv[1], "answers") == 0;
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  int (*init)(void) = library == NULL ? NULL : (int (*)(void))dlsym(library, "nvmlInit_v2");
  int (*find)(unsigned, void **) =
      library == NULL ? NULL : (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
  if (init == NULL || find == NULL || init() != 0 || find(0, &devices[0]) != 0) return 2;
  if (find(1, &devices[1]) != 0) devices[1] = devices[0];
  for (uint32_t i = 0; i < vgpu_query_count; i++) {
    const struct vgpu_query *query = &vgpu_queries[i];
    void (*function)(void) = (void (*)(void))dlsym(library, query->symbol);
    if (function == NULL) {
      complain(query->symbol, "is not exported");
      continue;
    }
    const uint32_t most = numbers(query) > 0 ? 4 : 1;
    for (uint64_t one = 0; one < most; one++)
      for (uint64_t other = 0; other < (numbers(query) > 1 ? 2u : 1u); other++)
        ask(query, vgpu_query_calls[i], function, one, other);
    if (!only_answers) ask_wrongly(query, vgpu_query_calls[i], function);
    ask_length(query, vgpu_query_calls[i], function);
  }
  int (*end)(void) = (int (*)(void))dlsym(library, "nvmlShutdown");
  if (end == NULL || end() != 0) complain("nvmlShutdown", "fails");
  return wrong;
}
