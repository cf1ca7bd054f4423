/*
 * Drives the functions of libcuda.so.1 for code by lines on stdin, answered like driver_shell's: "COMMAND
 * ARGUMENTS" gives "COMMAND RESULT VALUES". Handles are kept in numbered slots. The declarations are written
 * by hand from the public API, because the generated ones are under test, too.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

static void *slots[64];

static uint64_t number(const char *text) {
  return text == NULL ? 0 : strtoull(text, NULL, 0);
}

static void **slot(const char *text) {
  return &slots[number(text) % 64];
}

static unsigned char *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  size_t room = (size_t)ftell(file);
  rewind(file);
  unsigned char *bytes = malloc(room + 1);
  *size = fread(bytes, 1, room, file);
  bytes[*size] = '\0';
  fclose(file);
  return bytes;
}

static size_t from_hex(const char *text, unsigned char *to, size_t room) {
  size_t count = 0;
  for (; text != NULL && text[0] != '\0' && text[1] != '\0' && count < room; text += 2) {
    char pair[3] = {text[0], text[1], '\0'};
    to[count++] = (unsigned char)strtoul(pair, NULL, 16);
  }
  return count;
}

static int begin(void) {
  void *context = NULL;
  int result = CALL((unsigned), cuInit, 0);
  if (result == 0) result = CALL((void **, int), cuDevicePrimaryCtxRetain, &context, 0);
  if (result == 0) result = CALL((void *), cuCtxSetCurrent, context);
  return result;
}

/* load SLOT FILE [wrapper VERSION [TIMES] | log BYTES] */
static void do_load(char **word, int as_library) {
  size_t size = 0;
  unsigned char *bytes = read_file(word[2], &size);
  struct {
    uint32_t magic, version;
    const void *data;
    const void *const *more;
  } wrapper = {0x466243b1, (uint32_t)number(word[4]), bytes, NULL};
  const void *more[512] = {bytes, NULL};
  if (wrapper.version == 2) {
    for (size_t i = 1; word[5] != NULL && i < number(word[5]) && i < 511; i++) more[i] = bytes;
    wrapper.data = NULL;
    wrapper.more = more;
  }
  const void *code = word[3] != NULL && strcmp(word[3], "wrapper") == 0 ? (const void *)&wrapper : bytes;
  unsigned options = word[3] != NULL && strcmp(word[3], "log") == 0 ? 2 : 0;
  char log[4096] = "";
  int names[16] = {5, 6}; /* error log buffer and its size */
  void *values[16] = {log, (void *)(uintptr_t)number(word[4])};
  /* Other options: "options 24=1,29=0". */
  const char *list = word[3] != NULL && strcmp(word[3], "options") == 0 ? word[4] : NULL;
  for (char *end; list != NULL && options < 16; list = *end == ',' ? end + 1 : NULL) {
    names[options] = (int)strtol(list, &end, 10);
    values[options++] = (void *)(uintptr_t)strtoul(end + 1, &end, 10);
  }
  int result;
  if (as_library) {
    result = CALL((void **, const void *, int *, void **, unsigned, int *, void **, unsigned),
                  cuLibraryLoadData, slot(word[1]), code, names, values, options, NULL, NULL, 0);
  } else {
    result = CALL((void **, const void *, unsigned, int *, void **), cuModuleLoadDataEx, slot(word[1]), code,
                  options, names, values);
  }
  for (char *at = log; *at != '\0'; at++) {
    if (*at == '\n') *at = ' ';
  }
  printf("%s %d %" PRIuPTR " %s\n", word[0], result, (uintptr_t)values[1], log);
  free(bytes);
}

/* link TYPE FILE OUT: writes the linked image to a file. */
static void do_link(char **word) {
  size_t size = 0;
  unsigned char *bytes = read_file(word[2], &size);
  void *link = NULL, *image = NULL;
  int result = CALL((unsigned, int *, void **, void **), cuLinkCreate_v2, 0, NULL, NULL, &link);
  if (result == 0) {
    result = CALL((void *, int, void *, size_t, const char *, unsigned, int *, void **), cuLinkAddData_v2,
                  link, (int)number(word[1]), bytes, size, "input", 0, NULL, NULL);
  }
  if (result == 0) result = CALL((void *, void **, size_t *), cuLinkComplete, link, &image, &size);
  FILE *file = result == 0 ? fopen(word[3], "wb") : NULL;
  if (result == 0 && (file == NULL || fwrite(image, 1, size, file) != size)) result = -1;
  if (file != NULL) fclose(file);
  if (link != NULL) CALL((void *), cuLinkDestroy, link);
  printf("link %d\n", result);
  free(bytes);
}

