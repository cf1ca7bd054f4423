/*
 * activation SOCKET NOTIFY PROGRAM ARGUMENTS: starts PROGRAM as systemd starts a socket-activated Type=notify
 * service: descriptor 3 is a listening unix socket, and each datagram to NOTIFY is printed as a line. SIGTERM
 * is passed on.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;

static void pass_on(int number) {
  kill(child, number);
}

static int bound(int type, const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  int descriptor = socket(AF_UNIX, type, 0);
  if (descriptor < 0 || bind(descriptor, (struct sockaddr *)&address, sizeof address) != 0) {
    perror(path);
    exit(3);
  }
  return descriptor;
}

/* Prints the waiting datagrams, one line each. */
static void tell(int notified) {
  char text[256];
  ssize_t got;
  while ((got = recv(notified, text, sizeof text - 1, MSG_DONTWAIT)) > 0) {
    text[got] = '\0';
    text[strcspn(text, "\n")] = '\0';
    puts(text);
  }
}

int main(int count, char **words) {
  if (count < 4) return 3;
  setvbuf(stdout, NULL, _IOLBF, 0);
  int listening = bound(SOCK_STREAM, words[1]);
  int notified = bound(SOCK_DGRAM, words[2]);
  listen(listening, 16);
  child = fork();
  if (child == 0) {
    char pid[32];
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("NOTIFY_SOCKET", words[2], 1);
    close(notified);
    if (listening != 3) {
      dup2(listening, 3);
      close(listening);
    }
    execv(words[3], words + 3);
    _exit(127);
  }
  close(listening);
  signal(SIGTERM, pass_on);
  int status;
  for (;;) {
    struct pollfd poller = {.fd = notified, .events = POLLIN};
    poll(&poller, 1, 20);
    /* checked before the queue is emptied, so that the child's last messages are in the queue */
    bool over = waitpid(child, &status, WNOHANG) == child;
    tell(notified);
    if (over) return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
  }
}
