#include "host/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/session/accounts.h"
#include "host/usage.h"
#include "host/backend/cuda/driver.h"
#include "host/backend/software/ptx/ptx.h"

static bool in_range(const char *text, unsigned long long least, unsigned long long most, int base,
                     unsigned long long *value) {
  char *end;
  errno = 0;
  *value = strtoull(text, &end, base);
  return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *value >= least && *value <= most;
}

static bool number(const char *option, const char *text, unsigned long long least, unsigned long long most,
                   int base, unsigned long long *value) {
  if (in_range(text, least, most, base, value)) return true;
  if (base == 8)
    fprintf(stderr, "vgpu-hostd: --%s \"%s\" is not an octal mode up to %llo\n", option, text, most);
  else
    fprintf(stderr, "vgpu-hostd: --%s \"%s\" is not a number from %llu to %llu\n", option, text, least, most);
  return false;
}

static bool device(const char *text, struct vgpu_options *options) {
  if (strcmp(text, "software") == 0 || strcmp(text, "cuda") == 0) options->device = text;
  else fprintf(stderr, "vgpu-hostd: --device \"%s\" is neither software nor cuda\n", text);
  return options->device != 0;
}

static bool kernels(const char *text, struct vgpu_options *options) {
  if (strcmp(text, "run") == 0) options->kernels = VGPU_KERNELS_RUN;
  else if (strcmp(text, "refuse") == 0) options->kernels = VGPU_KERNELS_REFUSE;
  else if (strcmp(text, "skip") == 0) options->kernels = VGPU_KERNELS_SKIP;
  else {
    fprintf(stderr, "vgpu-hostd: --software-kernels \"%s\" is neither run nor refuse nor skip\n", text);
    return false;
  }
  return true;
}

static bool checks(const char *text, struct vgpu_options *options) {
  const char *at = text;
  for (;;) {
    size_t length = strcspn(at, ",");
    if (length == 4 && strncmp(at, "race", 4) == 0) options->checks |= PTX_CHECK_RACE;
    else if (length == 4 && strncmp(at, "init", 4) == 0) options->checks |= PTX_CHECK_INIT;
    else break;
    if (at[length] == '\0') return true;
    at += length + 1;
  }
  fprintf(stderr, "vgpu-hostd: --check \"%s\" is neither race nor init nor race,init\n", text);
  return false;
}

static bool compiles(const char *text, struct vgpu_options *options) {
  static const char *const words[] = {[PTX_COMPILE_NEVER] = "never",
                                      [PTX_COMPILE_AUTO] = "auto",
                                      [PTX_COMPILE_ALWAYS] = "always",
                                      [PTX_COMPILE_CHECK] = "check"};
  for (uint32_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(text, words[i]) != 0) continue;
    options->compile = i;
    return true;
  }
  fprintf(stderr, "vgpu-hostd: --software-compile \"%s\" is neither never nor auto nor always nor check\n",
          text);
  return false;
}

static bool listen_on(const char *text, struct vgpu_options *options) {
  if (options->listen_count == VGPU_LISTEN_MAX) {
    fprintf(stderr, "vgpu-hostd: more than %u --listen\n", VGPU_LISTEN_MAX);
    return false;
  }
  options->listen[options->listen_count++] = text;
  return true;
}

