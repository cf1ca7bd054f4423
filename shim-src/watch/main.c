/*
 * vgpu-watch: what the service vgpu-agent cannot do from Node. Reads commands, one a line, on standard
 * input and writes events, one a line, to standard output; ends when standard input does.
 *
 * With `-- COMMAND...` it starts the command, which writes its commands to descriptor 3 and reads the
 * events from descriptor 4 (and has VGPU_WATCH=3,4 to know that), passes signals on to it, and ends as it
 * ends. That makes it the main process of the unit, the only one that systemd has to believe. The standard
 * error of the command passes through it (errors.h).
 *
 *   notify STATE      sd_notify(3); TAB stands for the line break between assignments
 *   tick              tells systemd's watchdog that the service lives, and looks at the host
 *   host ADDRESS      keeps a session open with the host there; `host` alone: with none
 *                     -> host up SIMULATED(0|1) DEVICE      -> host down REASON
 *   round-trip        -> round-trip MICROSECONDS, of the last tick; -1 when there was none
 *   locked PATH       does a process hold a POSIX lock on the file?
 *                     -> locked PID PATH                    -> free PATH
 *
 * Between commands it sleeps: an idle service costs one wake-up of this process a tick.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "watch/errors.h"
#include "watch/host.h"
#include "wire/clock.h"

#define LINE_MAX_BYTES 4096

static void notify(const char *state) {
  const char *path = getenv("NOTIFY_SOCKET");
  if (path == NULL || (path[0] != '/' && path[0] != '@')) return;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(path);
  if (length >= sizeof address.sun_path) return;
  memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';
  int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return;
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
  /* A failure is not reported: systemd notices the missing message. */
  (void)sendto(descriptor, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, size);
  close(descriptor);
}

static void lock_state(const char *path) {
  int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (descriptor < 0) descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  bool held = descriptor >= 0 && fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  if (descriptor >= 0) close(descriptor);
  if (held) printf("locked %ld %s\n", (long)lock.l_pid, path);
  else printf("free %s\n", path);
  fflush(stdout);
}

static void obey(struct vgpu_host_watch *watch, char *line) {
  char *rest = strchr(line, ' ');
  if (rest == NULL) rest = line + strlen(line);
  else *rest++ = '\0';
  if (strcmp(line, "tick") == 0) {
    notify("WATCHDOG=1");
    vgpu_host_watch_tick(watch);
  } else if (strcmp(line, "notify") == 0) {
    for (char *at = rest; (at = strchr(at, '\t')) != NULL;) *at = '\n';
    notify(rest);
  } else if (strcmp(line, "host") == 0) {
    vgpu_host_watch_begin(watch, rest);
  } else if (strcmp(line, "round-trip") == 0) {
    printf("round-trip %lld\n", watch->microseconds);
    fflush(stdout);
  } else if (strcmp(line, "locked") == 0) {
    lock_state(rest);
  } else {
    fprintf(stderr, "vgpu-watch: unknown command \"%s\"\n", line);
  }
}

/* Reads commands. False when the input has ended. A line that is too long is dropped. */
static bool take_input(struct vgpu_host_watch *watch) {
  static char pending[LINE_MAX_BYTES];
  static size_t filled;
  static bool dropping;
  ssize_t count = read(STDIN_FILENO, pending + filled, sizeof pending - filled);
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  if (count == 0) return false;
  filled += (size_t)count;
  char *begin = pending;
  for (char *end; (end = memchr(begin, '\n', filled - (size_t)(begin - pending))) != NULL; begin = end + 1) {
    *end = '\0';
    if (!dropping) obey(watch, begin);
    dropping = false;
  }
  filled -= (size_t)(begin - pending);
  memmove(pending, begin, filled);
  if (filled == sizeof pending) {
    dropping = true;
    filled = 0;
  }
  return true;
}

static volatile pid_t supervised;
static int errors_of_command = -1;

static void pass_on(int number) {
  if (supervised > 0) kill(supervised, number);
}

