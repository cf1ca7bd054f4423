#include "host/daemon/control/manage.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "host/log.h"
#include "host/daemon/control/orders.h"
#include "host/daemon/control/report.h"
#include "host/daemon/workers.h"
#include "wire/clock.h"

#define BACKLOG 128      /* connections that the kernel queues for the daemon; beyond them EAGAIN */
#define ASK_LIMIT_MS 200 /* limit for each client, including root */
#define ANSWER_LIMIT_MS 5000
#define HAND_OVER_LIMIT_MS 70000
#define LINE_MAX_BYTES 64u

static bool address_of(const char *path, struct sockaddr_un *address) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address->sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  strcpy(address->sun_path, path);
  return true;
}

int vgpu_manage_open(const char *option, const char *path, unsigned mode) {
  struct sockaddr_un address;
  if (!address_of(path, &address)) {
    vgpu_host_log("error", 0, "--%s \"%s\": longer than a socket's path may be", option, path);
    return -1;
  }
  struct stat info;
  /* A socket file of this name is left over: a running daemon has another path. */
  if (lstat(path, &info) == 0 && S_ISSOCK(info.st_mode)) {
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive = probe >= 0 && connect(probe, (struct sockaddr *)&address, sizeof address) == 0;
    if (probe >= 0) close(probe);
    if (alive) {
      vgpu_host_log("error", 0, "--%s \"%s\": another daemon listens there", option, path);
      return -1;
    }
    unlink(path);
  }
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  mode_t before = umask(0777 & ~(mode_t)mode);
  bool bound = listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0;
  umask(before);
  if (bound && listen(listener, BACKLOG) == 0) return listener;
  vgpu_host_log("error", 0, "--%s \"%s\": %s", option, path, strerror(errno));
  if (listener >= 0) close(listener);
  return -1;
}

/* Reads one line, without its end. False: none comes in time. */
static bool read_line(int connection, char *line) {
  int64_t deadline = vgpu_now_ms() + ASK_LIMIT_MS;
  size_t filled = 0;
  for (;;) {
    struct pollfd poller = {.fd = connection, .events = POLLIN};
    if (poll(&poller, 1, vgpu_left_ms(deadline)) <= 0) return false;
    ssize_t got = recv(connection, line + filled, LINE_MAX_BYTES - 1 - filled, MSG_DONTWAIT);
    if (got <= 0) return false;
    filled += (size_t)got;
    line[filled] = '\0';
    char *end = strchr(line, '\n');
    if (end != NULL) {
      *end = '\0';
      return true;
    }
    if (filled == LINE_MAX_BYTES - 1) return false;
  }
}

/*
 * Carries out one order. False: the answer follows later, and another part of the daemon owns the connection.
 */
static bool obey(FILE *out, int connection, const char *line, struct vgpu_supervisor *supervisor) {
  unsigned long long session;
  char why[512], rest;
  if (strcmp(line, "status") == 0) vgpu_report(out, supervisor, VGPU_REPORT_TABLE, false);
  else if (strcmp(line, "sessions") == 0) vgpu_report(out, supervisor, VGPU_REPORT_TABLE, true);
  else if (strcmp(line, "status json") == 0) vgpu_report(out, supervisor, VGPU_REPORT_JSON, false);
  else if (strcmp(line, "metrics") == 0) vgpu_report(out, supervisor, VGPU_REPORT_METRICS, false);
  else if (strcmp(line, "reload") == 0)
    if (vgpu_order_reload(supervisor, why, sizeof why)) fputs("ok\n", out);
    else fprintf(out, "error: %s; the former rules stay in force\n", why);
  else if (strcmp(line, "hand-over") == 0) {
    if (vgpu_order_hand_over(supervisor, connection, why, sizeof why)) return false;
    fprintf(out, "error: %s\n", why);
  } else if (strcmp(line, "drain") == 0) {
    vgpu_order_drain(supervisor);
    fputs("ok\n", out);
  } else if (sscanf(line, "end %llu%c", &session, &rest) == 1) {
    if (vgpu_workers_end(supervisor, session)) fputs("ok\n", out);
    else fprintf(out, "error: there is no session %llu\n", session);
  } else fprintf(out, "error: \"%s\" is not a command of this daemon\n", line);
  return true;
}