static bool take(const char *name, int letter, struct vgpu_options *options) {
  unsigned long long value = 0;
  switch (letter) {
    case 'd':
      return device(optarg, options);
    case 'l':
      return listen_on(optarg, options);
    case 'p':
      if (options->profile_count == VGPU_DEVICES_MAX) {
        fprintf(stderr, "vgpu-hostd: more than %u times --profile\n", VGPU_DEVICES_MAX);
        return false;
      }
      options->profiles[options->profile_count++] = optarg;
      return true;
    case 'c':
      options->cuda_library = optarg;
      return true;
    case 'v':
      options->nvml_library = optarg;
      return true;
    case 'j':
      options->json = true;
      return true;
    case 'o':
      if (!number(name, optarg, 0, 0777, 8, &value)) return false;
      options->socket_mode = (uint32_t)value;
      return true;
    case 'm':
      if (!number(name, optarg, 0, 1ull << 50, 10, &value)) return false;
      options->session_memory = value;
      return true;
    case 'n':
      if (!number(name, optarg, 1, 1u << 24, 10, &value)) return false;
      options->session_handles = (uint32_t)value;
      return true;
    case 'C':
      if (!number(name, optarg, 1u << 20, 1ull << 40, 10, &value)) return false;
      options->session_code = value;
      return true;
    case 'a':
      if (!number(name, optarg, 0, 1ull << 50, 10, &value)) return false;
      options->session_shared = value;
      return true;
    case 'i':
      if (!number(name, optarg, 0, 1ull << 40, 10, &value)) return false;
      options->image_cache = value;
      return true;
    case 'O':
      if (!number(name, optarg, 1u << 20, 1ull << 40, 10, &value)) return false;
      options->outstanding = value;
      return true;
    case 'r':
      if (!number(name, optarg, 0, 1000000000, 10, &value)) return false;
      options->calls = (uint32_t)value;
      return true;
    case 'f':
      options->config = optarg;
      return true;
    case 'T':
      options->control = optarg;
      return true;
    case 'M':
      options->metrics = optarg;
      return true;
    case 'W':
      options->watch = true;
      return true;
    case 'x':
      options->check_config = true;
      return true;
    case 'U':
      options->user = optarg;
      return true;
    case 'F':
      options->self_check = true;
      return true;
    case 'N':
      options->no_seccomp = true;
      return true;
    case 'G':
      options->worker_groups = true;
      return true;
    case 'k':
      return kernels(optarg, options);
    case 'P':
      return compiles(optarg, options);
    case 'K':
      return checks(optarg, options);
    case 'L':
      options->launch_log = optarg;
      return true;
    case 's':
      if (!number(name, optarg, 1, VGPU_SESSIONS_MAX, 10, &value)) return false;
      options->sessions = (uint32_t)value;
      return true;
    default:
      return false; /* getopt has printed the reason */
  }
}

static enum vgpu_options_result take_order(int count, char **words, struct vgpu_options *options) {
  const char *order = words[0];
  bool asks = strcmp(order, "status") == 0 || strcmp(order, "sessions") == 0 || strcmp(order, "metrics") == 0;
  bool one =
      asks || strcmp(order, "reload") == 0 || strcmp(order, "drain") == 0 || strcmp(order, "hand-over") == 0;
  unsigned long long session = 0;
  if (strcmp(order, "end") == 0) {
    if (count != 2) {
      fputs("vgpu-hostd: end takes the number of one session, as `vgpu-hostd sessions` lists it\n", stderr);
      return VGPU_OPTIONS_BAD;
    }
    if (!in_range(words[1], 1, UINT64_MAX, 10, &session)) {
      fprintf(stderr,
              "vgpu-hostd: end: \"%s\" is not the number of a session, as `vgpu-hostd sessions` lists it\n",
              words[1]);
      return VGPU_OPTIONS_BAD;
    }
    snprintf(options->order, sizeof options->order, "end %llu", session);
  } else if (!one || count != 1) {
    fprintf(stderr,
            "vgpu-hostd: \"%s\" is not an option, nor one of status, sessions, metrics, end, reload, drain, "
            "hand-over\n",
            one ? words[1] : order);
    return VGPU_OPTIONS_BAD;
  } else {
    bool json = options->json && (strcmp(order, "status") == 0 || strcmp(order, "sessions") == 0);
    snprintf(options->order, sizeof options->order, "%s", json ? "status json" : order);
  }
  if (options->watch && !asks) {
    fputs("vgpu-hostd: --watch goes with status, sessions and metrics\n", stderr);
    return VGPU_OPTIONS_BAD;
  }
  return VGPU_OPTIONS_RUN;
}

