#include "wire/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include <linux/vm_sockets.h>

static bool parse_number(const char *text, unsigned long limit, unsigned *value) {
  if (*text < '0' || *text > '9' || strlen(text) > 10) return false;
  char *end;
  unsigned long number = strtoul(text, &end, 10);
  if (*end != '\0' || number > limit) return false;
  *value = (unsigned)number;
  return true;
}

static bool parse_unix(const char *path, struct vgpu_address *address) {
  struct sockaddr_un *un = (struct sockaddr_un *)&address->storage;
  size_t length = strlen(path);
  if (length < 2 || length >= sizeof un->sun_path || (path[0] != '/' && path[0] != '@')) return false;
  un->sun_family = AF_UNIX;
  memcpy(un->sun_path, path, length);
  if (path[0] == '@') un->sun_path[0] = '\0';
  address->kind = VGPU_ADDRESS_UNIX;
  address->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (path[0] == '@' ? 0 : 1));
  return true;
}

static bool parse_vsock(const char *text, bool listening, struct vgpu_address *address) {
  struct sockaddr_vm *vm = (struct sockaddr_vm *)&address->storage;
  const char *colon = strchr(text, ':');
  unsigned cid = VMADDR_CID_ANY, port;
  if (colon != NULL) {
    char digits[16];
    size_t length = (size_t)(colon - text);
    if (length == 0 || length >= sizeof digits) return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    if (!parse_number(digits, 0xfffffffeul, &cid)) return false;
  } else if (!listening) {
    return false;
  }
  if (!parse_number(colon == NULL ? text : colon + 1, 0xfffffffeul, &port)) return false;
  vm->svm_family = AF_VSOCK;
  vm->svm_cid = cid;
  vm->svm_port = port;
  address->kind = VGPU_ADDRESS_VSOCK;
  address->length = sizeof *vm;
  return true;
}

/* Only numeric addresses: a resolver could block. */
static bool parse_tcp(const char *text, struct vgpu_address *address) {
  const char *colon = strrchr(text, ':');
  if (colon == NULL) return false;
  char host[64];
  size_t length = (size_t)(colon - text);
  const char *start = text;
  if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
    start++;
    length -= 2;
  }
  unsigned port;
  if (length == 0 || length >= sizeof host || !parse_number(colon + 1, 65535, &port)) return false;
  memcpy(host, start, length);
  host[length] = '\0';
  address->kind = VGPU_ADDRESS_TCP;
  struct sockaddr_in *v4 = (struct sockaddr_in *)&address->storage;
  if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
    address->length = sizeof *v4;
    return true;
  }
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->storage;
  memset(&address->storage, 0, sizeof address->storage);
  if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    address->length = sizeof *v6;
    return true;
  }
  return false;
}

static bool parse(const char *text, bool listening, struct vgpu_address *address) {
  memset(address, 0, sizeof *address);
  if (strncmp(text, "unix:", 5) == 0) return parse_unix(text + 5, address);
  if (strncmp(text, "vsock:", 6) == 0) return parse_vsock(text + 6, listening, address);
  if (strncmp(text, "tcp:", 4) == 0) return parse_tcp(text + 4, address);
  return false;
}

bool vgpu_address_parse(const char *text, struct vgpu_address *address) {
  return parse(text, false, address);
}

bool vgpu_address_parse_listen(const char *text, struct vgpu_address *address) {
  return parse(text, true, address);
}

#define BLANKS " \t\r\n"

static size_t separator_at(const char *at) {
  static const char *const schemes[] = {"unix:", "vsock:", "tcp:"};
  size_t length = strspn(at, BLANKS ",");
  for (size_t i = 0; length > 0 && i < sizeof schemes / sizeof *schemes; i++) {
    if (strncmp(at + length, schemes[i], strlen(schemes[i])) == 0) return length;
  }
  return at[strspn(at, BLANKS)] == '\0' ? length : 0;
}

bool vgpu_hosts_split(const char *text, struct vgpu_hosts *hosts) {
  hosts->count = 0;
  for (const char *at = text + strspn(text, BLANKS); *at != '\0';) {
    size_t length = 0, separator = 0;
    while (at[length] != '\0' && (separator = separator_at(at + length)) == 0) length++;
    if (hosts->count == VGPU_HOSTS_MAX || length >= VGPU_HOST_TEXT) return false;
    char *address = hosts->addresses[hosts->count++];
    memcpy(address, at, length);
    address[length] = '\0';
    at += length + separator;
  }
  return hosts->count > 0;
}

bool vgpu_address_is_local(const struct vgpu_address *address) {
  if (address->storage.ss_family == AF_INET) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->storage;
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  if (address->storage.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&address->storage)->sin6_addr);
  }
  return true;
}
