/*
 * vgpu-probe checks whether CUDA works for this user and environment: opens libcuda.so.1 and
 * libnvidia-ml.so.1 as any program would, copies a megabyte to the first device and back, runs kernels with
 * --compute, and prints one JSON document. It is not linked against the libraries, and loads them in a child:
 * if they are missing, hang or crash, the answer still comes in time.
 */
#include "probe/report.h"
#include "probe/sessions.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, NOT_OK = 1, USAGE = 2 };

static const char usage[] =
    "usage: vgpu-probe [--library PATH] [--compute] [--json] [--timeout SECONDS]\n"
    "       vgpu-probe --sessions [--follow] [--host ADDRESS] [--json] [--timeout SECONDS]\n"
    "\n"
    "Asks libcuda.so.1 and libnvidia-ml.so.1 for their devices, copies a megabyte to the\n"
    "first device and back, and prints one JSON document on stdout.\n"
    "\n"
    "  --library PATH     load this libcuda instead of the one that the loader finds, and\n"
    "                     the libnvidia-ml.so.1 beside it, if there is one\n"
    "  --compute          also run kernels on the first device and check every result\n"
    "  --sessions         list the sessions of this guest at the host instead; load no\n"
    "                     library and begin no session\n"
    "  --follow           with --sessions: one list for each line on standard input\n"
    "  --host ADDRESS     the host to ask (default: VGPU_HOST, else /etc/vgpu/guest.conf); of\n"
    "                     several, separated by commas, the first where this guest uses a device\n"
    "  --timeout SECONDS  give up after this long (default 10, at most 600)\n"
    "  --json             accepted; the output is always JSON\n"
    "\n"
    "Exit status: 0 CUDA works (or the host listed its sessions), 1 it does not (the document says why), 2 "
    "usage.\n";