/* Runs the command in the child. Never returns. */
static void become(char **command, int commands, int events, int errors, pid_t parent) {
  /* The pipes first get high numbers, so that neither overwrites the other. */
  int high_commands = fcntl(commands, F_DUPFD_CLOEXEC, 10);
  int high_events = fcntl(events, F_DUPFD_CLOEXEC, 10);
  bool ready = high_commands >= 0 && high_events >= 0 && dup2(high_commands, 3) == 3 &&
               dup2(high_events, 4) == 4 && dup2(errors, STDERR_FILENO) >= 0 &&
               setenv("VGPU_WATCH", "3,4", 1) == 0;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (ready && getppid() == parent) execvp(command[0], command);
  fprintf(stderr, "vgpu-watch: cannot run %s: %s\n", command[0], strerror(errno));
  _exit(127);
}

/* Starts the command and uses its two pipes as standard input and output. */
static bool supervise(char **command) {
  int commands[2], events[2], errors[2];
  if (pipe2(commands, O_CLOEXEC) != 0 || pipe2(events, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0) {
    return false;
  }
  pid_t parent = getpid();
  pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) become(command, commands[1], events[0], errors[1], parent);
  supervised = child;
  errors_of_command = errors[0];
  bool ready = dup2(commands[0], STDIN_FILENO) >= 0 && dup2(events[1], STDOUT_FILENO) >= 0;
  close(commands[0]);
  close(commands[1]);
  close(events[0]);
  close(events[1]);
  close(errors[1]);
  struct sigaction action = {.sa_handler = pass_on};
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
  return ready;
}

static void pass_errors(void) {
  if (vgpu_watch_pass_errors(errors_of_command)) return;
  close(errors_of_command);
  errors_of_command = -1;
}

/* The command has closed its end, so it is ending: waits for it and returns its exit status. */
static int outcome(void) {
  int status = 0;
  if (supervised == 0) return 0;
  /* A child of the command may hold the pipe longer than the command lives. */
  for (pid_t ended = 0; ended <= 0;) {
    struct pollfd polled = {.fd = errors_of_command, .events = POLLIN};
    (void)poll(&polled, 1, 10);
    ended = waitpid(supervised, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) return 1;
    if (errors_of_command >= 0) pass_errors();
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Node's pipes are sockets. */
static bool is_pipe(int descriptor) {
  struct stat info;
  return fstat(descriptor, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
}

static const char usage[] =
    "usage: vgpu-watch [-- COMMAND...]\nA helper of the service vgpu-agent; it is not for use by hand.\n";

int main(int count, char **words) {
  bool supervising = count > 2 && strcmp(words[1], "--") == 0;
  if (count > 1 && !supervising) {
    bool help = strcmp(words[1], "--help") == 0;
    FILE *to = help ? stdout : stderr;
    fputs(usage, to);
    return help ? 0 : 2;
  }
  if (!supervising && !is_pipe(STDIN_FILENO)) {
    fputs("vgpu-watch: standard input is not a pipe\n", stderr);
    fputs(usage, stderr);
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  if (supervising) {
    if (!supervise(words + 2)) {
      fprintf(stderr, "vgpu-watch: cannot start %s: %s\n", words[2], strerror(errno));
      return 1;
    }
  } else {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  struct vgpu_host_watch watch = {.descriptor = -1, .notifier = -1, .microseconds = -1};
  for (;;) {
    struct pollfd polled[4] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = watch.descriptor, .events = POLLIN},
                               {.fd = watch.notifier, .events = POLLIN},
                               {.fd = errors_of_command, .events = POLLIN}};
    int ready = poll(polled, 4, watch.retry_at == 0 ? -1 : vgpu_left_ms(watch.retry_at));
    if (ready < 0 && errno != EINTR) return 1;
    if (ready < 0) continue;
    if (ready == 0) {
      vgpu_host_watch_due(&watch);
      continue;
    }
    /* One event at a time, because each may change the other descriptors. */
    if (polled[0].revents != 0) {
      if (!take_input(&watch)) return outcome();
    } else if (polled[1].revents != 0) {
      vgpu_host_watch_ended(&watch);
    } else if (polled[2].revents != 0) {
      vgpu_host_watch_stirred(&watch);
    } else if (polled[3].revents != 0) {
      pass_errors();
    }
  }
}
