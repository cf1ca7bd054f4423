#include "host/daemon/hand_over.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/clock.h"

#define ENVIRONMENT "VGPU_HAND_OVER"
#define START_LIMIT_MS 60000 /* a real driver takes seconds to initialize */
#define FIRST_HANDED_OVER 3  /* SD_LISTEN_FDS_START */

static char program[PATH_MAX];
static char **command_line;

void vgpu_hand_over_remember(char **words) {
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  program[length < 0 ? 0 : length] = '\0';
  command_line = words;
}

static void set_number(const char *name, long value) {
  char text[24];
  snprintf(text, sizeof text, "%ld", value);
  setenv(name, text, 1);
}

/*
 * Runs in a process of its own, for which the daemon does not wait. The listening sockets get the numbers
 * that systemd would give them; the pipe follows.
 */
_Noreturn static void become_successor(const struct vgpu_listeners *listeners,
                                       const struct vgpu_reconnects *reconnects, int end, int pipe,
                                       const sigset_t *mask) {
  int32_t self = (int32_t)getpid();
  if (write(pipe, &self, sizeof self) != (ssize_t)sizeof self) _exit(1);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, mask, NULL);
  int above = FIRST_HANDED_OVER + (int)listeners->count + 1;
  int moved[VGPU_LISTEN_MAX];
  unsigned long owned = 0;
  for (uint32_t i = 0; i < listeners->count; i++) {
    moved[i] = fcntl(listeners->array[i].descriptor, F_DUPFD_CLOEXEC, above);
    if (listeners->array[i].ours) owned |= 1ul << i;
  }
  int own_pipe = fcntl(pipe, F_DUPFD_CLOEXEC, above);
  vgpu_reconnects_bequeath(reconnects, end, above);
  for (uint32_t i = 0; i < listeners->count; i++) {
    if (dup2(moved[i], FIRST_HANDED_OVER + (int)i) < 0) _exit(1);
  }
  if (dup2(own_pipe, above - 1) < 0) _exit(1);
  set_number("LISTEN_PID", getpid());
  set_number("LISTEN_FDS", (long)listeners->count);
  char told[48];
  snprintf(told, sizeof told, "%d:%lx", above - 1, owned);
  setenv(ENVIRONMENT, told, 1);
  execv(program, command_line);
  _exit(127);
}

bool vgpu_hand_over_begin(struct vgpu_hand_over *state, const struct vgpu_listeners *listeners,
                          struct vgpu_reconnects *reconnects, const sigset_t *mask, char *why,
                          unsigned long why_size) {
  int ends[2];
  if (program[0] != '/' || access(program, X_OK) != 0) {
    snprintf(why, why_size, "the program \"%s\" cannot be executed: %s", program, strerror(errno));
    return false;
  }
  if (pipe2(ends, O_CLOEXEC) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) {
    snprintf(why, why_size, "pipe: %s", strerror(errno));
    return false;
  }
  /* Without this socket this daemon's sessions end with their connections. */
  int end = vgpu_reconnects_open(reconnects);
  /* Forks twice, so that the init system becomes the successor's parent. */
  pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) become_successor(listeners, reconnects, end, ends[1], mask);
    _exit(0);
  }
  int error = errno, status;
  close(ends[1]);
  if (end >= 0) close(end);
  if (child < 0) {
    close(ends[0]);
    vgpu_reconnects_close(reconnects);
    snprintf(why, why_size, "fork: %s", strerror(error));
    return false;
  }
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  state->pipe = ends[0];
  state->successor = 0;
  state->deadline = vgpu_now_ms() + START_LIMIT_MS;
  return true;
}

static enum vgpu_hand_over_news over(struct vgpu_hand_over *state, enum vgpu_hand_over_news news) {
  close(state->pipe);
  state->pipe = -1;
  return news;
}

enum vgpu_hand_over_news vgpu_hand_over_read(struct vgpu_hand_over *state) {
  ssize_t got = 1;
  if (state->successor == 0) {
    int32_t number = 0;
    got = read(state->pipe, &number, sizeof number); /* a pipe delivers four bytes at once */
    if (got == (ssize_t)sizeof number) state->successor = (pid_t)number;
  }
  /* The byte follows the process number, which may be written between two reads. */
  char byte;
  if (state->successor > 0) {
    got = read(state->pipe, &byte, 1);
    if (got == 1) return over(state, VGPU_HAND_OVER_SERVES);
  }
  if (got == 0) return over(state, VGPU_HAND_OVER_FAILED);
  if (vgpu_left_ms(state->deadline) > 0) return VGPU_HAND_OVER_WAIT;
  if (state->successor > 0) kill(state->successor, SIGKILL);
  return over(state, VGPU_HAND_OVER_FAILED);
}

/* Parses "PIPE:OWNED". False: the variable is not set or not valid. */
static bool told(int *pipe, unsigned long *owned) {
  const char *text = getenv(ENVIRONMENT);
  char rest;
  return text != NULL && sscanf(text, "%d:%lx%c", pipe, owned, &rest) == 2 && *pipe > STDERR_FILENO;
}

bool vgpu_hand_over_successor(void) {
  int pipe;
  unsigned long owned;
  return told(&pipe, &owned);
}

bool vgpu_hand_over_owns(uint32_t index) {
  int pipe;
  unsigned long owned;
  return told(&pipe, &owned) && index < VGPU_LISTEN_MAX && (owned >> index & 1) != 0;
}

bool vgpu_hand_over_tell(void) {
  int pipe;
  unsigned long owned;
  if (!told(&pipe, &owned)) return false;
  ssize_t written = write(pipe, "", 1);
  (void)written; /* a predecessor that has ended needs no report */
  close(pipe);
  unsetenv(ENVIRONMENT);
  return true;
}
