/*
 * vgpu-watch: what the service vgpu-agent cannot do from Node. Reads commands, one a line, on stdin and
 * writes events, one a line, to stdout; ends when stdin does.
 *
 * With `-- COMMAND...` it starts the command, which writes its commands to descriptor 3 and reads events from
 * descriptor 4 (VGPU_WATCH=3,4), passes signals on to it and exits as it does. So it is the unit's main
 * process, the only one that systemd believes. The command's stderr passes through (errors.h).
 *
 *   notify STATE      sd_notify(3); TAB separates assignments
 *   tick              feeds systemd's watchdog, and checks the host
 *   host ADDRESS      keeps a session open with this host; `host` alone: with none
 *                     -> host up SIMULATED(0|1) DEVICE      -> host down REASON
 *   host LIST         the same with several hosts, numbered from 1
 *                     -> host 2 up SIMULATED(0|1) DEVICE    -> host 2 down REASON
 *   round-trip [N]    -> round-trip MICROSECONDS, of the last tick (of host N); -1: none
 *   locked PATH       does a process hold a POSIX lock on the file?
 *                     -> locked PID PATH                    -> free PATH
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
  /* Not reported: systemd notices the missing message. */
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

/* All hosts. Elements behind the list have no address and do nothing. */
static struct vgpu_host_watch watches[VGPU_HOSTS_MAX];

static void watch_hosts(const char *list) {
  struct vgpu_hosts hosts = {.count = 0};
  for (unsigned i = 0; i < VGPU_HOSTS_MAX; i++) vgpu_host_watch_end(&watches[i]);
  if (*list == '\0') return;
  /* A list that cannot be split is reported as an address that is not valid. */
  if (!vgpu_hosts_split(list, &hosts)) hosts = (struct vgpu_hosts){.count = 1};
  for (unsigned i = 0; i < hosts.count; i++)
    vgpu_host_watch_begin(&watches[i], hosts.addresses[i], i + 1, hosts.count);
}

static void obey(char *line) {
  char *rest = strchr(line, ' ');
  if (rest == NULL) rest = line + strlen(line);
  else *rest++ = '\0';
  if (strcmp(line, "tick") == 0) {
    notify("WATCHDOG=1");
    for (unsigned i = 0; i < VGPU_HOSTS_MAX; i++) vgpu_host_watch_tick(&watches[i]);
  } else if (strcmp(line, "notify") == 0) {
    for (char *at = rest; (at = strchr(at, '\t')) != NULL;) *at = '\n';
    notify(rest);
  } else if (strcmp(line, "host") == 0) {
    watch_hosts(rest);
  } else if (strcmp(line, "round-trip") == 0) {
    unsigned long number = *rest == '\0' ? 1 : strtoul(rest, NULL, 10);
    bool known = number >= 1 && number <= VGPU_HOSTS_MAX;
    printf("round-trip %lld\n", known ? watches[number - 1].microseconds : -1);
    fflush(stdout);
  } else if (strcmp(line, "locked") == 0) {
    lock_state(rest);
  } else {
    fprintf(stderr, "vgpu-watch: unknown command \"%s\"\n", line);
  }
}

/* False: the input has ended. A line that is too long is dropped. */
static bool take_input(void) {
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
    if (!dropping) obey(begin);
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

/* Starts the command. The two pipes become this process's input and output. */
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

/* Waits for the command, which is ending, and returns its exit status. */
static int outcome(void) {
  int status = 0;
  if (supervised == 0) return 0;
  /* A child of the command may hold the pipe for longer. */
  for (pid_t ended = 0; ended <= 0;) {
    struct pollfd polled = {.fd = errors_of_command, .events = POLLIN};
    (void)poll(&polled, 1, 10);
    ended = waitpid(supervised, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) return 1;
    if (errors_of_command >= 0) pass_errors();
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

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
  for (unsigned i = 0; i < VGPU_HOSTS_MAX; i++) watches[i] = (struct vgpu_host_watch)VGPU_NO_HOST_WATCH;
  for (;;) {
    enum { INPUT, ERRORS, HOSTS };
    struct pollfd polled[HOSTS + 2 * VGPU_HOSTS_MAX] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                                        {.fd = errors_of_command, .events = POLLIN}};
    int64_t due = 0;
    for (unsigned i = 0; i < VGPU_HOSTS_MAX; i++) {
      const struct vgpu_host_watch *watch = &watches[i];
      polled[HOSTS + 2 * i] = (struct pollfd){.fd = watch->descriptor, .events = POLLIN};
      polled[HOSTS + 2 * i + 1] = (struct pollfd){.fd = watch->notifier, .events = POLLIN};
      if (watch->retry_at != 0 && (due == 0 || watch->retry_at < due)) due = watch->retry_at;
    }
    int ready = poll(polled, sizeof polled / sizeof *polled, due == 0 ? -1 : vgpu_left_ms(due));
    if (ready < 0 && errno != EINTR) return 1;
    if (ready < 0) continue;
    if (ready == 0) {
      for (unsigned i = 0; i < VGPU_HOSTS_MAX; i++)
        if (watches[i].retry_at != 0 && watches[i].retry_at <= vgpu_now_ms())
          vgpu_host_watch_due(&watches[i]);
      continue;
    }
    /* One event at a time: each may change the other descriptors. */
    if (polled[INPUT].revents != 0) {
      if (!take_input()) return outcome();
      continue;
    }
    unsigned i = 0;
    while (i < 2 * VGPU_HOSTS_MAX && polled[HOSTS + i].revents == 0) i++;
    if (i == 2 * VGPU_HOSTS_MAX) pass_errors();
    else if (i % 2 == 0) vgpu_host_watch_ended(&watches[i / 2]);
    else vgpu_host_watch_stirred(&watches[i / 2]);
  }
}
