/* A preloaded library with which a program gets SIGHUP and SIGTERM as soon as it listens. */
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

int listen(int descriptor, int backlog) {
  int result = (int)syscall(SYS_listen, descriptor, backlog);
  raise(SIGHUP);
  raise(SIGTERM);
  return result;
}