static long long milliseconds(void) {
  struct timespec time;

  clock_gettime(CLOCK_MONOTONIC, &time);
  return (long long)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Asks once for each line. With PR_SET_DUMPABLE 0 no other process of this user can change the answers. */
static int follow_sessions(const char *host, int64_t limit_ms) {
  bool good = true;
  prctl(PR_SET_DUMPABLE, 0);
  for (int c; (c = getchar()) != EOF;) {
    if (c == '\n') good = vgpu_probe_sessions(host, limit_ms, stdout);
  }
  return good ? OK : NOT_OK;
}

/* Stdout is for the document only, whatever a library prints. */
static void child(struct vgpu_probe_report *report, const char *library, bool compute, pid_t parent) {
  int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

  if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  vgpu_probe_cuda(report, library, compute);
  report->cuda_done = true;
  vgpu_probe_nvml(report, library);
  report->finished = true;
  _exit(0);
}

/* Waits for the child until the deadline. False: the child had to be killed. */
static bool wait_for(pid_t pid, int pipe_end, long long deadline, int *status) {
  for (;;) {
    pid_t ended = waitpid(pid, status, WNOHANG);
    if (ended == pid) return true;
    long long left = deadline - milliseconds();
    if (left <= 0) break;
    /* The pipe closes when the child ends, unless a library has forked and keeps it open: poll again. */
    struct pollfd end = {.fd = pipe_end, .events = POLLIN};
    if (poll(&end, 1, left < 20 ? (int)left : 20) == 1) usleep(1000);
  }
  kill(pid, SIGKILL);
  /* A child that is stuck in the kernel does not end at once; do not wait for it. */
  for (int i = 0; i < 50 && waitpid(pid, status, WNOHANG) != pid; i++) usleep(2000);
  return false;
}

static void say_ended_early(struct vgpu_probe_report *report, bool in_time, int status, double limit) {
  char why[256];

  enum vgpu_probe_failure kind = !in_time              ? VGPU_PROBE_FAILURE_TIMEOUT
                                 : WIFSIGNALED(status) ? VGPU_PROBE_FAILURE_SIGNAL
                                                       : VGPU_PROBE_FAILURE_EXIT;
  if (kind == VGPU_PROBE_FAILURE_TIMEOUT) snprintf(why, sizeof why, "no answer within %g s", limit);
  else if (kind == VGPU_PROBE_FAILURE_SIGNAL)
    snprintf(why, sizeof why, "the library killed the process with signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  else snprintf(why, sizeof why, "the library ended the process with status %d", WEXITSTATUS(status));

  if (report->cuda_done) { /* NVML failed, which has a verdict of its own */
    snprintf(report->nvml_error, sizeof report->nvml_error, "%s", why);
    report->nvml_ok = false;
    report->finished = true;
    return;
  }
  if (!report->failed) { /* else it ended while it released objects after a failure */
    report->failed = true;
    report->kind = kind;
    snprintf(report->message, sizeof report->message, "%s", why);
  }
  snprintf(report->nvml_error, sizeof report->nvml_error, "not asked: %.48s did not return", report->step);
}

static bool parse_timeout(const char *text, double *seconds) {
  char *end = NULL;

  errno = 0;
  *seconds = strtod(text, &end);
  return errno == 0 && end != text && *end == '\0' && isfinite(*seconds) && *seconds > 0 && *seconds <= 600;
}

int main(int argc, char **argv) {
  static const struct option options[] = {
      {"library", required_argument, NULL, 'l'},
      {"compute", no_argument, NULL, 'c'},
      {"json", no_argument, NULL, 'j'},
      {"timeout", required_argument, NULL, 't'},
      {"sessions", no_argument, NULL, 's'},
      {"host", required_argument, NULL, 'H'},
      {"follow", no_argument, NULL, 'f'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  const char *library = NULL, *host = NULL;
  bool compute = false, sessions = false, follow = false;
  double limit = 10;
  int option, ends[2], status = 0;

  while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
    if (option == 'l') {
      library = optarg;
    } else if (option == 'c') {
      compute = true;
    } else if (option == 't') {
      if (!parse_timeout(optarg, &limit)) {
        fprintf(stderr, "vgpu-probe: --timeout %s: must be seconds, more than 0, at most 600\n", optarg);
        return USAGE;
      }
    } else if (option == 's') {
      sessions = true;
    } else if (option == 'f') {
      follow = true;
    } else if (option == 'H') {
      host = optarg;
    } else if (option == 'h') {
      fputs(usage, stdout);
      return OK;
    } else if (option != 'j') {
      fputs(usage, stderr);
      return USAGE;
    }
  }
  if (optind < argc) {
    fprintf(stderr, "vgpu-probe: unexpected argument \"%s\"\n%s", argv[optind], usage);
    return USAGE;
  }
  if (sessions ? library != NULL || compute : host != NULL || follow) {
    fprintf(stderr,
            "vgpu-probe: --sessions goes with --follow, --host and --timeout only, and --host and --follow "
            "with --sessions\n%s",
            usage);
    return USAGE;
  }
  int64_t limit_ms = (int64_t)(limit * 1000);
  if (follow) return follow_sessions(host, limit_ms);
  if (sessions) return vgpu_probe_sessions(host, limit_ms, stdout) ? OK : NOT_OK;

  long long deadline = milliseconds() + (long long)(limit * 1000);
  struct vgpu_probe_report *report =
      mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (report == MAP_FAILED || pipe2(ends, O_CLOEXEC) != 0) {
    fprintf(stderr, "vgpu-probe: %s\n", strerror(errno));
    return NOT_OK;
  }
  snprintf(report->step, sizeof report->step, "start");
  pid_t parent = getpid();
  pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    child(report, library, compute, parent);
  }
  close(ends[1]);
  bool in_time = pid > 0 && wait_for(pid, ends[0], deadline, &status);
  if (pid < 0) {
    report->failed = true;
    snprintf(report->message, sizeof report->message, "fork: %s", strerror(errno));
  } else if (!report->finished) {
    say_ended_early(report, in_time, status, limit);
  }
  if (!vgpu_probe_print(report, stdout)) {
    fprintf(stderr, "vgpu-probe: cannot write the answer: %s\n", strerror(errno));
    return NOT_OK;
  }
  return vgpu_probe_ok(report) ? OK : NOT_OK;
}