static void do_parameters(const char *command, void *function) {
  printf("%s 0", command);
  size_t offset, size, i = 0, count = 0;
  for (; CALL((void *, size_t, size_t *, size_t *), cuFuncGetParamInfo, function, i, &offset, &size) == 0;
       i++) {
    printf(" %zu:%zu", offset, size);
  }
  int result = CALL((void *, size_t *), cuFuncGetParamCount, function, &count);
  if (i > 0 && (result != 0 || count != i)) printf(" but %zu", count);
  printf("\n");
}

/*
 * Gives the parameters in hexadecimal, as one buffer (`buffer`) or one by one, by the function's own layout.
 */
static void do_launch(char **word) {
  static unsigned char block[8192];
  void *function = *slot(word[1]);
  size_t size = from_hex(word[9], block, sizeof block);
  unsigned n[7];
  for (int i = 0; i < 7; i++) n[i] = (unsigned)number(word[2 + i]);
  void *pointers[64];
  size_t count = 0, offset, bytes;
  while (count < 64 && CALL((void *, size_t, size_t *, size_t *), cuFuncGetParamInfo, function, count,
                            &offset, &bytes) == 0) {
    pointers[count++] = block + offset;
  }
  void *extra[] = {(void *)1, block, (void *)2, &size, NULL};
  int as_buffer = word[10] != NULL && strcmp(word[10], "buffer") == 0;
  int cooperative = word[10] != NULL && strcmp(word[10], "cooperative") == 0;
  int result;
  if (cooperative) {
    result =
        CALL((void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **),
             cuLaunchCooperativeKernel, function, n[0], n[1], n[2], n[3], n[4], n[5], n[6], NULL, pointers);
  } else if (word[10] != NULL && strcmp(word[10], "ex") == 0) {
    struct {
      uint32_t id, pad;
      uint64_t value[8];
    } attribute = {.id = (uint32_t)number(word[11]), .value = {number(word[12]), number(word[13])}};
    struct {
      unsigned grid[3], block[3], shared, pad;
      void *stream;
      void *attributes;
      unsigned count, pad_too;
    } config = {{n[0], n[1], n[2]}, {n[3], n[4], n[5]}, n[6], 0, NULL, &attribute, 1, 0};
    result =
        CALL((const void *, void *, void **, void **), cuLaunchKernelEx, &config, function, pointers, NULL);
  } else {
    result = CALL((void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                   void **, void **),
                  cuLaunchKernel, function, n[0], n[1], n[2], n[3], n[4], n[5], n[6], NULL,
                  as_buffer ? NULL : pointers, as_buffer ? extra : NULL);
  }
  printf("%s %d\n", word[0], result);
}

static void do_global(char **word, int of_library) {
  uint64_t address = 0;
  size_t bytes = 0;
  int result = of_library ? CALL((uint64_t *, size_t *, void *, const char *), cuLibraryGetGlobal, &address,
                                 &bytes, *slot(word[1]), word[2])
                          : CALL((uint64_t *, size_t *, void *, const char *), cuModuleGetGlobal_v2, &address,
                                 &bytes, *slot(word[1]), word[2]);
  unsigned char value[64] = {0};
  size_t shown = bytes < sizeof value ? bytes : sizeof value;
  if (result == 0) result = CALL((void *, uint64_t, size_t), cuMemcpyDtoH_v2, value, address, shown);
  printf("%s %d %zu ", word[0], result, bytes);
  for (size_t i = 0; i < shown; i++) printf("%02x", value[i]);
  printf(" %" PRIu64 "\n", address);
}

static void do_names(char **word, int of_library) {
  void *found[64];
  unsigned count = 0;
  int result = of_library ? CALL((unsigned *, void *), cuLibraryGetKernelCount, &count, *slot(word[1]))
                          : CALL((unsigned *, void *), cuModuleGetFunctionCount, &count, *slot(word[1]));
  if (result == 0) {
    result = of_library
                 ? CALL((void **, unsigned, void *), cuLibraryEnumerateKernels, found, 64, *slot(word[1]))
                 : CALL((void **, unsigned, void *), cuModuleEnumerateFunctions, found, 64, *slot(word[1]));
  }
  printf("%s %d %u", word[0], result, count);
  for (unsigned i = 0; result == 0 && i < count && i < 64; i++) {
    const char *name = "?";
    CALL((const char **, void *), cuFuncGetName, &name, found[i]);
    printf(" %s", name);
  }
  printf("\n");
}

