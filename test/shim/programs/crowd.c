/*
 * crowd NUMBER: makes NUMBER connections at once to the address in VGPU_HOST, like guests that start at the
 * same moment. Prints how many connected, how many were refused, and how many still wait after two seconds.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "wire/address.h"
#include "wire/clock.h"

enum { MOST = 1000, LIMIT_MS = 2000 };

int main(int argc, char **argv) {
  static struct pollfd pollers[MOST];
  struct vgpu_address address;
  const char *host = getenv("VGPU_HOST");
  int number = argc == 2 ? atoi(argv[1]) : 0;
  if (host == NULL || !vgpu_address_parse(host, &address) || number < 1 || number > MOST) return 2;
  int connected = 0, refused = 0, reason = 0;
  for (int i = 0; i < number; i++) {
    int one = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool at_once = connect(one, (const struct sockaddr *)&address.storage, address.length) == 0;
    if (at_once) connected++;
    pollers[i] = (struct pollfd){.fd = at_once ? -1 : one, .events = POLLOUT};
  }
  int64_t deadline = vgpu_now_ms() + LIMIT_MS;
  while (connected + refused < number && poll(pollers, (nfds_t)number, vgpu_left_ms(deadline)) > 0) {
    for (int i = 0; i < number; i++) {
      if (pollers[i].revents == 0) continue;
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(pollers[i].fd, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error == 0) connected++;
      else refused++;
      if (error != 0) reason = error;
      pollers[i].fd = -1;
    }
  }
  printf("connected %d, refused %d (%d), waiting %d\n", connected, refused, reason,
         number - connected - refused);
  return 0;
}
