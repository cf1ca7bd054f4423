#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* In the child: replaces the process; does not return. */
static _Noreturn void become(char *const argv[], char *const environment[]) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (; *environment != NULL; environment++) putenv(*environment);
  execv(argv[0], argv);
  _exit(127);
}

pid_t start_child(char *const argv[], char *const environment[], bool quiet) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  if (quiet) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
  }
  become(argv, environment);
}

/* Appends what the pipe holds; false at its end. */
static bool drain(int pipe, char **data, size_t *length) {
  char bytes[8192];
  ssize_t got = read(pipe, bytes, sizeof bytes);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  char *grown = realloc(*data, *length + (size_t)got + 1);
  if (grown == NULL) return false;
  memcpy(grown + *length, bytes, (size_t)got);
  *length += (size_t)got;
  grown[*length] = '\0';
  *data = grown;
  if (log_wants(LEVEL_TRACE)) log_bytes(bytes, (size_t)got);
  return true;
}

struct child run_child(char *const argv[], char *const environment[], double deadline, const char *enough) {
  struct child child = {.out = strdup(""), .err = strdup("")};
  size_t lengths[2] = {0, 0};
  char **const data[2] = {&child.out, &child.err};
  int out[2], err[2];
  double start = now();
  if (child.out == NULL || child.err == NULL || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    abort();
  pid_t pid = fork();
  if (pid == 0) {
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    become(argv, environment);
  }
  close(out[1]);
  close(err[1]);
  struct pollfd pipes[2] = {{.fd = out[0], .events = POLLIN}, {.fd = err[0], .events = POLLIN}};
  bool stop = pid < 0;
  while (!stop && (pipes[0].fd >= 0 || pipes[1].fd >= 0)) {
    double left = deadline - now();
    if (left <= 0) {
      child.timed_out = stop = true;
      break;
    }
    if (poll(pipes, 2, (int)(left * 1000) + 1) < 0 && errno != EINTR) break;
    for (int index = 0; index < 2; index++) {
      if (pipes[index].fd >= 0 && pipes[index].revents != 0 &&
          !drain(pipes[index].fd, data[index], &lengths[index])) {
        pipes[index].fd = -1; /* poll passes over it */
      }
    }
    /* The whole line: it may come in pieces. */
    const char *line = enough == NULL ? NULL : strstr(child.err, enough);
    stop = line != NULL && strchr(line, '\n') != NULL;
  }
  if (pid > 0) {
    if (stop) kill(pid, SIGKILL);
    while (waitpid(pid, &child.status, 0) < 0 && errno == EINTR) continue;
  }
  close(out[0]);
  close(err[0]);
  child.seconds = now() - start;
  return child;
}

void child_free(struct child *child) {
  free(child->out);
  free(child->err);
}