void vgpu_manage_answer(int connection, const char *answer, unsigned long size) {
  /* A socket takes about 200 KiB at once. 256 sessions need half; the metrics are the longest answer. */
  ssize_t sent = send(connection, answer, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  (void)sent;
  close(connection);
}

void vgpu_manage_serve(int listener, struct vgpu_supervisor *supervisor) {
  int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection < 0) return;
  struct ucred who = {.uid = (uid_t)-1};
  socklen_t size = sizeof who;
  char line[LINE_MAX_BYTES] = "", *answer = NULL;
  size_t length = 0;
  bool heard = getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
               (who.uid == 0 || who.uid == geteuid());
  FILE *out = heard && read_line(connection, line) ? open_memstream(&answer, &length) : NULL;
  if (out == NULL) {
    close(connection);
    return;
  }
  bool whole = obey(out, connection, line, supervisor);
  fclose(out);
  if (whole) vgpu_manage_answer(connection, answer, length);
  free(answer);
}

/* Connects to the daemon. -1: the error was reported. */
static int reach(const char *path) {
  struct sockaddr_un address;
  int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection >= 0 && address_of(path, &address) &&
      connect(connection, (struct sockaddr *)&address, sizeof address) == 0)
    return connection;
  fprintf(
      stderr,
      "vgpu-hostd: no daemon answers at %s: %s; is a daemon running with --control %s, and are you root?\n",
      path, strerror(errno), path);
  if (connection >= 0) close(connection);
  return -1;
}

/* Returns the answer, zero-terminated, for free(). NULL: the error was reported. */
static char *ask(const char *path, const char *order) {
  char line[LINE_MAX_BYTES];
  int size = snprintf(line, sizeof line, "%s\n", order);
  int connection;
  /*
   * A busy machine may let the daemon wait for the order so long that it hangs up: then it has not read it.
   * MSG_NOSIGNAL: if the daemon closes each time, the missing answer is reported below.
   */
  for (int tries = 0;; tries++) {
    connection = reach(path);
    if (connection < 0) return NULL;
    if (send(connection, line, (size_t)size, MSG_NOSIGNAL) == size || tries == 4) break;
    close(connection);
  }
  bool patient = strcmp(order, "hand-over") == 0;
  struct timeval limit = {.tv_sec = (patient ? HAND_OVER_LIMIT_MS : ANSWER_LIMIT_MS) / 1000};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char *answer = NULL, bytes[4096];
  size_t length = 0;
  FILE *memory = open_memstream(&answer, &length);
  ssize_t got = -1;
  while (memory != NULL && (got = recv(connection, bytes, sizeof bytes, 0)) > 0)
    fwrite(bytes, 1, (size_t)got, memory);
  if (memory != NULL) fclose(memory);
  close(connection);
  if (got == 0 && length > 0) return answer;
  fprintf(stderr, "vgpu-hostd: the daemon at %s gave no answer\n", path);
  free(answer);
  return NULL;
}

int vgpu_manage_ask(const char *path, const char *order, bool watch) {
  for (;;) {
    char *answer = ask(path, order);
    if (answer == NULL) return 1;
    bool error = strncmp(answer, "error: ", 7) == 0;
    if (error) fprintf(stderr, "vgpu-hostd: %s", answer + 7);
    else if (strcmp(answer, "ok\n") != 0) fputs(answer, stdout);
    free(answer);
    if (fflush(stdout) != 0) return 1;
    if (error || !watch) return error ? 1 : 0;
    struct timespec second = {.tv_sec = 1};
    nanosleep(&second, NULL);
    puts("");
  }
}
