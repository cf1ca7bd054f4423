#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "standin.h"

/* OLLAMA_HOST: [http://][ADDRESS][:PORT], IPv4 only here. */
static struct sockaddr_in parse_host(const char *host) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(11434)};
  char copy[128];
  if (strncmp(host, "http://", 7) == 0) host += 7;
  text(copy, sizeof copy, "%s", host);
  char *colon = strchr(copy, ':');
  if (colon != NULL) {
    *colon = '\0';
    address.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
  }
  const char *name = *copy == '\0' || strcmp(copy, "localhost") == 0 ? "127.0.0.1" : copy;
  if (inet_pton(AF_INET, name, &address.sin_addr) != 1) {
    fprintf(stderr, "Error: stand-in: OLLAMA_HOST=%s: only IPv4 addresses\n", host);
    _exit(1);
  }
  return address;
}

int http_listen(char *address, size_t size) {
  struct sockaddr_in host = parse_host(setting("OLLAMA_HOST"));
  char dotted[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &host.sin_addr, dotted, sizeof dotted);
  text(address, size, "%s:%u", dotted, ntohs(host.sin_port));
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (listener < 0 || bind(listener, (struct sockaddr *)&host, sizeof host) != 0 ||
      listen(listener, 64) != 0) {
    fprintf(stderr, "Error: listen tcp %s: bind: %s\n", address,
            errno == EADDRINUSE ? "address already in use" : strerror(errno));
    _exit(1);
  }
  return listener;
}

/* In a grandchild, so that its parent need not wait: holds the request for as long as STANDIN_BUSY says. */
static bool hold(void) {
  pid_t child = fork();
  if (child == 0) {
    if (fork() != 0) _exit(0);
    while (busy()) usleep(50000);
    return false;
  }
  if (child > 0) waitpid(child, NULL, 0);
  return child > 0;
}

/* True in the process that only answered one request. */
static bool reply(int client, const char *(*answer)(const char *path)) {
  char request[4096], path[256] = "", head[256];
  ssize_t got = recv(client, request, sizeof request - 1, 0);
  if (got <= 0) return false;
  request[got] = '\0';
  if (sscanf(request, "%*7s %255s", path) != 1) return false;
  bool held = strcmp(path, "/api/generate") == 0 && busy();
  if (held && hold()) return false;
  const char *body = answer(path);
  const char *status = body == NULL ? "404 Not Found" : "200 OK";
  if (body == NULL) body = "404 page not found";
  text(head, sizeof head,
       "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status,
       *body == '{' ? "application/json; charset=utf-8" : "text/plain; charset=utf-8", strlen(body));
  send(client, head, strlen(head), MSG_NOSIGNAL);
  if (strncmp(request, "HEAD ", 5) != 0) send(client, body, strlen(body), MSG_NOSIGNAL);
  return held;
}

void http_serve(int listener, const char *(*answer)(const char *path)) {
  for (;;) {
    int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0) continue;
    struct timeval limit = {.tv_sec = 5};
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (reply(client, answer)) _exit(0);
    close(client);
  }
}

static int connect_local(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection >= 0 && connect(connection, (struct sockaddr *)&address, sizeof address) != 0) {
    close(connection);
    return -1;
  }
  return connection;
}

char *http_get(int port, const char *path, double deadline) {
  int connection = connect_local(port);
  if (connection < 0) return NULL;
  char request[256], *answer = calloc(1, 65536);
  size_t length = 0;
  text(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path);
  send(connection, request, strlen(request), MSG_NOSIGNAL);
  while (answer != NULL && length < 65535) {
    double left = deadline - now();
    struct timeval limit = {.tv_sec = (time_t)left,
                            .tv_usec = (suseconds_t)((left - (double)(time_t)left) * 1e6)};
    if (left <= 0) break;
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ssize_t got = recv(connection, answer + length, 65535 - length, 0);
    if (got < 0) break; /* too late, or cut off: no answer */
    if (got == 0) {
      char *body = strstr(answer, "\r\n\r\n");
      char *copy = strncmp(answer, "HTTP/1.1 200", 12) == 0 && body != NULL ? strdup(body + 4) : NULL;
      free(answer);
      close(connection);
      return copy;
    }
    length += (size_t)got;
  }
  free(answer);
  close(connection);
  return NULL;
}
