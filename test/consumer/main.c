#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

static char version_answer[128], processes_answer[512];
/* The shape of Ollama's; no model is there, and no memory of a GPU is used. */
static const char busy_answer[] =
    "{\"models\":[{\"name\":\"stand-in\",\"size\":0,\"size_vram\":0,\"stand_in\":true}]}";

/* The list of loaded models as the test has it at this moment. */
static const char *loaded_models(void) {
  static char body[4096];
  FILE *file = fopen(setting("STANDIN_PS"), "rb");
  if (file == NULL) return busy() ? busy_answer : processes_answer;
  body[fread(body, 1, sizeof body - 1, file)] = '\0';
  fclose(file);
  return body;
}

static const char *answer(const char *path) {
  if (strcmp(path, "/") == 0) return "Ollama is running";
  if (strcmp(path, "/api/version") == 0) return version_answer;
  if (strcmp(path, "/api/ps") == 0) return loaded_models();
  if (strcmp(path, "/api/generate") == 0) return "{\"response\":\"\",\"done\":true,\"stand_in\":true}";
  return NULL;
}

static const char *version(void) {
  const char *told = setting("STANDIN_VERSION");
  return *told == '\0' ? design_version : told;
}

static void log_config(void) {
  char config[1024];
  text(config, sizeof config,
       "map[CUDA_VISIBLE_DEVICES:%s HIP_VISIBLE_DEVICES: OLLAMA_DEBUG:%s OLLAMA_HOST:%s "
       "OLLAMA_LLM_LIBRARY:%s "
       "OLLAMA_MODELS:/usr/share/ollama/.ollama/models OLLAMA_NUM_PARALLEL:1 "
       "ROCR_VISIBLE_DEVICES: http_proxy: no_proxy:]",
       setting("CUDA_VISIBLE_DEVICES"), log_wants(LEVEL_DEBUG) ? "DEBUG" : "INFO", setting("OLLAMA_HOST"),
       setting("OLLAMA_LLM_LIBRARY"));
  log_line(LEVEL_INFO, "routes.go:1332", "server config", "env", config, NULL);
  log_line(LEVEL_INFO, "images.go:477", "total blobs: 0", NULL);
  fprintf(stderr, "[GIN-debug] GET    /api/version              --> stand-in (1 handlers)\n");
  fprintf(stderr, "[GIN-debug] GET    /api/ps                   --> stand-in (1 handlers)\n");
}

static void serve(void) {
  struct device devices[MAX_DEVICES];
  char address[64], message[160];
  char first[] = "0";
  first[0] = (char)('0' + design_number);
  log_line(LEVEL_WARN, "standin.c:1",
           "this is vgpu-agent's stand-in for Ollama, not Ollama: it looks for GPUs and runs no model",
           "design", first, NULL);
  crash_at("start");
  log_config();
  int listener = http_listen(address, sizeof address);
  log_line(LEVEL_INFO, "routes.go:1385",
           text(message, sizeof message, "Listening on %s (version %s)", address, version()), NULL);
  crash_at("listen");
  useconds_t delay = (useconds_t)strtoul(setting("STANDIN_DELAY_MS"), NULL, 10) * 1000;
  if (delay > 0) usleep(delay);
  int count = discover(devices);
  extra_lines(true);
  crash_at("discovered");
  text(version_answer, sizeof version_answer, "{\"version\":\"%s\",\"stand_in\":true}", version());
  text(processes_answer, sizeof processes_answer, "{\"models\":[]}");
  if (strcmp(setting("STANDIN_KEEP_RUNNER"), "1") == 0) {
    signal(SIGCHLD, SIG_IGN); /* a runner that ends is not mourned */
    keep_runner(devices, count);
  }
  http_serve(listener, answer);
}

int main(int argc, char **argv) {
  run_subcommand(argc, argv);
  if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-v") == 0)) {
    printf("ollama version is %s (vgpu-agent's stand-in, design %d; not Ollama)\n", version(), design_number);
    return 0;
  }
  if (argc == 2 && strcmp(argv[1], "serve") == 0) {
    serve();
    return 0;
  }
  fprintf(stderr, "This is vgpu-agent's stand-in for Ollama; it knows: serve, --version\n");
  return 1;
}
