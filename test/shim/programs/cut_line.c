/*
 * Cuts the connections of another process of the same user, at random times: shuts down each socket that the
 * process has opened, except its standard ones. Writes one "." for each cut.
 * cut_line PID MILLISECONDS    average time between two cuts; 0: one cut only
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool is_socket(int directory, const char *name) {
  char target[16];
  ssize_t length = readlinkat(directory, name, target, sizeof target);
  return length > 7 && memcmp(target, "socket:", 7) == 0;
}

/* Shuts down the sockets. False: the process has ended. */
static bool cut(int process, const char *path) {
  DIR *directory = opendir(path);
  if (directory == NULL) return false;
  const struct dirent *entry;
  while ((entry = readdir(directory)) != NULL) {
    int number = atoi(entry->d_name);
    if (number <= STDERR_FILENO || !is_socket(dirfd(directory), entry->d_name)) continue;
    int taken = (int)syscall(SYS_pidfd_getfd, process, number, 0);
    if (taken < 0) continue;
    if (shutdown(taken, SHUT_RDWR) == 0 && write(STDOUT_FILENO, ".", 1) != 1) return false;
    close(taken);
  }
  closedir(directory);
  return true;
}

int main(int count, char **words) {
  if (count != 3) return 2;
  char path[40];
  const long pause = atol(words[2]);
  snprintf(path, sizeof path, "/proc/%.12s/fd", words[1]);
  int process = (int)syscall(SYS_pidfd_open, atoi(words[1]), 0);
  if (process < 0) return 1;
  srandom((unsigned)pause + 1u);
  while (cut(process, path) && pause > 0) {
    long microseconds = random() % (pause * 2000);
    struct timespec time = {.tv_sec = microseconds / 1000000, .tv_nsec = microseconds % 1000000 * 1000};
    nanosleep(&time, NULL);
  }
  return 0;
}
