/* The llama-server of the stand-in: lists devices, says its system_info, serves nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"

static void print_system_info(bool cuda) {
  fprintf(stderr, "0.00.004.017 I cmn  common_param: common_params_print_info: build 0 "
                  "(vgpu-agent's stand-in)\n");
  fprintf(stderr,
          "0.00.004.084 I cmn  common_param: system_info: n_threads = %ld (n_threads_batch = "
          "%ld) / %ld | CPU : SSE3 = 1 | %s\n",
          sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_NPROCESSORS_ONLN),
          cuda ? "CUDA : ARCHS = 500,600,610,700,750,800,860,890,900,1000,1030,1200,1210 | "
                 "USE_GRAPHS = 1 | "
               : "");
}

int main(int argc, char **argv) {
  struct device devices[MAX_DEVICES];
  const char *backend = setting("GGML_BACKEND_PATH");
  bool list = false, model = false;
  int count = -1;
  for (int index = 1; index < argc; index++) {
    if (strcmp(argv[index], "--list-devices") == 0) list = true;
    if (strcmp(argv[index], "--model") == 0) model = true;
    if (strcmp(argv[index], "--version") == 0) {
      printf("version: 0 (vgpu-agent's stand-in for Ollama's llama-server; runs no model)\n");
      return 0;
    }
  }
  if (*backend != '\0') count = ask_backend(backend, devices, MAX_DEVICES, true);
  if (list) {
    printf("Available devices:\n");
    for (int index = 0; index < count; index++) {
      printf("  CUDA%d: %s (%llu MiB, %llu MiB free)\n", index, devices[index].name,
             (unsigned long long)devices[index].total >> 20,
             (unsigned long long)devices[index].available >> 20);
    }
    if (count <= 0) printf("  (none)\n");
    return 0;
  }
  print_system_info(count >= 0);
  size_t bytes = strtoull(setting("STANDIN_MODEL_BYTES"), NULL, 10);
  if (model && count > 0 && bytes > 0) hold_memory(backend, bytes);
  for (;;) pause(); /* a server without requests; its parent ends it */
}