static size_t dynamic_of(int block) {
  return (size_t)block * 16;
}

static int is(char **word, const char *name) {
  return strcmp(word[0], name) == 0;
}

static void carry_out(char **word) {
  int value = 0, more = 0;
  size_t size = 0;
  if (is(word, "begin")) printf("begin %d\n", begin());
  else if (is(word, "load")) do_load(word, 0);
  else if (is(word, "library")) do_load(word, 1);
  else if (is(word, "link")) do_link(word);
  else if (is(word, "file"))
    printf("file %d\n", CALL((void **, const char *), cuModuleLoad, slot(word[1]), word[2]));
  else if (is(word, "unload")) printf("unload %d\n", CALL((void *), cuModuleUnload, *slot(word[1])));
  else if (is(word, "drop")) printf("drop %d\n", CALL((void *), cuLibraryUnload, *slot(word[1])));
  else if (is(word, "function"))
    printf("function %d\n", CALL((void **, void *, const char *), cuModuleGetFunction, slot(word[1]),
                                 *slot(word[2]), word[3]));
  else if (is(word, "kernel"))
    printf("kernel %d\n",
           CALL((void **, void *, const char *), cuLibraryGetKernel, slot(word[1]), *slot(word[2]), word[3]));
  else if (is(word, "as_function"))
    printf("as_function %d\n", CALL((void **, void *), cuKernelGetFunction, slot(word[1]), *slot(word[2])));
  else if (is(word, "module_of"))
    printf("module_of %d\n", CALL((void **, void *), cuLibraryGetModule, slot(word[1]), *slot(word[2])));
  else if (is(word, "parameters")) do_parameters(word[0], *slot(word[1]));
  else if (is(word, "launch")) do_launch(word);
  else if (is(word, "attribute")) {
    int result = CALL((int *, int, void *), cuFuncGetAttribute, &value, (int)number(word[2]), *slot(word[1]));
    printf("attribute %d %d\n", result, value);
  } else if (is(word, "set"))
    printf("set %d\n", CALL((void *, int, int), cuFuncSetAttribute, *slot(word[1]), (int)number(word[2]),
                            (int)number(word[3])));
  else if (is(word, "kernel_set"))
    printf("kernel_set %d\n", CALL((int, int, void *, int), cuKernelSetAttribute, (int)number(word[2]),
                                   (int)number(word[3]), *slot(word[1]), 0));
  else if (is(word, "global")) do_global(word, 0);
  else if (is(word, "library_global")) do_global(word, 1);
  else if (is(word, "free")) printf("free %d\n", CALL((uint64_t), cuMemFree_v2, number(word[1])));
  else if (is(word, "names")) do_names(word, 0);
  else if (is(word, "kernels")) do_names(word, 1);
  else if (is(word, "sync")) printf("sync %d\n", CALL((void), cuCtxSynchronize));
  else if (is(word, "blocks")) {
    int result = CALL((int *, void *, int, size_t), cuOccupancyMaxActiveBlocksPerMultiprocessor, &value,
                      *slot(word[1]), (int)number(word[2]), number(word[3]));
    printf("blocks %d %d\n", result, value);
  } else if (is(word, "potential")) {
    int result = CALL((int *, int *, void *, size_t (*)(int), size_t, int), cuOccupancyMaxPotentialBlockSize,
                      &value, &more, *slot(word[1]), word[2] == NULL ? NULL : dynamic_of, 0, 0);
    printf("potential %d %d %d\n", result, value, more);
  } else if (is(word, "available")) {
    int result = CALL((size_t *, void *, int, int), cuOccupancyAvailableDynamicSMemPerBlock, &size,
                      *slot(word[1]), (int)number(word[2]), (int)number(word[3]));
    printf("available %d %zu\n", result, size);
  } else printf("%s -2\n", word[0]);
}

int main(void) {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  static char line[32768];
  while (fgets(line, sizeof line, stdin) != NULL) {
    char *word[16] = {0};
    int count = 0;
    for (char *at = strtok(line, " \n"); at != NULL && count < 15; at = strtok(NULL, " \n"))
      word[count++] = at;
    if (count > 0) carry_out(word);
    fflush(stdout);
  }
  return 0;
}
