#ifndef VGPU_HOST_OPTIONS_H
#define VGPU_HOST_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frame.h"

#define VGPU_LISTEN_MAX 16u

enum vgpu_kernels { VGPU_KERNELS_RUN = 1, VGPU_KERNELS_SKIP = 2, VGPU_KERNELS_REFUSE = 3 };

struct vgpu_options {
  const char *device; /* of a backend */
  const char *listen[VGPU_LISTEN_MAX];
  uint32_t listen_count;
  const char *profiles[VGPU_DEVICES_MAX]; /* software; none: the one that is compiled in */
  uint32_t profile_count;
  const char *cuda_library;
  const char *nvml_library;
  bool json;
  uint32_t socket_mode;
  uint64_t session_memory; /* bytes; 0: no limit but the device's */
  uint32_t session_handles;
  uint32_t sessions;
  uint64_t session_shared; /* bytes; 0: frames go over the socket */
  enum vgpu_kernels kernels;
  uint32_t checks;        /* PTX_CHECK_* */
  uint32_t compile;       /* enum ptx_compile */
  const char *launch_log; /* NULL: none */
  uint64_t session_code;  /* bytes of memory for code of one session */
  uint64_t outstanding;   /* bytes of one session's calls that wait */
  uint32_t calls;         /* of one session, a second; 0: no limit */
  const char *config;     /* NULL: the default file, if there is one */
  bool check_config;
  bool self_check;
  const char *user; /* the user of workers when root starts the daemon; NULL: an id that no user has */
  const char
      *control; /* path of the control socket; NULL: none, or the default for commands that ask the daemon */
  const char *metrics; /* path of the metrics socket; NULL: none */
  /* A command for the running daemon ("status", "end 3"), see manage.h. "": this process is a daemon. */
  char order[32];
  bool watch; /* repeat the order every second */
  bool no_seccomp;
  bool worker_groups;
  uint64_t image_cache; /* bytes; 0: images are not kept between sessions */
};

enum vgpu_options_result { VGPU_OPTIONS_RUN = 0, VGPU_OPTIONS_DONE = 1, VGPU_OPTIONS_BAD = 2 };

/* BAD: the reason is on stderr. DONE: --help or --version. */
enum vgpu_options_result vgpu_options_parse(int count, char **words, struct vgpu_options *options);

#endif