enum vgpu_options_result vgpu_options_parse(int count, char **words, struct vgpu_options *options) {
  static const struct option known[] = {{"device", required_argument, NULL, 'd'},
                                        {"listen", required_argument, NULL, 'l'},
                                        {"profile", required_argument, NULL, 'p'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"socket-mode", required_argument, NULL, 'o'},
                                        {"session-memory", required_argument, NULL, 'm'},
                                        {"session-handles", required_argument, NULL, 'n'},
                                        {"sessions", required_argument, NULL, 's'},
                                        {"cuda-library", required_argument, NULL, 'c'},
                                        {"nvml-library", required_argument, NULL, 'v'},
                                        {"session-shared", required_argument, NULL, 'a'},
                                        {"session-code", required_argument, NULL, 'C'},
                                        {"session-outstanding", required_argument, NULL, 'O'},
                                        {"session-calls", required_argument, NULL, 'r'},
                                        {"config", required_argument, NULL, 'f'},
                                        {"check-config", no_argument, NULL, 'x'},
                                        {"user", required_argument, NULL, 'U'},
                                        {"self-check", no_argument, NULL, 'F'},
                                        {"control", required_argument, NULL, 'T'},
                                        {"metrics", required_argument, NULL, 'M'},
                                        {"watch", no_argument, NULL, 'W'},
                                        {"no-seccomp", no_argument, NULL, 'N'},
                                        {"worker-groups", no_argument, NULL, 'G'},
                                        {"image-cache", required_argument, NULL, 'i'},
                                        {"software-kernels", required_argument, NULL, 'k'},
                                        {"software-compile", required_argument, NULL, 'P'},
                                        {"check", required_argument, NULL, 'K'},
                                        {"launch-log", required_argument, NULL, 'L'},
                                        {"help", no_argument, NULL, 'h'},
                                        {"version", no_argument, NULL, 'V'},
                                        {NULL, 0, NULL, 0}};
  *options = (struct vgpu_options){.cuda_library = VGPU_CUDA_LIBRARY,
                                   .nvml_library = VGPU_NVML_LIBRARY,
                                   .socket_mode = 0666,
                                   .session_handles = 65536,
                                   .session_shared = 8ull << 30,
                                   .sessions = 128,
                                   .kernels = VGPU_KERNELS_RUN,
                                   .compile = PTX_COMPILE_AUTO,
                                   .session_code = 1ull << 30,
                                   .outstanding = 256ull << 20,
                                   .image_cache = 256ull << 20};
  int letter, index = 0;
  bool help = false, version = false;
  while ((letter = getopt_long(count, words, "", known, &index)) != -1) {
    if (letter == 'h') help = true;
    else if (letter == 'V') version = true;
    else if (!take(known[index].name, letter, options)) return VGPU_OPTIONS_BAD;
  }
  if (help || version) {
    if (optind < count) {
      fprintf(stderr, "vgpu-hostd: unexpected argument \"%s\" (see --help)\n", words[optind]);
      return VGPU_OPTIONS_BAD;
    }
    fputs(help ? usage : "vgpu-hostd " VGPU_VERSION "\n", stdout);
    return VGPU_OPTIONS_DONE;
  }
  if (optind < count) return take_order(count - optind, words + optind, options);
  if (options->watch) {
    fputs("vgpu-hostd: --watch goes with status, sessions and metrics\n", stderr);
    return VGPU_OPTIONS_BAD;
  }
  if (options->device == 0 && !options->check_config) {
    fputs("vgpu-hostd: --device software|cuda is missing (see --help)\n", stderr);
    return VGPU_OPTIONS_BAD;
  }
  if (options->checks != 0 && strcmp(options->device, "software") != 0) {
    fputs("vgpu-hostd: --check needs --device software: a real GPU runs kernels as they are\n", stderr);
    return VGPU_OPTIONS_BAD;
  }
  return VGPU_OPTIONS_RUN;
}
