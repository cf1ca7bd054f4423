/*
 * Connections to a daemon, without the library. The greeting comes as hexadecimal digits.
 *
 * - `flood SOCKET GREETING open COUNT`: opens sessions one after the other and prints the microseconds that
 * each took to be welcomed, sorted
 * - `flood SOCKET GREETING RATE`: connects so often a second, greets and never reads; keeps the newest 64
 * connections, until it is killed. Root does it as user 65534.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define KEPT 64
#define NOBODY 65534

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static unsigned char greeting[1024];
static size_t greeting_size;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int greet(int flags) {
  int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  if (descriptor < 0 || connect(descriptor, (struct sockaddr *)&address, sizeof address) != 0 ||
      send(descriptor, greeting, greeting_size, MSG_NOSIGNAL) != (ssize_t)greeting_size) {
    if (descriptor >= 0) close(descriptor);
    return -1;
  }
  return descriptor;
}

static int ascending(const void *one, const void *other) {
  const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return a < b ? -1 : a > b;
}

static int open_sessions(int count) {
  uint64_t *took = calloc((size_t)count, sizeof *took);
  if (took == NULL) return 1;
  for (int i = 0; i < count; i++) {
    unsigned char header[40];
    const uint64_t began = now();
    int descriptor = greet(0);
    if (descriptor < 0 || recv(descriptor, header, sizeof header, MSG_WAITALL) != sizeof header) return 1;
    took[i] = (now() - began) / 1000;
    close(descriptor);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  qsort(took, (size_t)count, sizeof *took, ascending);
  for (int i = 0; i < count; i++) printf("%llu ", (unsigned long long)took[i]);
  puts("");
  free(took);
  return 0;
}

static void flood(unsigned long rate) {
  int kept[KEPT];
  for (size_t i = 0; i < KEPT; i++) kept[i] = -1;
  const uint64_t began = now();
  for (uint64_t i = 0;; i++) {
    const uint64_t due = began + i * 1000000000u / rate, at = now();
    if (at < due) nanosleep(&(struct timespec){.tv_nsec = (long)(due - at)}, NULL);
    if (kept[i % KEPT] >= 0) close(kept[i % KEPT]);
    kept[i % KEPT] = greet(SOCK_NONBLOCK);
    if (i == 0) {
      puts("floods");
      fflush(stdout);
    }
  }
}

int main(int count, char **words) {
  if (count < 4) return 2;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", words[1]);
  for (const char *at = words[2]; at[0] != '\0' && at[1] != '\0' && greeting_size < sizeof greeting;
       at += 2) {
    const char digits[] = {at[0], at[1], '\0'};
    greeting[greeting_size++] = (unsigned char)strtoul(digits, NULL, 16);
  }
  if (strcmp(words[3], "open") == 0) return open_sessions(count < 5 ? 1 : atoi(words[4]));
  if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0) return 1;
  flood(strtoul(words[3], NULL, 10));
}
